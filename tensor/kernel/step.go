package kernel

// The optimizer steps: given parameters p, the mean gradient g and the state vectors, they write the update u, which the caller adds
// to p. Every product is rounded before it is added, so that all ISAs give the same bits. In all of them the gradient is first
// regularised, r = g + L2·p + L1·sign(p), and decoupled weight decay comes last: u -= LR·Decay·p. u must not overlap the others.

// Regular is what every step takes: rates and regularisation.
type Regular struct {
	LR    float32 // learning rate
	L2    float32 // adds L2·p to the gradient
	L1    float32 // adds L1·sign(p) to the gradient
	Decay float32 // adds -LR·Decay·p to the update (decoupled, as in AdamW)
}

// SGDParams are the arguments of SGD: u = -LR·r.
type SGDParams struct{ Regular }

// SGD writes u = -LR·r.
func SGD(isa ISA, u, p, g []float32, h SGDParams) {}

// MomentumParams are the arguments of Momentum and Nesterov.
type MomentumParams struct {
	Regular
	Momentum float32
}

// Momentum is v = Momentum·v + r, u = -LR·v.
func Momentum(isa ISA, u, p, g, v []float32, h MomentumParams) {}

// Nesterov is v = Momentum·v + r, u = -LR·(r + Momentum·v).
func Nesterov(isa ISA, u, p, g, v []float32, h MomentumParams) {}

// AdaGradParams are the arguments of AdaGrad.
type AdaGradParams struct {
	Regular
	Epsilon float32
}

// AdaGrad is s += r², u = -LR·r / (√s + Epsilon).
func AdaGrad(isa ISA, u, p, g, s []float32, h AdaGradParams) {}

// RMSPropParams are the arguments of RMSProp.
type RMSPropParams struct {
	Regular
	Rho, Epsilon float32
}

// RMSProp is s = Rho·s + (1-Rho)·r², u = -LR·r / (√s + Epsilon).
func RMSProp(isa ISA, u, p, g, s []float32, h RMSPropParams) {}

// AdamParams are the arguments of Adam. Step counts from 1.
type AdamParams struct {
	Regular
	Beta1, Beta2, Epsilon float32
	Step                  int64
}

// Adam is m = Beta1·m + (1-Beta1)·r, v = Beta2·v + (1-Beta2)·r², u = -LR/(1-Beta1^Step)·m / (√v/√(1-Beta2^Step) + Epsilon).
// With Decay it is AdamW.
func Adam(isa ISA, u, p, g, m, v []float32, h AdamParams) {}

// FTRLParams are the arguments of FTRL (McMahan et al. 2013, algorithm 1; Alpha is LR).
type FTRLParams struct {
	Alpha, Beta, L1, L2 float32
}

// FTRL is the proximal step of McMahan et al.: with s = (√(n+g²) - √n)/Alpha, z += g - s·p and n += g², the new parameter is 0 where
// |z| <= L1, else -(z - sign(z)·L1) / ((Beta + √n)/Alpha + L2); u is the new parameter less p.
func FTRL(isa ISA, u, p, g, z, n []float32, h FTRLParams) {}
