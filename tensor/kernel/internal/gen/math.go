package main

import "math"

// The functions of kernel/math_f32.go, step by step: change both or neither.

// sixteenths is 1.5·2^19: near it, a float32 is a multiple of 1/16.
const sixteenths = 786432

// e^r - 1 is r + expSquare·r² + expCubic·r³ within 2^-29 for |r| <= ln 2 / 32 (our own fit).
const (
	expSquare = 0.5000162
	expCubic  = 0.16666667
)

// reduce is x = n·ln 2 + r with n a multiple of 1/16; z is n and magic, so that its lowest four bits say which sixteenth. It overwrites x.
func (b *body) reduce(x val) (z, n, r val) {
	z = b.fma(b.num(math.Log2E), x, b.fresh(b.num(sixteenths)))
	n = b.sub(z, b.num(sixteenths))
	return z, n, b.fma(n, b.num(2.12194440e-4), b.negFMA(n, b.num(0.693359375), x))
}

// times is t·e^r, in the register of t.
func (b *body) times(t, r val) val {
	u := b.poly(r, expCubic, expSquare, 1)
	return b.fma(b.mul(t, r), u, t)
}

// notZero is where e^x does not round to 0. There alone it is computed: processors take a hundred cycles and more for a result that underflows.
func (b *body) notZero(x val) val { return b.cmp(notLess, x, b.num(-104)) }

// scaled is y·2^n, n rounded down, or 0 where that rounds to 0: AVX-512 does not compute these lanes.
func (b *body) scaled(y, n val) val {
	return b.emit('v', "VSCALEFPS.Z", n, y, b.cmp(notLess, n, b.num(-151)))
}

func (b *body) exp(x val) val {
	x = b.min(b.num(89), x)
	if b.avx512() {
		z, n, r := b.reduce(x)
		return b.scaled(b.times(b.lookUp("exp", b.lowest(z), expRow), r), n)
	}
	large := b.notZero(x)
	z, _, r := b.reduce(b.only(large, x))
	y := b.times(b.lookUp("exp", b.lowest(z), expRow), r)
	i := b.sar(b.subInt(z, b.bits(0x49400000)), 4)
	half := b.sar(i, 1)
	y = b.mul(y, b.shl(b.addInt(half, b.bits(127)), 23))
	return b.only(large, b.mul(y, b.shl(b.addInt(b.subInt(i, half), b.bits(127)), 23)))
}

// expNegative is exp of x <= 0, which it overwrites: one comparison less, and of AVX2 a simpler power. 2^65 times the result is no denormal: the
// table's number can have the power, and the product rounds once.
func (b *body) expNegative(x val) val {
	if b.avx512() {
		z, n, r := b.reduce(x)
		return b.scaled(b.times(b.lookUp("exp", b.lowest(z), expRow), r), n)
	}
	large := b.notZero(x)
	z, _, r := b.reduce(b.only(large, x))
	y := b.addInt(b.shl(z, 19), b.lookUp("exp", b.lowest(z), expLarge))
	return b.only(large, b.mul(b.times(y, r), b.num(0x1p-65)))
}

func (b *body) log(x val) val {
	tiny := b.cmp(less, x, b.num(0x1p-126))
	s := b.choose(tiny, b.mul(x, b.num(0x1p23)), x)
	y := b.logOf(x, s, b.only(tiny, b.num(23)))
	y = b.choose(b.cmp(less, x, b.num(0)), b.bits(0x7fc00000), y)
	return b.choose(b.cmp("$0", x, b.num(0)), b.bits(0xff800000), y)
}

// logPlain is log of x that is a positive normal number, or NaN.
func (b *body) logPlain(x val) val { return b.logOf(x, x, val{}) }

// logOf is log of x, which is s·2^-bias.
func (b *body) logOf(x, s, bias val) val {
	e := b.sar(b.subInt(s, b.bits(0x3f3504f3)), 23)
	f := b.sub(b.subInt(s, b.shl(e, 23)), b.num(1))
	k := b.intToFloat(e)
	if bias.id > 0 {
		k = b.sub(k, bias)
	}
	z := b.mul(f, f)
	p := b.poly(f, 7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
		2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)
	y := b.fma(k, b.num(-2.12194440e-4), b.mul(b.mul(f, z), p))
	y = b.fma(z, b.num(-0.5), y)
	y = b.fma(k, b.num(0.693359375), b.add(f, y))
	return b.choose(b.cmp(less, x, b.bits(0x7f800000)), y, x) // +Inf and NaN are their own logarithms
}

func (b *body) tanh(x val) val {
	const magic = 12582912 + 126
	d := b.min(b.num(18.2), b.magnitude(b.add(x, x)))
	z := b.fma(d, b.num(math.Log2E), b.fresh(b.num(magic)))
	n := b.sub(z, b.num(magic))
	r := b.negFMA(n, b.num(math.Ln2), d)
	s := b.mul(r, r)
	p := b.fma(s, b.num(1.3814539416e-3), b.fma(r, b.num(8.3687454462e-3), b.fresh(b.num(4.1668388993e-2))))
	p = b.fma(s, p, b.fma(r, b.num(1.6666521132e-1), b.fresh(b.num(4.9999994040e-1))))
	q := b.fma(s, p, r)
	power := b.shl(z, 23)
	h := b.fma(power, q, b.sub(power, b.num(0.5)))
	y, small := b.div(h, b.add(h, b.num(1))), b.cmp(less, h, b.num(0.5))
	if b.avx512() {
		b.into(y, "VFNMADD213PS", h, h, small)
	} else {
		y = b.choose(small, b.negFMA(h, y, b.fresh(h)), y)
	}
	x = b.load("SI") // again: a register for another vector
	return b.signed(y, x)
}

