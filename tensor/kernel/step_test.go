package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// A rule is a step as the tests see it: on float32 slices with two state vectors, and on one float64 element.
type rule struct {
	name   string
	f      func(isa ISA, u, p, g, s1, s2 []float32, h Regular)
	oracle func(p, g, s1, s2 float64, h Regular) (u, n1, n2 float64)
}

// steps have β = 0.9 and 0.99, ε = 1e-6, and are at step 3.
var steps = []rule{
	{
		"SGD", func(isa ISA, u, p, g, _, _ []float32, h Regular) { SGD(isa, u, p, g, SGDParams{h}) },
		func(_, r, _, _ float64, h Regular) (float64, float64, float64) { return -float64(h.LR) * r, 0, 0 },
	},
	{
		"Momentum", func(isa ISA, u, p, g, v, _ []float32, h Regular) { Momentum(isa, u, p, g, v, MomentumParams{h, 0.9}) },
		func(_, r, v, _ float64, h Regular) (float64, float64, float64) {
			v = 0.9*v + r
			return -float64(h.LR) * v, v, 0
		},
	},
	{
		"Nesterov", func(isa ISA, u, p, g, v, _ []float32, h Regular) { Nesterov(isa, u, p, g, v, MomentumParams{h, 0.9}) },
		func(_, r, v, _ float64, h Regular) (float64, float64, float64) {
			v = 0.9*v + r
			return -float64(h.LR) * (r + 0.9*v), v, 0
		},
	},
	{
		"AdaGrad", func(isa ISA, u, p, g, s, _ []float32, h Regular) { AdaGrad(isa, u, p, g, s, AdaGradParams{h, 1e-6}) },
		func(_, r, s, _ float64, h Regular) (float64, float64, float64) {
			s += r * r
			return -float64(h.LR) * r / (math.Sqrt(s) + 1e-6), s, 0
		},
	},
	{
		"RMSProp", func(isa ISA, u, p, g, s, _ []float32, h Regular) {
			RMSProp(isa, u, p, g, s, RMSPropParams{h, 0.9, 1e-6})
		},
		func(_, r, s, _ float64, h Regular) (float64, float64, float64) {
			s = 0.9*s + 0.1*r*r
			return -float64(h.LR) * r / (math.Sqrt(s) + 1e-6), s, 0
		},
	},
	{
		"Adam", func(isa ISA, u, p, g, m, v []float32, h Regular) {
			Adam(isa, u, p, g, m, v, AdamParams{h, 0.9, 0.99, 1e-6, 3})
		},
		func(_, r, m, v float64, h Regular) (float64, float64, float64) {
			m, v = 0.9*m+0.1*r, 0.99*v+0.01*r*r
			return -float64(h.LR) * m / (1 - 0.9*0.9*0.9) / (math.Sqrt(v/(1-0.99*0.99*0.99)) + 1e-6), m, v
		},
	},
}

func TestSteps(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	for _, k := range steps {
		for _, h := range []Regular{{LR: 0.1}, {LR: 0.1, L2: 0.01}, {LR: 0.1, L1: 0.02, Decay: 0.3}} {
			for _, n := range lengths() {
				off := r.IntN(17)
				p, g := plain[float32](r, n+off)[off:], plain[float32](r, n+off)[off:]
				s1, s2 := plain[float32](r, n), plain[float32](r, n)
				Square(Go, s1, s1)
				Square(Go, s2, s2)
				for i := 0; i < n; i += 5 {
					p[i] = 0
				}
				var want [3][]float32
				for _, isa := range Available() {
					got := [3][]float32{make([]float32, n), append([]float32(nil), s1...), append([]float32(nil), s2...)}
					k.f(isa, got[0], p, g, got[1], got[2], h)
					if isa == GoExact {
						want = got
						for i := range p {
							grad := float64(g[i]) + float64(h.L2*p[i])
							if p[i] != 0 {
								grad += math.Copysign(float64(h.L1), float64(p[i]))
							}
							u, n1, n2 := k.oracle(float64(p[i]), grad, float64(s1[i]), float64(s2[i]), h)
							u -= float64(h.LR) * float64(h.Decay) * float64(p[i])
							for j, want := range [3]float64{u, n1, n2} {
								if (j == 0 || want != 0) && !(math.Abs(float64(got[j][i])-want) <= 3e-6*(1+math.Abs(want))) {
									t.Fatalf("%s %+v: result %d of p %v, g %v, state %v, %v is %v, want %v", k.name, h, j, p[i], g[i], s1[i], s2[i], got[j][i], want)
								}
							}
						}
					}
					for j := range got {
						wantSame(t, fmt.Sprintf("%s %+v on %v, result %d", k.name, h, isa, j), got[j], want[j])
					}
				}
			}
		}
	}
}

