package kernel

import "math"

// The float32 functions, after the Cephes library (Moshier 1984–1992): at most 2 units in the last place over all arguments. Each is
// one sequence of float32 operations and fused multiply-adds, so that the assembly that internal/gen writes from the same sequence has
// the same bits.

// fmaPoly evaluates a polynomial, highest coefficient first.
func fmaPoly(x float32, c ...float32) float32 {
	y := c[0]
	for _, k := range c[1:] {
		y = fma32(x, y, k)
	}
	return y
}

// sixteenths is 1.5·2^19: near it, a float32 is a multiple of 1/16.
const sixteenths = 786432

// e^r - 1 is r + expSquare·r² + expCubic·r³ within 2^-29 for |r| <= ln 2 / 32 (our own fit).
const (
	expSquare = 0.5000162
	expCubic  = 0.16666667
)

// exp32 is e to the power x. The race detector looks into it as little as into fma32.
//
//go:norace
//go:nocheckptr
func exp32(x float32) float32 {
	x = larger(-104, smaller(89, x)) // beyond, the result is 0 or +Inf all the same
	// x = n·ln 2 + r with n a multiple of 1/16 (Tang, ACM TOMS 15, 1989): adding 1.5·2^19 rounds to one, and leaves sixteen times it in the low
	// bits of z. ln 2 is in two parts, the first of 9 bits, so that its product with n is exact.
	z := fma32(x, math.Log2E, sixteenths)
	n := z - sixteenths
	r := fma32(n, 2.12194440e-4, fma32(n, -0.693359375, x))
	bits := math.Float32bits(z)
	t := expTable[bits&15]
	return mulPower(fma32(t*r, fmaPoly(r, expCubic, expSquare, 1), t), int32(bits-0x49400000)>>4)
}

// mulPower is y·2^k: in two steps, of which the first is exact, for denormal results.
func mulPower(y float32, k int32) float32 {
	half := k >> 1
	y *= math.Float32frombits(uint32(half+127) << 23)
	return float32(y * math.Float32frombits(uint32(k-half+127)<<23))
}

func abs32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

func log32(x float32) float32 {
	switch {
	case x == 0:
		return float32(math.Inf(-1))
	case x < 0:
		return float32(math.NaN())
	case !(x < float32(math.Inf(1))):
		return x
	}
	s, bias := x, float32(0)
	if x < 0x1p-126 { // denormal
		s, bias = x*0x1p23, 23
	}
	// s = 2^e · (1+f) with √½ <= 1+f < √2
	e := int32(math.Float32bits(s)-0x3f3504f3) >> 23
	f := math.Float32frombits(math.Float32bits(s)-uint32(e)<<23) - 1
	k := float32(e) - bias
	z := f * f
	p := fmaPoly(f, 7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
		2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)
	y := fma32(k, -2.12194440e-4, float32(float32(f*z)*p))
	y = fma32(z, -0.5, y)
	return fma32(k, 0.693359375, f+y)
}

// tanh32 is h / (h + 1) with h = (e^2|x| - 1) / 2, which loses no digits where x is small. From 9.1 on the result is 1.
func tanh32(x float32) float32 {
	const magic = 12582912 + 126 // 1.5·2^23: n is an integer, and the low bits of z are the exponent of 2^(n-1)
	d := smaller(18.2, abs32(x+x))
	z := fma32(d, math.Log2E, magic)
	n := z - magic
	r := fma32(n, -math.Ln2, d) // ln 2 in one part: its error is 3e-9 of d, and the less of the result the larger d is
	// q = e^r - 1 = r + r²·p, with pairs of terms of p: a shorter chain.
	s := r * r
	p := fma32(s, 1.3814539416e-3, fma32(r, 8.3687454462e-3, 4.1668388993e-2))
	p = fma32(s, p, fma32(r, 1.6666521132e-1, 4.9999994040e-1))
	q := fma32(s, p, r)
	power := math.Float32frombits(math.Float32bits(z) << 23)
	h := fma32(power, q, power-0.5)
	y := h / (h + 1)
	if h < 0.5 {
		y = fma32(-h, y, h) // the sum's rounding weighs less
	}
	return math.Float32frombits(math.Float32bits(y) | math.Float32bits(x)&(1<<31))
}

// sigmoid32 also returns e^-|x|, which does not overflow.
func sigmoid32(x float32) (s, e float32) {
	e = exp32(-abs32(x))
	switch d := e + 1; {
	case x < -1.125:
		return fma32(-e, e/d, e), e // the sum's rounding weighs little
	case x < 0:
		return e / d, e
	default:
		return 1 / d, e
	}
}