// sigmoid also returns e^-|x|.
func (b *body) sigmoid(x val) (s, e val) {
	e = b.expNegative(b.or(x, b.signBit()))
	q := b.div(b.choose(b.cmp(less, x, b.num(0)), e, b.num(1)), b.add(e, b.num(1)))
	return b.choose(b.cmp(less, x, b.num(-1.125)), b.negFMA(e, q, b.fresh(e)), q), e
}

func (b *body) log1p(e val) val { // 0 <= e <= 1
	u := b.add(e, b.num(1))
	return b.add(b.log(u), b.div(b.sub(e, b.sub(u, b.num(1))), u))
}

func (b *body) gelu(x val) val {
	// The low bits of z are an integer then, and the exponent of 2^(n+65), by which multiplying is exact.
	const magic = 12582912 + 65 + 127
	a := b.min(b.num(14.75), b.magnitude(x))
	var g, q, z val
	tail := func() {
		at := b.index(b.add(a, b.num(1)), 21)
		t := b.sub(a, b.lookUp("gelu", at, 0))
		g = b.lookUp("gelu", at, 7)
		for k := 6; k > 0; k-- {
			g = b.fma(g, t, b.lookUp("gelu", at, k))
		}
	}
	bell := func() {
		s := b.mul(a, a)
		lo := b.fused("VFMSUB231", a, a, b.fresh(s))
		z = b.fma(s, b.num(-math.Log2E/2), b.fresh(b.num(magic)))
		n := b.sub(z, b.num(magic))
		r := b.fused("VFNMSUB231", n, b.num(2*0.693359375), s)
		r = b.sub(b.fma(n, b.num(2*2.12194440e-4), r), lo)
		q = b.mul(r, b.poly(r, 2.1774655e-05, 0.00026153898, 0.0026041535, 0.020833144, 0.125, 0.5))
	}
	if b.avx512() {
		b.together(bell, tail)
	} else {
		tail() // first, and x is read again: registers are few
		bell()
	}
	b.into(g, "VFMADD213PS", g, q)
	// Products and scalings that underflow take AVX2, and Intel's AVX-512, a hundred cycles and more. Exponents are subtracted as integers,
	// and where the result is denormal, a sum that is rounded at the same digit has it in its lowest bits, and is the larger one. A NaN is
	// in x still.
	const least = 0x1p-61 // 2^65 times the least float32 that is not denormal
	large := b.mul(g, b.shl(z, 23))
	tiny := b.subInt(b.add(large, b.num(least)), b.bits(uint64(math.Float32bits(least))))
	y := b.bin("VPMAXSD", b.subInt(large, b.bits(65<<23)), tiny)
	x = b.load("SI")
	return b.signed(b.sub(b.max(b.num(0), x), y), x)
}

// Of the normal distribution, in float64.

func (b *body) expMinus(s val) val {
	const magic = 3 << 51
	z := b.add(b.mul(s, b.num(-math.Log2E)), b.num(magic))
	n := b.sub(z, b.num(magic))
	r := b.sub(b.sub(b.mul(n, b.num(-6.93147180369123816490e-01)), s), b.mul(n, b.num(1.90821492927058770002e-10)))
	p := b.poly(r, 2.7493129037372664e-06, 2.4880877830268927e-05, 0.0001984153924440195, 0.0013888811010064571, 0.008333333094711827,
		0.04166666696301397, 0.16666666667266872, 0.4999999999966316)
	y := b.add(b.add(b.mul(b.mul(r, r), p), r), b.num(1))
	return b.bin("VPADDQ", y, b.emit('v', "VPSLLQ", "$52", z))
}

func (b *body) millsTail(a val) val {
	inv := b.div(b.num(1), b.add(a, b.num(4)))
	u := b.sub(b.num(1), b.mul(inv, b.num(8)))
	v := b.mul(u, u)
	even := b.poly(v, -1.1062754765589489e-06, 1.88161322967062e-06, -2.7627167611399273e-06, 0.0001336468378028144,
		-0.0034797478683614713, 0.06039657983268065, 0.3871374005744148, 0.7552851304166855)
	odd := b.poly(v, -4.670729538247542e-06, 3.4548953081525724e-05, -0.00023098216382422265, 0.001630816879050201,
		-0.007540190732786556, -0.18652185782061853, -0.6078966419736223)
	return b.mul(inv, b.add(even, b.mul(u, odd)))
}

func (b *body) erf(x val) val {
	a := b.min(b.num(6), b.magnitude(x))
	z := b.mul(a, a)
	far := b.sub(b.num(1), b.mul(b.num(2), b.mul(b.expMinus(z), b.millsTail(b.mul(a, b.num(math.Sqrt2))))))
	near := b.mul(a, b.poly(z, 0.11283791670955126, -0.37612638903183754, 1.1283791670955126))
	return b.signed(b.choose(b.cmp(less, a, b.num(1./64)), near, far), x)
}

// geluSlope is the slope of GELU.
func (b *body) geluSlope(x val) val {
	a := b.min(b.num(20), b.magnitude(x))
	e := b.expMinus(b.mul(b.mul(a, a), b.num(0.5)))
	q := b.mul(e, b.millsTail(a))
	phi := b.choose(b.cmp(less, x, b.num(0)), q, b.sub(b.num(1), q))
	x = b.max(b.num(-20), x)
	density := b.mul(e, b.num(0.398942280401432677939946059934))
	return b.add(phi, b.mul(b.min(b.num(20), x), density))
}
