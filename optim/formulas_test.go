package optim_test

import (
	"math"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// TestAgainstFormulas steps one cell in float64, by the formula as papers have it, and wants float32's version of that. A tensor's multiplier of
// decay is one of L1, L2 and decay.
func TestAgainstFormulas(t *testing.T) {
	for name, spec := range rules() {
		for _, isa := range kernel.Available() {
			for _, decay := range []float32{1, 0.5} {
				againstFormula(t, name, spec, isa, decay)
			}
		}
	}
}

func againstFormula(t *testing.T, name string, spec trivium.OptimizerSpec, isa kernel.ISA, decay float32) {
	const steps = 12
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{1}, Decay: decay})
	state, err := optim.NewState(l, rule(t, spec, isa), &tensor.CPU{ISA: isa})
	if err != nil {
		t.Fatal(err)
	}
	p, g := trivium.NewParams(l), trivium.NewGradient(l)
	p.Flat[0] = 0.8
	x := naive{spec: spec, p: 0.8}
	for _, strength := range []*float64{&x.spec.L1, &x.spec.L2, &x.spec.Decay} {
		*strength *= float64(decay)
	}
	for step := 1; step <= steps; step++ {
		mean := math.Sin(float64(step)) // of either sign
		g.Flat[0] = float32(mean * 4)
		state.Step(int64(step), p, g, 4)
		x.step(step, mean)
		if got := float64(p.Flat[0]); !(math.Abs(got-x.p) <= 3e-6) {
			t.Fatalf("%s on %v, decay × %v: after update %d the cell is %v, by the formula %v", name, isa, decay, step, got, x.p)
		}
	}
	if math.Abs(float64(p.Flat[0])-0.8) < 1e-3 {
		t.Errorf("%s: the cell hardly moved: %v", name, p.Flat[0])
	}
}

// TestDefaults: what a job has that names an optimizer and nothing else, which are PyTorch's defaults, but for the rates of SGD and its kin, and McMahan's of FTRL.
func TestDefaults(t *testing.T) {
	for name, want := range map[string]string{
		"":         "sgd rate 0.1",
		"momentum": "momentum rate 0.01 momentum 0.9",
		"nesterov": "nesterov rate 0.01 momentum 0.9",
		"adagrad":  "adagrad rate 0.01 epsilon 1e-10",
		"rmsprop":  "rmsprop rate 0.01 epsilon 1e-08 rho 0.99",
		"adam":     "adam rate 0.001 beta1 0.9 beta2 0.999 epsilon 1e-08",
		"adamw":    "adamw rate 0.001 beta1 0.9 beta2 0.999 epsilon 1e-08",
		"ftrl":     "ftrl rate 0.1 beta 1",
	} {
		if got := rule(t, trivium.OptimizerSpec{Name: name}, kernel.Best()).(*optim.Rule).String(); got != want {
			t.Errorf("%q is %s, want %s", name, got, want)
		}
	}
}

// naive is one cell under any of the rules, in float64.
type naive struct {
	spec    trivium.OptimizerSpec
	p, a, b float64
}

