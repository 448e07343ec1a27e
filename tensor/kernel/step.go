package kernel

import "math"

// The optimizer steps: given parameters p, the mean gradient g and the state vectors, they write the update u, which the caller adds
// to p. All slices have u's length; u may be g, but must not overlap p or the state. Every product is rounded before it is added, so
// that all ISAs give the same bits. In all of them the gradient is first regularised, r = (g + L2·p) + L1·sign(p), and decoupled
// decay comes last, u -= (LR·Decay)·p; where L2, L1 and Decay are all 0, r is g, and p is not looked at.

// Below these, on either side, the state of an optimizer is 0, and that of its squares: where a parameter has no gradient any more, what
// decays would end as a denormal number and stay one, with which processors of Intel take a hundred cycles and more, in every step. What is
// computed with a state is no denormal then either, at usual rates; no update is different in any digit that counts.
const (
	settled       = 0x1p-100
	settledSquare = 0x1p-120
)

// settle is x, or 0 where it is less than least on either side.
func settle(x, least float32) float32 {
	if abs(x) < least {
		return 0
	}
	return x
}

// Regular is what every step takes: its rate and its regularisation.
type Regular struct {
	LR    float32 // learning rate
	L2    float32 // adds L2·p to the gradient
	L1    float32 // adds L1·sign(p) to the gradient
	Decay float32 // adds -LR·Decay·p to the update, as in AdamW
}

func (h Regular) plain() bool { return h.L2 == 0 && h.L1 == 0 && h.Decay == 0 }

// gradient is r, finish what follows a rule.
func (h Regular) gradient(p, g float32) float32 {
	r := g + float32(p*h.L2)
	if p != 0 {
		return r + float32(math.Copysign(float64(h.L1), float64(p)))
	}
	return r + 0
}

func (h Regular) finish(p, u float32) float32 { return u - float32(p*(h.LR*h.Decay)) }

// A stepParams is the arguments of a step as the assembly reads them, each eight times; internal/gen has their order.
type stepParams [11][8]float32

func (h Regular) params(rate float32, rule ...float32) (s stepParams) {
	for i, x := range [...]float32{h.L2, h.L1, h.LR * h.Decay, 0, rate} {
		s.set(i, x)
	}
	for i, x := range rule {
		s.set(5+i, x)
	}
	return s
}

func (s *stepParams) set(i int, x float32) {
	for j := range s[i] {
		s[i][j] = x
	}
}

// each runs a rule, the part of a step between r and u, on every element: the portable twin of them all.
func (h Regular) each(u, p, g []float32, rule func(i int, r float32) float32) {
	read(g)
	if !h.plain() {
		read(p)
	}
	wrote(u)
	h.eachGo(u, p, g, rule)
}

//go:norace
func (h Regular) eachGo(u, p, g []float32, rule func(i int, r float32) float32) {
	if h.plain() {
		for i := range u {
			u[i] = rule(i, g[i])
		}
		return
	}
	for i := range u {
		u[i] = h.finish(p[i], rule(i, h.gradient(p[i], g[i])))
	}
}

// SGDParams are the arguments of SGD.
type SGDParams struct{ Regular }

// SGD is u = -LR·r.
func SGD(isa ISA, u, p, g []float32, h SGDParams) {
	p, g = p[:len(u)], g[:len(u)]
	switch {
	case h.plain():
		Scale(isa, u, g, -h.LR)
	case isa >= AVX2:
		s := h.params(-h.LR)
		sgdRegF32(isa, u, p, g, &s[0])
	default:
		h.each(u, p, g, func(_ int, r float32) float32 { return float32(r * -h.LR) })
	}
}

// MomentumParams are the arguments of Momentum and Nesterov.
type MomentumParams struct {
	Regular
	Momentum float32
}

// Momentum is v = Momentum·v + r, u = -LR·v; v of less than 2^-100 is 0.
func Momentum(isa ISA, u, p, g, v []float32, h MomentumParams) {
	p, g, v = p[:len(u)], g[:len(u)], v[:len(u)]
	if isa >= AVX2 {
		s := h.params(-h.LR, h.Momentum)
		if h.plain() {
			momentumF32(isa, u, v, g, &s[0])
		} else {
			momentumRegF32(isa, u, v, p, g, &s[0])
		}
		return
	}
	h.each(u, p, g, func(i int, r float32) float32 {
		v[i] = settle(float32(v[i]*h.Momentum)+r, settled)
		return float32(v[i] * -h.LR)
	})
}

// Nesterov is v = Momentum·v + r, u = -LR·(r + Momentum·v); v of less than 2^-100 is 0.
func Nesterov(isa ISA, u, p, g, v []float32, h MomentumParams) {
	p, g, v = p[:len(u)], g[:len(u)], v[:len(u)]
	if isa >= AVX2 {
		s := h.params(-h.LR, h.Momentum)
		if h.plain() {
			nesterovF32(isa, u, v, g, &s[0])
		} else {
			nesterovRegF32(isa, u, v, p, g, &s[0])
		}
		return
	}
	h.each(u, p, g, func(i int, r float32) float32 {
		v[i] = settle(float32(v[i]*h.Momentum)+r, settled)
		return float32((r + float32(v[i]*h.Momentum)) * -h.LR)
	})
}

// AdaGradParams are the arguments of AdaGrad.
type AdaGradParams struct {
	Regular
	Epsilon float32
}

