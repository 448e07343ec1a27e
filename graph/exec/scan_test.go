package exec

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// TestCancelledInScan: the caller's cause comes out of a body as well.
func TestCancelledInScan(t *testing.T) {
	b := graph.NewBuilder()
	x, xs := b.Input("x", graph.F64), b.Input("xs", graph.F64, graph.Axis("time"))
	before := graph.Exp(x)
	last, _ := graph.Scan(fetches{graph.Neg(before)}, fetches{xs}, func(c, x []graph.Value) (next, ys []graph.Value) {
		return fetches{graph.Tanh(graph.Add(c[0], graph.Exp(x[0])))}, nil
	})
	p := compile(t, build(t, b), fetches{x, xs}, append(fetches{before}, last...), nil, Options{})
	stopped, cancel := context.WithCancel(ctx)
	defer cancel()
	feeds, dst := []*tensor.Tensor{tensor.Scalar(1.0), tensor.New(graph.F64, 1<<22)}, []*tensor.Tensor{tensor.New(graph.F64), tensor.New(graph.F64)}
	if err := p.RunInto(stopped, NewState(StateOptions{}), feeds, dst, func(int) { go cancel() }); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// TestDropoutInTwoScans: each Scan's body draws its own numbers.
func TestDropoutInTwoScans(t *testing.T) {
	b := graph.NewBuilder()
	xs := b.Input("xs", graph.F32, graph.Of(4, 64)...)
	var ys fetches
	for range 2 {
		_, y := graph.Scan(nil, fetches{xs}, func(_, x []graph.Value) (next, ys []graph.Value) { return nil, fetches{graph.Dropout(x[0], 0.5)} })
		ys = append(ys, y[0])
	}
	p := compile(t, build(t, b), fetches{xs}, ys, nil, Options{})
	in := tensor.New(graph.F32, 4, 64)
	for i := range tensor.Flat[float32](in) {
		tensor.Flat[float32](in)[i] = 1
	}
	out, err := p.Run(ctx, NewState(StateOptions{}), in)
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for i, v := range tensor.Flat[float32](out[0]) {
		if v == tensor.Flat[float32](out[1])[i] {
			same++
		}
	}
	if same < 80 || same > 176 { // 128 of 256, and six standard deviations
		t.Errorf("%d of 256 are alike", same)
	}
}

// TestTooManyAxesToStack: what a body makes of as many axes as a value may have cannot leave its Scan, however it is asked for.
func TestTooManyAxesToStack(t *testing.T) {
	b := graph.NewBuilder()
	xs := b.Input("xs", graph.F32, graph.Of(3, 1)...)
	var deep graph.Value
	_, ys := graph.Scan(nil, fetches{xs}, func(_, x []graph.Value) (next, ys []graph.Value) {
		deep = graph.Exp(graph.Reshape(x[0], graph.Of(slices.Repeat([]int{1}, 32)...)...))
		return nil, fetches{graph.Reshape(deep)}
	})
	g := build(t, b)
	saved := g.Value(ys[0].Node(), ys[0].Def().Saved(deep))
	if _, err := Compile(g, fetches{xs}, fetches{saved}, nil, Options{}); err == nil || !strings.Contains(err.Error(), "too many axes to be stacked") {
		t.Error(err)
	}
}

// TestLazyDropoutInTwoScans: Scans evaluated one by one draw what they draw when they are evaluated together.
func TestLazyDropoutInTwoScans(t *testing.T) {
	in := tensor.New(graph.F32, 4, 64)
	for i := range tensor.Flat[float32](in) {
		tensor.Flat[float32](in)[i] = 1
	}
	trace := func() (*Lazy, fetches) {
		z := NewLazy(NewState(StateOptions{}), Options{})
		xs := z.Input(in)
		var ys fetches
		for range 2 {
			_, y := graph.Scan(nil, fetches{xs}, func(_, x []graph.Value) (next, ys []graph.Value) { return nil, fetches{graph.Dropout(x[0], 0.5)} })
			ys = append(ys, y[0])
		}
		return z, ys
	}
	z, ys := trace()
	want, err := z.Eval(ctx, ys...)
	if err != nil {
		t.Fatal(err)
	}
	z, ys = trace()
	for i, y := range ys {
		got, err := z.Eval(ctx, y)
		if err != nil {
			t.Fatal(err)
		}
		if string(got[0].Bytes()) != string(want[i].Bytes()) {
			t.Errorf("Scan %d drew other numbers alone than beside the other", i)
		}
	}
}
