package optim_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// An outside optimizer is of a program's own: u = -g - p, and the sum of g is its state.
type outside struct{ slots int }

func (o outside) Slots() int      { return o.slots }
func (outside) Elementwise() bool { return true }
func (o outside) Apply(_ int64, _ *trivium.Layout, _ int, p, g, u []float32, slots [][]float32) {
	for i := range p {
		for _, v := range slots {
			v[i] += g[i]
		}
		u[i] = -g[i] - p[i]
	}
}

// A named one says more of itself.
type named struct {
	outside
	names []string
}

func (n named) SlotNames() []string     { return n.names }
func (n named) Rate(step int64) float64 { return 1 / float64(step) }

func builds(o trivium.Optimizer) optim.Builder {
	return func(trivium.OptimizerSpec, kernel.ISA) (trivium.Optimizer, error) { return o, nil }
}

func TestOptimizers(t *testing.T) {
	mine := optim.Optimizers{
		"lion": builds(outside{2}), "tiger": builds(named{outside{1}, []string{"mean"}}), "picky": func(s trivium.OptimizerSpec, _ kernel.ISA) (trivium.Optimizer, error) {
			return nil, errors.New("it wants stripes")
		},
		"soft": func(s trivium.OptimizerSpec, isa kernel.ISA) (trivium.Optimizer, error) {
			return optim.New(trivium.OptimizerSpec{Name: "adam"}, isa)
		},
	}
	if names := mine.Names(); !slices.IsSorted(names) || !slices.Contains(names, "lion") || !slices.Contains(names, "adam") || len(names) != 13 {
		t.Errorf("names %q", names)
	}
	for name, want := range map[string]string{"lion": "slot0 slot1", "tiger": "mean", "soft": "mean squares", "momentum": "velocity", "": ""} {
		o, err := mine.New(trivium.OptimizerSpec{Name: name}, kernel.Go)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(optim.NamesOf(o), " "); got != want {
			t.Errorf("%q: state %q, want %q", name, got, want)
		}
		rate := optim.RateOf(o)
		switch {
		case name == "lion" && rate != nil:
			t.Errorf("%s tells a rate", name)
		case name == "tiger" && rate(4) != 0.25, name == "momentum" && rate(4) != 0.01:
			t.Errorf("%s: rate %v", name, rate(4))
		}
		if _, rule := o.(*optim.Rule); rule != (name != "lion" && name != "tiger") {
			t.Errorf("%q is a %T", name, o)
		}
	}
	for name, want := range map[string]string{
		"lyon": `did you mean "lion"?`, "adan": `did you mean "adam"?`, "picky": `optimizer "picky": it wants stripes`, "lbfgs": "under strategies that drive it",
	} {
		if _, err := mine.New(trivium.OptimizerSpec{Name: name}, kernel.Go); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
	if o, err := optim.Optimizers(nil).New(trivium.OptimizerSpec{Name: "adam"}, kernel.Go); err != nil || o == nil {
		t.Errorf("%v, %v", o, err)
	}
}

// TestOptimizersRefuse: what a job would mean either way, and what no checkpoint could keep.
func TestOptimizersRefuse(t *testing.T) {
	for _, c := range []struct {
		mine optim.Optimizers
		want string
	}{
		{optim.Optimizers{"adam": builds(outside{})}, `the name of one that ships, "adam"`},
		{optim.Optimizers{"lbfgs": builds(outside{})}, `the name of one that ships, "lbfgs"`},
		{optim.Optimizers{"": builds(outside{})}, "has no name"},
		{optim.Optimizers{"x": nil}, "has no builder"},
		{optim.Optimizers{"x": builds(nil)}, "returned none"},
		{optim.Optimizers{"x": builds(outside{-1})}, "-1 state vectors"},
		{optim.Optimizers{"x": builds(named{outside{2}, []string{"a"}})}, "want a name for each"},
		{optim.Optimizers{"x": builds(named{outside{2}, []string{"a", "a"}})}, "names that differ"},
		{optim.Optimizers{"x": builds(named{outside{1}, []string{"a/b"}})}, "without a slash"},
		{optim.Optimizers{"x": builds(named{outside{1}, []string{"residual"}})}, `none of ["steps" "residual"]`},
	} {
		if _, err := c.mine.New(trivium.OptimizerSpec{Name: "x"}, kernel.Go); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// TestOwnLeavesBuffers: what is no parameter does not change, whatever an optimizer makes of it.
func TestOwnLeavesBuffers(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{2}}, trivium.Spec{Name: "m", Shape: []int{2}, Buffer: true}, trivium.Spec{Name: "b", Shape: []int{1}})
	o, err := optim.Optimizers{"x": builds(outside{})}.New(trivium.OptimizerSpec{Name: "x"}, kernel.Go)
	if err != nil {
		t.Fatal(err)
	}
	p, g := []float32{2, 3, 4, 5}, []float32{1, 1, 1, 1}
	for from, want := range map[int][]float32{0: {-3, -4, 0, 0}, 1: {-3, 0, 0, -6}} {
		u := make([]float32, 4)
		if o.Apply(1, l, from, p, g, u, nil); !slices.Equal(u, want) {
			t.Errorf("from %d: %v, want %v", from, u, want)
		}
	}
}