// AdaGrad is s += r², u = -LR·r / (√s + Epsilon).
func AdaGrad(isa ISA, u, p, g, s []float32, h AdaGradParams) {
	p, g, s = p[:len(u)], g[:len(u)], s[:len(u)]
	if isa >= AVX2 {
		a := h.params(-h.LR, h.Epsilon)
		if h.plain() {
			adaGradF32(isa, u, s, g, &a[0])
		} else {
			adaGradRegF32(isa, u, s, p, g, &a[0])
		}
		return
	}
	h.each(u, p, g, func(i int, r float32) float32 {
		s[i] += float32(r * r)
		return r * -h.LR / (sqrt(s[i]) + h.Epsilon)
	})
}

// RMSPropParams are the arguments of RMSProp.
type RMSPropParams struct {
	Regular
	Rho, Epsilon float32
}

// RMSProp is s = Rho·s + (1-Rho)·r², u = -LR·r / (√s + Epsilon); s of less than 2^-120 is 0.
func RMSProp(isa ISA, u, p, g, s []float32, h RMSPropParams) {
	p, g, s = p[:len(u)], g[:len(u)], s[:len(u)]
	if isa >= AVX2 {
		a := h.params(-h.LR, h.Epsilon, h.Rho, 1-h.Rho)
		if h.plain() {
			rmsPropF32(isa, u, s, g, &a[0])
		} else {
			rmsPropRegF32(isa, u, s, p, g, &a[0])
		}
		return
	}
	h.each(u, p, g, func(i int, r float32) float32 {
		s[i] = settle(float32(s[i]*h.Rho)+float32(float32(r*r)*(1-h.Rho)), settledSquare)
		return r * -h.LR / (sqrt(s[i]) + h.Epsilon)
	})
}

// AdamParams are the arguments of Adam. Step counts from 1.
type AdamParams struct {
	Regular
	Beta1, Beta2, Epsilon float32
	Step                  int64
}

// Adam is m = Beta1·m + (1-Beta1)·r, v = Beta2·v + (1-Beta2)·r², u = -LR/(1-Beta1^Step)·m / (√v/√(1-Beta2^Step) + Epsilon), both
// quotients of scalars rounded once (Kingma and Ba 2015); m of less than 2^-100 is 0, and v of less than 2^-120. With Decay it is AdamW
// (Loshchilov and Hutter 2019).
func Adam(isa ISA, u, p, g, m, v []float32, h AdamParams) {
	p, g, m, v = p[:len(u)], g[:len(u)], m[:len(u)], v[:len(u)]
	rate := float32(float64(-h.LR) / (1 - float64(power(float64(h.Beta1), h.Step))))
	root := float32(1 / math.Sqrt(1-float64(power(float64(h.Beta2), h.Step))))
	if isa >= AVX2 {
		s := h.params(rate, h.Epsilon, h.Beta1, 1-h.Beta1, h.Beta2, 1-h.Beta2, root)
		if h.plain() {
			adamF32(isa, u, m, v, g, &s[0])
		} else {
			adamRegF32(isa, u, m, v, p, g, &s[0])
		}
		return
	}
	h.each(u, p, g, func(i int, r float32) float32 {
		m[i] = settle(float32(m[i]*h.Beta1)+float32(r*(1-h.Beta1)), settled)
		v[i] = settle(float32(v[i]*h.Beta2)+float32(float32(r*r)*(1-h.Beta2)), settledSquare)
		return m[i] * rate / (float32(sqrt(v[i])*root) + h.Epsilon)
	})
}

// power is x to the n, by products alone, so that it has the same bits everywhere.
func power(x float64, n int64) float64 {
	y := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			y *= x
		}
		x *= x
	}
	return y
}

// FTRLParams are the arguments of FTRL; Alpha and Beta are those of the paper's learning rate.
type FTRLParams struct {
	Alpha, Beta, L1, L2 float32
}

// FTRL is the proximal step of McMahan et al. 2013, algorithm 1: with s = (√(n+g²) - √n) / Alpha, z += g - s·p and n += g²; the new
// parameter is 0 where |z| <= L1, else (sign(z)·L1 - z) / ((Beta + √n)/Alpha + L2); and u is the new parameter less p.
func FTRL(isa ISA, u, p, g, z, n []float32, h FTRLParams) {
	p, g, z, n = p[:len(u)], g[:len(u)], z[:len(u)], n[:len(u)]
	if isa >= AVX2 {
		var s stepParams
		for i, x := range [...]float32{h.Alpha, h.Beta, h.L1, h.L2} {
			s.set(i, x)
		}
		ftrlF32(isa, u, z, n, p, g, &s[0])
		return
	}
	for i, pi := range p {
		n2 := n[i] + float32(g[i]*g[i])
		root := sqrt(n2)
		sigma := (root - sqrt(n[i])) / h.Alpha
		z[i] += g[i] - float32(sigma*pi)
		n[i] = n2
		var w float32
		if !(abs(z[i]) <= h.L1) {
			w = (float32(math.Copysign(float64(h.L1), float64(z[i]))) - z[i]) / ((root+h.Beta)/h.Alpha + h.L2)
		}
		u[i] = w - pi
	}
}

// sign is L1 with the sign of x.
func sign(x, l1 float32) float32 { return float32(math.Copysign(float64(l1), float64(x))) }