func (x *naive) step(t int, g float64) {
	s := x.spec
	rate := s.Rate
	switch s.Schedule {
	case "inverse:0.1":
		rate /= 1 + 0.1*float64(t-1)
	case "warmup:3+cosine:10":
		if t < 3 {
			rate *= float64(t) / 3
		} else {
			rate *= (1 + math.Cos(math.Pi*min(float64(max(t-3, 1)-1)/10, 1))) / 2
		}
	}
	if s.ClipNorm > 0 && math.Abs(g) > s.ClipNorm {
		g = math.Copysign(s.ClipNorm, g)
	}
	if s.ClipValue > 0 {
		g = max(-s.ClipValue, min(g, s.ClipValue))
	}
	sign := 0.0
	if x.p != 0 {
		sign = math.Copysign(1, x.p)
	}
	r := g + s.L2*x.p + s.L1*sign
	decay := rate * s.Decay * x.p
	switch s.Name {
	case "sgd":
		x.p -= rate*r + decay
	case "momentum":
		x.a = 0.9*x.a + r
		x.p -= rate*x.a + decay
	case "nesterov":
		x.a = 0.8*x.a + r
		x.p -= rate*(r+0.8*x.a) + decay
	case "adagrad":
		x.a += r * r
		x.p -= rate*r/(math.Sqrt(x.a)+1e-10) + decay
	case "rmsprop":
		x.a = 0.99*x.a + 0.01*r*r
		x.p -= rate*r/(math.Sqrt(x.a)+1e-8) + decay
	case "adam", "adamw":
		x.a = 0.9*x.a + 0.1*r
		x.b = 0.999*x.b + 0.001*r*r
		m, v := x.a/(1-math.Pow(0.9, float64(t))), x.b/(1-math.Pow(0.999, float64(t)))
		x.p -= rate*m/(math.Sqrt(v)+1e-8) + decay
	case "ftrl":
		if t == 1 { // its z is where it began
			x.a = -x.p*(1/rate+s.L2) - sign*s.L1
		}
		sigma := (math.Sqrt(x.b+g*g) - math.Sqrt(x.b)) / rate
		x.a += g - sigma*x.p
		x.b += g * g
		x.p = 0
		if math.Abs(x.a) > s.L1 {
			x.p = -(x.a - math.Copysign(s.L1, x.a)) / ((1+math.Sqrt(x.b))/rate + s.L2)
		}
	default:
		panic(s.Name)
	}
}

// TestByHand has figures worked by hand: three updates of a cell that starts at 1, with gradients 1, 0.5 and -1. They are PyTorch's
// too, where it has the rule.
func TestByHand(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{1}, Decay: 1})
	for _, c := range []struct {
		spec trivium.OptimizerSpec
		want [3]float64
	}{
		{trivium.OptimizerSpec{Name: "sgd", Rate: 0.1}, [3]float64{0.9, 0.85, 0.95}},
		// v = 1, 1.4, 0.26
		{trivium.OptimizerSpec{Name: "momentum", Rate: 0.1}, [3]float64{0.9, 0.76, 0.734}},
		// r + 0.9v = 1.9, 1.76, -0.766
		{trivium.OptimizerSpec{Name: "nesterov", Rate: 0.1}, [3]float64{0.81, 0.634, 0.7106}},
		// s = 1, 1.25, 2.25
		{trivium.OptimizerSpec{Name: "adagrad", Rate: 0.1}, [3]float64{0.9, 0.9 - 0.05/math.Sqrt(1.25), 0.9 - 0.05/math.Sqrt(1.25) + 0.1/1.5}},
		// s = 0.01, 0.0124, 0.022276
		{trivium.OptimizerSpec{Name: "rmsprop", Rate: 0.01}, [3]float64{0.9, 0.9 - 0.005/math.Sqrt(0.0124), 0.9 - 0.005/math.Sqrt(0.0124) + 0.01/math.Sqrt(0.022276)}},
		// m = 0.1, 0.14, 0.026; v = 0.001, 0.001249, 0.002247751
		{trivium.OptimizerSpec{Name: "adam", Rate: 0.1}, [3]float64{
			0.9,
			0.9 - 0.1*(0.14/0.19)/math.Sqrt(0.001249/0.001999),
			0.9 - 0.1*(0.14/0.19)/math.Sqrt(0.001249/0.001999) - 0.1*(0.026/0.271)/math.Sqrt(0.002247751/0.002997001),
		}},
		{trivium.OptimizerSpec{Name: "adamw", Rate: 0.1, Decay: 0.5}, [3]float64{0.85, 0.85 - 0.1*(0.14/0.19)/math.Sqrt(0.001249/0.001999) - 0.0425, math.NaN()}},
		{trivium.OptimizerSpec{Name: "adamw", Rate: 0.1}, [3]float64{0.9 - 0.1*0.01, math.NaN(), math.NaN()}}, // the decay of those who name none
		{trivium.OptimizerSpec{Name: "adamw", Rate: 0.1, Decay: 0.001}, [3]float64{0.9 - 0.1*0.001, math.NaN(), math.NaN()}},
		// z begins at -1·(10 + 1) - 1 = -12, which is where 1 is; n = 1, z = -12 + 1 - 10·1 = -21: (21 - 1)/(20 + 1).
		{trivium.OptimizerSpec{Name: "ftrl", Rate: 0.1, L1: 1, L2: 1}, [3]float64{20. / 21, math.NaN(), math.NaN()}},
		{trivium.OptimizerSpec{Name: "ftrl", Rate: 0.1, L1: 9.5}, [3]float64{0.95, math.NaN(), math.NaN()}},
	} {
		state, err := optim.NewState(l, rule(t, c.spec, kernel.Best()), nil)
		if err != nil {
			t.Fatal(err)
		}
		p, g := trivium.NewParams(l), trivium.NewGradient(l)
		p.Flat[0] = 1
		for i, grad := range []float32{1, 0.5, -1} {
			g.Flat[0] = grad
			state.Step(int64(i+1), p, g, 1)
			if got := float64(p.Flat[0]); !math.IsNaN(c.want[i]) && !(math.Abs(got-c.want[i]) <= 5e-7) {
				t.Errorf("%s: after update %d: %v, want %v", c.spec.Name, i+1, got, c.want[i])
			}
		}
	}
}

