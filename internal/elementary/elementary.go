// Package elementary has exponential, logarithm, power and cosine of float64 with the same bits on every processor. Package math has assembly for
// some, which fuses products with sums where it finds that the processor can, and what it has in Go may be fused by a compiler, as for
// arm64, ppc64 and s390x: its last bits are not the same everywhere. Here each product is converted to float64 before it is added to
// anything, which forbids that (the Go specification, "Floating-point operators"); all else is exact, or rounded once, everywhere.
//
// Whoever computes a number that a model depends on, and so exact mode, takes these. What is only shown may take those of package math.
//
// Methods and coefficients are those of FreeBSD's msun (fdlibm's e_exp.c, e_log.c, k_sin.c and k_cos.c; copyright 1993 Sun Microsystems,
// Inc.: permission to use, copy, modify, and distribute is freely granted, provided that this notice is preserved). Each function is less
// than a unit in the last place off, but for Log1p, which is less than two off, and Pow, where each product of its whole part adds half of one.
package elementary

import "math"

const (
	ln2Hi = 6.93147180369123816490e-01 // 32 bits, so that its product with an exponent is exact
	ln2Lo = 1.90821492927058770002e-10
)

// Coefficients, numbered as in e_log.c (Lg), e_exp.c (P), k_sin.c (S) and k_cos.c (C).
const (
	cos1 = 4.16666666666666019037e-02
	cos2 = -1.38888888888741095749e-03
	cos3 = 2.48015872894767294178e-05
	cos4 = -2.75573143513906633035e-07
	cos5 = 2.08757232129817482790e-09
	cos6 = -1.13596475577881948265e-11
	lg1  = 6.666666666666735130e-01
	lg2  = 3.999999999940941908e-01
	lg3  = 2.857142874366239149e-01
	lg4  = 2.222219843214978396e-01
	lg5  = 1.818357216161805012e-01
	lg6  = 1.531383769920937332e-01
	lg7  = 1.479819860511658591e-01
	exp1 = 1.66666666666666019037e-01
	exp2 = -2.77777777770155933842e-03
	exp3 = 6.61375632143793436117e-05
	exp4 = -1.65339022054652515390e-06
	exp5 = 4.13813679705723846039e-08
	sin1 = -1.66666666666666324348e-01
	sin2 = 8.33333333332248946124e-03
	sin3 = -1.98412698298579493134e-04
	sin4 = 2.75573137070700676789e-06
	sin5 = -2.50507602534068634195e-08
	sin6 = 1.58969099521155010221e-10
)

// Exp is e to the power x.
func Exp(x float64) float64 {
	x = float64(x) // it may be a product of a caller that this is inlined into; so below
	switch {
	case x != x:
		return x
	case x > 7.09782712893383973096e+02:
		return math.Inf(1)
	case x < -7.45133219101941108420e+02:
		return 0
	}
	k := math.RoundToEven(x * math.Log2E)
	hi := x - float64(k*ln2Hi)
	lo := float64(k * ln2Lo)
	r := hi - lo // x - k·ln 2, and e^r = 1 + r + r·c/(2-c)
	t := float64(r * r)
	p := float64(t*exp5) + exp4
	p = float64(t*p) + exp3
	p = float64(t*p) + exp2
	p = float64(t*p) + exp1
	c := r - float64(t*p)
	y := 1 - ((lo - float64(r*c)/(2-c)) - hi)
	return float64(math.Ldexp(y, int(k)))
}