func TestStepsWithoutRegularisationReadNoParameters(t *testing.T) {
	nan := []float32{float32(math.NaN())}
	for _, k := range steps {
		for _, isa := range Available() {
			u := []float32{0}
			if k.f(isa, u, nan, []float32{1}, []float32{1}, []float32{1}, Regular{LR: 1}); u[0] != u[0] {
				t.Errorf("%s on %v looked at p", k.name, isa)
			}
		}
	}
}

func TestFTRL(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 11))
	h := FTRLParams{Alpha: 0.1, Beta: 1, L1: 0.5, L2: 0.1}
	for _, n := range lengths() {
		p, z, sq := make([]float32, n), make([]float32, n), make([]float32, n)
		type state struct{ p, z, sq, u []float32 }
		states := map[ISA]state{}
		for _, isa := range Available() {
			states[isa] = state{append([]float32(nil), p...), append([]float32(nil), z...), append([]float32(nil), sq...), make([]float32, n)}
		}
		zeros := 0
		for range 4 {
			g := plain[float32](r, n)
			for _, isa := range Available() {
				s := states[isa]
				before := append([]float32(nil), s.p...)
				FTRL(isa, s.u, s.p, g, s.z, s.sq, h)
				AddInto(isa, s.p, s.u)
				wantSame(t, "parameters of FTRL on "+isa.String(), s.p, states[GoExact].p)
				wantSame(t, "z of FTRL on "+isa.String(), s.z, states[GoExact].z)
				wantSame(t, "n of FTRL on "+isa.String(), s.sq, states[GoExact].sq)
				if isa == GoExact {
					for i := range before {
						zi, ni := float64(s.z[i]), float64(s.sq[i])
						want := 0.0
						if math.Abs(zi) > 0.5 {
							want = -(zi - math.Copysign(0.5, zi)) / ((1+math.Sqrt(ni))/0.1 + 0.1)
						} else {
							zeros++
							if s.p[i] != 0 {
								t.Fatalf("|z| = %v is within L1, and the parameter %v", zi, s.p[i])
							}
						}
						if !(math.Abs(float64(s.p[i])-want) <= 1e-6) {
							t.Fatalf("parameter %v, want %v", s.p[i], want)
						}
					}
				}
			}
		}
		if n > 1000 && (zeros == 0 || zeros == 4*n) {
			t.Errorf("%d of %d parameters became zero: the test shows nothing", zeros, 4*n)
		}
	}
}

// What decays without a gradient ends as 0, not as a denormal number, everywhere after as many steps.
func TestStatesSettle(t *testing.T) {
	for _, k := range steps {
		if k.name == "SGD" || k.name == "AdaGrad" { // nothing decays
			continue
		}
		least, want := float32(settled), [2]int{}
		if k.name == "RMSProp" {
			least = settledSquare
		}
		for _, isa := range Available() {
			u, p, g := []float32{0}, []float32{1}, []float32{0}
			s1, s2 := []float32{1}, []float32{1}
			var took [2]int // until each state is 0
			for n := 0; s1[0] != 0 || k.name == "Adam" && s2[0] != 0; n++ {
				if s1[0] != 0 && abs(s1[0]) < least || k.name == "Adam" && s2[0] < settledSquare && s2[0] != 0 || n > 10_000 {
					t.Fatalf("%s on %v: after %d steps the state is %v, %v", k.name, isa, n, s1, s2)
				}
				for i, s := range [2]float32{s1[0], s2[0]} {
					if s != 0 {
						took[i] = n
					}
				}
				k.f(isa, u, p, g, s1, s2, Regular{LR: 0.1})
			}
			if isa == GoExact {
				want = took
			}
			if took != want {
				t.Errorf("%s on %v: the state is 0 after %d steps, want %d", k.name, isa, took, want)
			}
			s1[0] = float32(math.NaN())
			if k.f(isa, u, p, g, s1, s2, Regular{LR: 0.1}); s1[0] == s1[0] {
				t.Errorf("%s on %v: a state that is NaN became %v", k.name, isa, s1[0])
			}
		}
	}
}
