package autodiff_test

import (
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/autodiff"
	"github.com/trivium-ml/trivium/graph/graphtest"
	"github.com/trivium-ml/trivium/graph/optest"
	"github.com/trivium-ml/trivium/tensor"
)

func TestCase13RulesAgainstCentralDifferences(t *testing.T) {
	used := map[string]bool{}
	for name, f := range optest.Graphs() {
		t.Run(name, func(t *testing.T) {
			l := optest.Build(graph.F64, f)
			g, err := l.B.Build()
			if err != nil {
				t.Fatal(err)
			}
			if err := autodiff.CheckNumeric(g, l.Y, autodiff.CheckOptions{Evaluate: graphtest.Evaluate, Feeds: l.Feeds, Indices: 24}); err != nil {
				t.Error(err)
			}
			for _, n := range autodiff.Checked(g, l.Y) {
				used[n.Op.Name] = true
			}
		})
	}
	for op := range graph.Ops() {
		vjp, none, ok := autodiff.RuleOf(op.Name)
		switch {
		case !ok || vjp == (none != ""):
			t.Errorf("%s: want a gradient rule, or why there is none", op.Name)
		case vjp && !used[op.Name] && op.Name != "StopGradient":
			t.Errorf("%s: no numeric check of its rule", op.Name)
		}
		if !graphtest.HasKernel(op.Name) {
			t.Errorf("%s: no reference kernel", op.Name)
		}
	}
	for _, name := range autodiff.RuleNames() {
		if !isOp(name) {
			t.Errorf("rule of %s: no such operation", name)
		}
	}
}

func isOp(name string) bool {
	for op := range graph.Ops() {
		if op.Name == name {
			return true
		}
	}
	return false
}

// The whole gradient, through every node, agrees too.
func TestWholeGradients(t *testing.T) {
	for name, f := range optest.Graphs() {
		l := optest.Build(graph.F64, f)
		if !l.Third {
			continue
		}
		t.Run(name, func(t *testing.T) {
			var xs, fetches []graph.Value
			for x, at := range l.Feeds {
				if at.DType().Float() {
					xs = append(xs, x)
				}
			}
			for _, d := range autodiff.Gradients(l.Y, xs, autodiff.Options{Dense: true}) {
				fetches = append(fetches, d.Dense)
			}
			g, err := l.B.Build()
			if err != nil {
				t.Fatal(err)
			}
			grads, err := graphtest.Evaluate(g, l.Feeds, fetches)
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range xs {
				if err := autodiff.CompareNumeric(g, l.Y, x, grads[i], autodiff.CheckOptions{Evaluate: graphtest.Evaluate, Feeds: l.Feeds, Indices: 5}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestCheckOptions: a step of 1 either way makes a slope of e^x that is 1.175 times too steep: within 0.2 of the values, and not within 0.1.
func TestCheckOptions(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F64, graph.N(2))
	y := graph.Exp(x)
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	at, err := tensor.Of([]float64{3, 4}, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		step, relative float64
		agrees         bool
	}{{0, 0, true}, {1, 0, false}, {1, 0.1, false}, {1, 0.2, true}} {
		err := autodiff.CheckNumeric(g, y, autodiff.CheckOptions{
			Evaluate: graphtest.Evaluate, Feeds: map[graph.Value]*tensor.Tensor{x: at}, Step: c.step, Relative: c.relative,
		})
		if (err == nil) != c.agrees || err != nil && !strings.Contains(err.Error(), "autodiff: Exp (Exp): operand_0") {
			t.Errorf("step %v, relative %v: %v", c.step, c.relative, err)
		}
	}
}

func TestNoGradientNamesOperationAndLine(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F64, graph.N(1), graph.N(2), graph.N(2), graph.N(1))
	y := graph.Sum(graph.Square(graph.MaxPool(x, 2, 2, graph.Window{})), nil, false)
	first := autodiff.Gradients(y, []graph.Value{x}, autodiff.Options{})[0].Dense
	autodiff.Gradients(graph.Sum(first, nil, false), []graph.Value{x}, autodiff.Options{})
	_, err := b.Build()
	if err == nil || !strings.Contains(err.Error(), "autodiff: MaxPoolGrad (gradient/MaxPoolGrad) has no gradient: it is a gradient for which no second derivative is defined at ") {
		t.Fatalf("Build: %v", err)
	}
}

func TestWrongRequests(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F64, graph.N(2))
	other := graph.NewBuilder().Input("z", graph.F64)
	autodiff.Gradients(graph.Square(x), []graph.Value{other}, autodiff.Options{})
	_, err := b.Build()
	for _, want := range []string{"want a scalar, or a Seed", "x 0 (z) is not a value of y's graph"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Build: %v, want %q", err, want)
		}
	}
}

func TestGradientNodesStandBesideForwardNodes(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F64)
	var h graph.Value
	b.With(graph.Scope{Name: "encoder", Device: "/job:worker/cpu:0"}, func() { h = graph.Tanh(x) })
	var y graph.Value
	b.With(graph.Scope{Device: "/job:ps"}, func() { y = graph.Square(h) })
	autodiff.Gradients(y, []graph.Value{x}, autodiff.Options{})
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	for n := range g.Nodes() {
		if n.Op.Name == "TanhGrad" && (n.Name != "encoder/gradient/TanhGrad" || n.Device != "/job:worker/cpu:0" || n.Colocate != h.Node()) {
			t.Errorf("gradient of encoder/Tanh: %s on %q with node %d", n.Name, n.Device, n.Colocate)
		}
	}
}