// Log is the natural logarithm: -Inf of 0, NaN of what is negative.
func Log(x float64) float64 {
	x = float64(x)
	switch {
	case x != x || x > math.MaxFloat64:
		return x
	case x < 0:
		return math.NaN()
	case x == 0:
		return math.Inf(-1)
	}
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m *= 2
		e--
	}
	f, k := m-1, float64(e) // x = 2^k · (1+f) with √½ <= 1+f < √2
	s := f / (2 + f)        // log(1+f) = 2s + s·R(s²)
	s2 := float64(s * s)
	s4 := float64(s2 * s2)
	odd := float64(s4*lg7) + lg5
	odd = float64(s4*odd) + lg3
	odd = float64(s4*odd) + lg1
	even := float64(s4*lg6) + lg4
	even = float64(s4*even) + lg2
	r := float64(s2*odd) + float64(s4*even)
	half := float64(0.5 * f * f)
	return float64(k*ln2Hi) - ((half - (float64(s*(half+r)) + float64(k*ln2Lo))) - f)
}

// Log1p is the logarithm of 1+x, with all its digits where x is small.
func Log1p(x float64) float64 {
	x = float64(x)
	switch {
	case x < -1:
		return math.NaN()
	case x == -1:
		return math.Inf(-1)
	case x == 0 || !(x <= math.MaxFloat64):
		return x
	}
	u := 1 + x
	return Log(u) + (x-(u-1))/u // what rounding u lost
}

// Pow is f to the power t, for 0 <= f <= 1 and t >= 0. As in math.Pow, the whole part of t is products alone, so that f to the power 1 is f.
func Pow(f, t float64) float64 {
	switch {
	case t == 0:
		return 1
	case f == 0:
		return 0
	case t == 0.5:
		return math.Sqrt(f)
	}
	whole, rest := math.Modf(t)
	if rest > 0.5 {
		whole, rest = whole+1, rest-1
	}
	y := 1.0
	if rest != 0 {
		y = Exp(float64(rest * Log(f)))
	}
	for n := uint64(whole); n > 0; n >>= 1 {
		if n&1 == 1 {
			y *= f
		}
		f *= f
	}
	return float64(y)
}

// CosPi is the cosine of π·x. Unlike that of a product by π it is exact where it is 0, 1 or -1, and of any x, however large.
func CosPi(x float64) float64 {
	x = math.Abs(float64(x))
	switch {
	case !(x <= math.MaxFloat64):
		return math.NaN()
	case x >= 1<<53:
		return 1 // x is even
	}
	halves := math.RoundToEven(2 * x)
	quadrant := int64(halves) & 3
	r := x - halves/2 // exact, and from -1/4 to 1/4
	if quadrant == 1 {
		r = halves/2 - x // not -r: 0 keeps its sign
	}
	// y + tail = π·r: the first 26 bits of r times the first 25 of π are exact, and so is the next product.
	const (
		piHi = 0x1.921fb5p+1
		piLo = math.Pi - piHi
	)
	head := math.Float64frombits(math.Float64bits(r) &^ (1<<27 - 1))
	most := float64(head * piHi)
	rest := float64((r-head)*piHi) + float64(r*piLo)
	y := most + rest
	tail := rest - (y - most)
	switch quadrant {
	case 0:
		return cosNear(y, tail)
	case 2:
		return -cosNear(y, tail)
	}
	return sinNear(y, tail)
}

// sinNear is the sine of y + tail, for |y| <= π/4.
func sinNear(y, tail float64) float64 {
	z := float64(y * y)
	v := float64(z * y)
	p := float64(z*sin6) + sin5
	p = float64(z*p) + sin4
	p = float64(z*p) + sin3
	p = float64(z*p) + sin2
	return y - ((float64(z*(float64(0.5*tail)-float64(v*p))) - tail) - float64(v*sin1))
}

// cosNear is the cosine of y + tail, for |y| <= π/4.
func cosNear(y, tail float64) float64 {
	z := float64(y * y)
	p := float64(z*cos6) + cos5
	p = float64(z*p) + cos4
	p = float64(z*p) + cos3
	p = float64(z*p) + cos2
	p = float64(z*p) + cos1
	half := float64(0.5 * z)
	w := 1 - half
	return w + (((1 - w) - half) + (float64(z*float64(z*p)) - float64(y*tail)))
}