// log1p32 is log(1+e) for 0 <= e <= 1. The second term is what rounding 1+e lost.
func log1p32(e float32) float32 {
	u := e + 1
	return log32(u) + (e-(u-1))/u
}

// gelu32 is max(x, 0) - a·Φ(-a) with a = |x|, which loses no digits on either side. a·Φ(-a) is e^(-a²/2) times a function that is almost
// constant where a is large, and has a polynomial in each of 16 intervals. From 14.75 on the product is less than any float32.
func gelu32(x float32) float32 {
	a := smaller(14.75, abs32(x))
	s := a * a
	lo := fma32(a, a, -s)
	// s = -(n·2 ln 2 + r), as in exp32 but with an integer n, and so e^(-a²/2) = 2^n·e^(r/2), r with what rounding s lost.
	z := fma32(s, -math.Log2E/2, 12582912)
	n := z - 12582912
	r := -fma32(n, 2*0.693359375, s)
	r = fma32(n, 2*2.12194440e-4, r) - lo
	q := r * fmaPoly(r, 2.1774655e-05, 0.00026153898, 0.0026041535, 0.020833144, 0.125, 0.5) // e^(r/2) - 1 within 2^-28
	j := math.Float32bits(a+1) >> 21 & 15
	t := a - geluTable[0][j]
	g := geluTable[7][j]
	for k := 6; k > 0; k-- {
		g = fma32(g, t, geluTable[k][j])
	}
	y := mulPower(fma32(g, q, g), int32(math.Float32bits(z)-0x4b400000))
	return math.Float32frombits(math.Float32bits(larger(0, x)-y) | math.Float32bits(x)&(1<<31))
}

// Erf and the slope of GELU compute in float64, but to 12 digits only, which rounds to a float32 that is at most
// slightly more than half a unit off.

// hornerFMA is horner with fused multiply-adds, which float64 has on every machine.
func hornerFMA(x float64, c ...float64) float64 {
	y := c[0]
	for _, k := range c[1:] {
		y = math.FMA(y, x, k)
	}
	return y
}

// expMinus is e^-s for 0 <= s <= 700.
func expMinus(s float64) float64 {
	const magic = 3 << 51 // as in exp32
	z := float64(s*-math.Log2E) + magic
	n := z - magic
	r := float64(n*-ln2Hi) - s - float64(n*ln2Lo)
	p := hornerFMA(r, 2.7493129037372664e-06, 2.4880877830268927e-05, 0.0001984153924440195, 0.0013888811010064571, 0.008333333094711827,
		0.04166666696301397, 0.16666666667266872, 0.4999999999966316)
	y := float64(float64(r*r)*p) + r + 1
	return math.Float64frombits(math.Float64bits(y) + math.Float64bits(z)<<52)
}

// millsTail is Φ(-a)·e^(a²/2) for 0 <= a <= 20: a polynomial in (a-4)/(a+4), over a+4 (the form of Shepherd and Laframboise, Math.
// Comp. 36, 1981; the coefficients are our own fit, to a relative error of 1.3e-12).
func millsTail(a float64) float64 {
	inv := 1 / (a + 4)
	u := 1 - float64(inv*8)
	v := u * u // two shorter chains
	even := hornerFMA(v, -1.1062754765589489e-06, 1.88161322967062e-06, -2.7627167611399273e-06, 0.0001336468378028144,
		-0.0034797478683614713, 0.06039657983268065, 0.3871374005744148, 0.7552851304166855)
	odd := hornerFMA(v, -4.670729538247542e-06, 3.4548953081525724e-05, -0.00023098216382422265, 0.001630816879050201,
		-0.007540190732786556, -0.18652185782061853, -0.6078966419736223)
	return inv * (even + float64(u*odd))
}

func erf32(x float32) float32 {
	a := smaller(6, math.Abs(float64(x))) // erf(6) rounds to 1
	z := a * a
	var y float64
	if a < 1./64 {
		y = a * hornerFMA(z, 0.11283791670955126, -0.37612638903183754, 1.1283791670955126) // Taylor's; far has too few digits here
	} else {
		y = 1 - float64(2*float64(expMinus(z)*millsTail(float64(a*math.Sqrt2))))
	}
	return float32(math.Copysign(y, float64(x)))
}

// geluSlope32 is the slope of GELU. Beyond 20, Φ is 0 or 1, and products with infinities are avoided.
func geluSlope32(x float32) float64 {
	v := float64(x)
	a := smaller(20, math.Abs(v))
	e := expMinus(a * a * 0.5)
	phi := float64(e * millsTail(a))
	if !(v < 0) {
		phi = 1 - phi
	}
	v = larger(-20, v)
	density := e * 0.398942280401432677939946059934 // 1/√2π
	return phi + float64(smaller(20, v)*density)
}
