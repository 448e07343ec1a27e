package kernel

import (
	"math"

	"github.com/trivium-ml/trivium/internal/elementary"
)

// The float64 functions: exponential and logarithm are elementary's, the others after FreeBSD's msun (copyright 1993 Sun Microsystems,
// Inc.: permission to use, copy, modify, and distribute is freely granted, provided that this notice is preserved) and, for tanh, Cephes.
// Package math has assembly for some of them on some processors (its logarithm is wrong for denormals on amd64), and compilers may fuse
// additions of the others; these have the same bits everywhere.

// horner evaluates a polynomial, highest coefficient first, without fusing.
func horner(x float64, c ...float64) float64 {
	y := c[0]
	for _, k := range c[1:] {
		y = float64(x*y) + k
	}
	return y
}

const (
	ln2Hi = 6.93147180369123816490e-01 // 32 bits, so that its product with an exponent is exact
	ln2Lo = 1.90821492927058770002e-10
)

func tanh64(x float64) float64 {
	a := math.Abs(x)
	var y float64
	switch {
	case a < 0.625:
		z := x * x
		p := horner(z, -9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3)
		q := horner(z, 1, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3)
		y = x + float64(x*z)*p/q
	case a <= math.MaxFloat64:
		y = 1 - 2/(elementary.Exp(2*a)+1)
	case x == x:
		y = 1
	default:
		return x
	}
	return math.Copysign(y, x)
}

// sigmoid64 also returns e^-|x|.
func sigmoid64(x float64) (s, e float64) {
	e = elementary.Exp(-math.Abs(x))
	if x < 0 {
		return e / (e + 1), e
	}
	return 1 / (e + 1), e
}

func erf64(x float64) float64 {
	a := math.Abs(x)
	switch {
	case x != x:
		return x
	case a < 0.84375:
		return x + float64(x*erfNear(x*x))
	case a < 6:
		return math.Copysign(1-erfcFar(a), x)
	}
	return math.Copysign(1, x)
}

func erfc64(x float64) float64 {
	a := math.Abs(x)
	switch {
	case x != x:
		return x
	case a < 0.84375:
		if x < 0.25 {
			return 1 - (x + float64(x*erfNear(x*x)))
		}
		return 0.5 - (x - 0.5 + float64(x*erfNear(x*x)))
	case a < 28:
		if y := erfcFar(a); x > 0 {
			return y
		} else {
			return 2 - y
		}
	case x > 0:
		return 0
	}
	return 2
}

// erfNear is erf(x)/x - 1 of z = x², for |x| < 0.84375.
func erfNear(z float64) float64 {
	p := horner(z, -2.37630166566501626084e-05, -5.77027029648944159157e-03, -2.84817495755985104766e-02, -3.25042107247001499370e-01,
		1.28379167095512558561e-01)
	q := horner(z, -3.96022827877536812320e-06, 1.32494738004321644526e-04, 5.08130628187576562776e-03, 6.50222499887672944485e-02,
		3.97917223959155352819e-01, 1)
	return p / q
}

// erfcFar is erfc(a) for a from 0.84375 on.
func erfcFar(a float64) float64 {
	if a < 1.25 {
		s := a - 1
		p := horner(s, -2.16637559486879084300e-03, 3.54783043256182359371e-02, -1.10894694282396677476e-01, 3.18346619901161753674e-01,
			-3.72207876035701323847e-01, 4.14856118683748331666e-01, -2.36211856075265944077e-03)
		q := horner(s, 1.19844998467991074170e-02, 1.36370839120290507362e-02, 1.26171219808761642112e-01, 7.18286544141962662868e-02,
			5.40397917702171048937e-01, 1.06420880400844228286e-01, 1)
		return 1 - 8.45062911510467529297e-01 - p/q
	}
	s := 1 / (a * a)
	var p, q float64
	if a < 1/0.35 {
		p = horner(s, -9.81432934416914548592e+00, -8.12874355063065934246e+01, -1.84605092906711035994e+02, -1.62396669462573470355e+02,
			-6.23753324503260060396e+01, -1.05586262253232909814e+01, -6.93858572707181764372e-01, -9.86494403484714822705e-03)
		q = horner(s, -6.04244152148580987438e-02, 6.57024977031928170135e+00, 1.08635005541779435134e+02, 4.29008140027567833386e+02,
			6.45387271733267880336e+02, 4.34565877475229228821e+02, 1.37657754143519042600e+02, 1.96512716674392571292e+01, 1)
	} else {
		p = horner(s, -4.83519191608651397019e+02, -1.02509513161107724954e+03, -6.37566443368389627722e+02, -1.60636384855821916062e+02,
			-1.77579549177547519889e+01, -7.99283237680523006574e-01, -9.86494292470009928597e-03)
		q = horner(s, -2.24409524465858183362e+01, 4.74528541206955367215e+02, 2.55305040643316442583e+03, 3.19985821950859553908e+03,
			1.53672958608443695994e+03, 3.25792512996573918826e+02, 3.03380607434824582924e+01, 1)
	}
	z := math.Float64frombits(math.Float64bits(a) &^ 0xffffffff) // the square of 21 bits is exact
	return elementary.Exp(float64(-z*z)-0.5625) * elementary.Exp(float64((z-a)*(z+a))+p/q) / a
}

// gelu64 is x·Φ(x).
func gelu64(x float64) float64 {
	if x < -40 {
		return math.Copysign(0, -1) // not -Inf · 0
	}
	return x * (0.5 * erfc64(-x*(math.Sqrt2/2)))
}

// geluSlope64 is Φ(x) + x·φ(x).
func geluSlope64(x float64) float64 {
	if x > 40 { // not Inf · 0
		return 1
	}
	if x < -40 {
		return 0
	}
	const density = 0.398942280401432677939946059934 // 1/√2π
	return float64(0.5*erfc64(-x*(math.Sqrt2/2))) + float64(float64(x*density)*elementary.Exp(-0.5*x*x))
}