// TestFTRLBeginsWhereTheModelDoes: parameters that begin elsewhere than at 0, as those of a net, stay where no gradient moves them, also in
// rows that are touched late.
func TestFTRLBeginsWhereTheModelDoes(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "dense", Shape: []int{3}, Decay: 1}, trivium.Spec{Name: "rows", Shape: []int{4, 2}, Decay: 1, RowSparse: true})
	for _, isa := range kernel.Available() {
		state, err := optim.NewState(l, rule(t, trivium.OptimizerSpec{Name: "ftrl", Rate: 0.1, L1: 0.5, L2: 0.1}, isa), nil)
		if err != nil {
			t.Fatal(err)
		}
		p, g := trivium.NewParams(l), trivium.NewGradient(l)
		begin := []float32{0.5, -0.5, 0, 1, -1, 2, -2, 3, -3, 4, -4}
		copy(p.Flat, begin)
		for step := range int64(4) { // row step at update step
			g.Zero()
			g.Touch(1, []int32{int32(step)})
			state.Step(step+1, p, g, 1)
		}
		for i, x := range p.Flat {
			if !(math.Abs(float64(x-begin[i])) <= 1e-6*math.Abs(float64(begin[i]))) {
				t.Errorf("%v: cell %d began at %v and is %v", isa, i, begin[i], x)
			}
		}
	}
}

// An update without weight is none: FTRL begins at the model's parameters with the first that has some.
func TestFTRLBeginsAtTheFirstUpdateWithWeight(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "dense", Shape: []int{3}, Decay: 1})
	for _, isa := range kernel.Available() {
		var got [2][]float32
		for i, first := range []int64{1, 2} {
			state, err := optim.NewState(l, rule(t, trivium.OptimizerSpec{Name: "ftrl", Rate: 0.1, L1: 0.5, L2: 0.1}, isa), nil)
			if err != nil {
				t.Fatal(err)
			}
			p, g := trivium.NewParams(l), trivium.NewGradient(l)
			copy(p.Flat, []float32{0.5, -0.5, 2})
			for step := int64(1); step < first; step++ {
				state.Step(step, p, g, 0)
			}
			copy(g.Flat, []float32{0, 1, 0})
			state.Step(first, p, g, 1)
			got[i] = p.Flat
		}
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("%v: after an update without weight %v, without one %v", isa, got[1], got[0])
		}
	}
}
