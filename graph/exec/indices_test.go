package exec

import (
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/graphtest"
	"github.com/trivium-ml/trivium/tensor"
)

// TestScatterAddOfItself: rows that are added to are read as values too, as in the gradient of x + x[i].
func TestScatterAddOfItself(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F64, graph.N(2), graph.N(1))
	square := graph.Square(x)
	loss := sum(graph.Add(square, graph.Gather(square, graph.ConstOf(b, []int64{1, 0}, 2))))
	want(t, b, map[graph.Value]*tensor.Tensor{x: graphtest.Of([]float64{3, 5}, 2, 1).Tensor(graph.F64)}, grads(loss, x)[0], []float64{12, 20})
}

// TestFedOffsets: offsets of a MaxPool that are fed are checked like indices.
func TestFedOffsets(t *testing.T) {
	b := graph.NewBuilder()
	dy, at := b.Input("dy", graph.F64, graph.Of(1, 1, 1, 2)...), b.Input("at", graph.I32, graph.Of(1, 1, 1, 2)...)
	dx := graph.MaxPoolGrad(dy, at, graph.Of(1, 2, 2, 2), []int{2, 2}, []int{2, 2}, []int{0, 0, 0, 0})
	g := build(t, b)
	offsets, err := tensor.Of([]int32{6, 8}, 1, 1, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range variants(t) {
		_, err := compile(t, g, fetches{dy, at}, fetches{dx}, nil, o).Run(ctx, nil, f64s(l{1, 2}, 1, 1, 1, 2), offsets)
		if err == nil || !strings.Contains(err.Error(), "offset 1 is 8, want 0 to 7") {
			t.Errorf("variant %d: %v, want an error about the offset", i, err)
		}
	}
}

// TestWideIndices: an index of 64 bits that no table has is named as it was fed.
func TestWideIndices(t *testing.T) {
	const wide = 5_000_000_000
	axis := graph.Axis("n")
	for op, f := range map[string]func(at graph.Value) graph.Value{
		"Gather": func(at graph.Value) graph.Value {
			return graph.Gather(at.Builder().Const(graph.Fill(graph.F32, 1, 3)), at)
		},
		"OneHot": func(at graph.Value) graph.Value { return graph.OneHot(at, 3, graph.F32) },
		"SoftmaxCrossEntropy": func(at graph.Value) graph.Value {
			return graph.SoftmaxCrossEntropy(graph.BroadcastTo(at.Builder().Scalar(graph.F32, 1), axis, graph.N(3)), at)
		},
		"ScatterAdd": func(at graph.Value) graph.Value {
			return graph.ScatterAdd(at.Builder().Const(graph.Fill(graph.F32, 1, 3)), at, graph.BroadcastTo(at.Builder().Scalar(graph.F32, 1), axis))
		},
		"SparseMatMul": func(at graph.Value) graph.Value {
			values := graph.BroadcastTo(at.Builder().Scalar(graph.F32, 1), axis)
			return graph.SparseMatMul(graph.ConstOf(at.Builder(), []int64{0, 2}, 2), at, values, at.Builder().Const(graph.Fill(graph.F32, 1, 3, 1)))
		},
		"Variable.ApplyRows": func(at graph.Value) graph.Value {
			v := at.Builder().Variable("v", graph.F64, []int{3}, graph.Zeros())
			return v.ApplyRows("momentum", at, graph.BroadcastTo(at.Builder().Scalar(graph.F64, 1), axis), nil, at.Builder().Scalar(graph.F64, 1))
		},
		"Accumulator.ApplyRows": func(at graph.Value) graph.Value {
			a := at.Builder().Accumulator("a", graph.F64, 3)
			return a.ApplyRows(graph.ConstOf(at.Builder(), []int64{0}), at, graph.BroadcastTo(at.Builder().Scalar(graph.F64, 1), axis))
		},
	} {
		b := graph.NewBuilder()
		at := b.Input("at", graph.I64, axis)
		out := f(at)
		g := build(t, b)
		for i, o := range variants(t) {
			o.Rules = map[string]Rule{"momentum": momentum}
			s := NewState(StateOptions{})
			for _, v := range g.Variables() {
				if err := s.Set(v, f64s(l{0, 0, 0}, 3)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := compile(t, g, fetches{at}, fetches{out}, nil, o).Run(ctx, s, i64s(0, wide)); err == nil || !strings.Contains(err.Error(), "1 is 5000000000, want 0 to 2") {
				t.Errorf("%s, variant %d: %v", op, i, err)
			}
		}
	}
}
