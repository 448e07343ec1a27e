package graph_test

import (
	"strings"
	"testing"

	. "github.com/trivium-ml/trivium/graph"
)

func TestErrorsNameLineAndShapes(t *testing.T) {
	b := NewBuilder()
	x := b.Input("x", F32, Axis("batch"), N(3))
	w := b.Variable("w", F32, []int{4, 2}, Zeros())
	y := MatMul(x, w.Read())
	ReLU(y)
	_, err := b.Build()
	want := "graph: MatMul(x f32[batch,3], Read f32[4,2]): inner axes differ: 3 and 4 at builder_test.go:14"
	if err == nil || err.Error() != want {
		t.Fatalf("Build: %v\nwant %s", err, want)
	}
}

func TestScanCapturesAndSaves(t *testing.T) {
	b := NewBuilder()
	x := b.Input("x", F32, Axis("time"), N(2))
	w := b.Variable("w", F32, []int{2}, Zeros())
	last, ys := Scan([]Value{b.Const(Fill(F32, 0, 2))}, []Value{x}, func(c, x []Value) (next, y []Value) {
		s := Add(c[0], Mul(x[0], w.Read()))
		return []Value{s}, []Value{s}
	})
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if got := last[0].Type().String() + ys[0].Type().String(); got != "f32[2]f32[time,2]" {
		t.Errorf("types %s", got)
	}
	n := g.Node(last[0].Node())
	if len(n.Inputs) != 3 || len(n.Types) != 2+n.Body.Len() {
		t.Errorf("%d inputs, %d outputs for a body of %d", len(n.Inputs), len(n.Types), n.Body.Len())
	}
}

func TestBodyValuesStayInside(t *testing.T) {
	b := NewBuilder()
	x := b.Input("x", F32, N(3))
	var leak Value
	Scan(nil, []Value{x}, func(_, x []Value) (next, y []Value) {
		leak = Neg(x[0])
		return nil, []Value{leak}
	})
	Neg(leak)
	if _, err := b.Build(); err == nil || !strings.Contains(err.Error(), "belongs to the body of Scan") {
		t.Fatalf("Build: %v", err)
	}
}

// A body's operation whose operands are captured there for the first time comes after the captures, and is itself what is returned.
func TestBodyCapturesBeforeItsOperation(t *testing.T) {
	b := NewBuilder()
	xs := b.Input("xs", F32, N(5), N(2), N(3))
	h := b.Input("h", F32, N(2), N(4))
	wx, wh, bias := b.Input("wx", F32, N(3), N(16)), b.Input("wh", F32, N(4), N(16)), b.Input("b", F32, N(16))
	last, _ := Scan([]Value{h, h}, []Value{xs}, func(carry, x []Value) (next, y []Value) {
		nextH, nextC := LSTMCell(x[0], carry[0], carry[1], wx, wh, bias)
		return []Value{nextH, nextC}, nil
	})
	if err := b.Err(); err != nil {
		t.Fatal(err)
	}
	for i, v := range last {
		if want := Of(2, 4); !v.Shape().Equal(want) {
			t.Errorf("last carry %d has shape %v, want %v", i, v.Shape(), want)
		}
	}
}

// What is repeated in another graph keeps its name, with a number where that is taken; a mistake is at the line of the original.
func TestRepeat(t *testing.T) {
	b := NewBuilder()
	x := b.Input("x", F32, Axis("batch"), N(3))
	var y Value
	b.With(Scope{Name: "layer"}, func() { y = MatMul(x, b.Const(Fill(F32, 1, 3, 2))) })
	original := y.Def()
	c := NewBuilder()
	u, w := c.Input("u", F32, Axis("batch"), N(3)), c.Const(Fill(F32, 2, 3, 2))
	for _, want := range []string{"layer/MatMul", "layer/MatMul_1"} {
		if z := c.Repeat(original, u, w); z.String() != want || !z.Type().Equal(y.Type()) {
			t.Errorf("%v %v, want %s %v", z, z.Type(), want, y.Type())
		}
	}
	c.Repeat(original, u, u)
	line := original.Where()
	if err := c.Err(); err == nil || line == "" || !strings.HasSuffix(err.Error(), " at "+line) {
		t.Errorf("%v, want it at %q", err, line)
	}
}
