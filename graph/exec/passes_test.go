package exec

import (
	"slices"
	"testing"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/autodiff"
	"github.com/trivium-ml/trivium/tensor"
)

// TestPassesDoNotReadPastAWrite runs steps that use a Variable before they write it, and its results afterwards: no pass may make of that a
// use of the Variable itself after the write, which is refused where the Variable is bound.
func TestPassesDoNotReadPastAWrite(t *testing.T) {
	for name, use := range map[string]func(b *graph.Builder, v graph.Value, write func() graph.Value) fetches{
		"chain": func(b *graph.Builder, v graph.Value, write func() graph.Value) fetches {
			old := graph.Neg(v)
			return fetches{graph.Tanh(graph.Add(old, write()))}
		},
		"bias": func(b *graph.Builder, v graph.Value, write func() graph.Value) fetches {
			old := graph.MatMul(v, v)
			write()
			return fetches{graph.Add(old, graph.ConstOf(b, []float64{1, 2}, 2))}
		},
		"activation": func(b *graph.Builder, v graph.Value, write func() graph.Value) fetches {
			old := graph.MatMul(v, v)
			write()
			return fetches{graph.ReLU(old)}
		},
		"transposed": func(b *graph.Builder, v graph.Value, write func() graph.Value) fetches {
			old := graph.Transpose(v, 1, 0)
			return fetches{graph.MatMul(old, write())}
		},
		"repeated": func(b *graph.Builder, v graph.Value, write func() graph.Value) fetches {
			old := graph.BroadcastTo(v, graph.Of(3, 2, 2)...)
			write()
			return fetches{graph.Mul(old, b.Const(graph.Fill(graph.F64, 2, 3, 2, 2)))}
		},
		"times one": func(b *graph.Builder, v graph.Value, write func() graph.Value) fetches {
			old := graph.Mul(v, b.Scalar(graph.F64, 1))
			return fetches{graph.Sub(old, write())}
		},
		"fetched": func(b *graph.Builder, v graph.Value, write func() graph.Value) fetches {
			list := graph.Reshape(v, graph.N(4))
			write()
			return fetches{v, list}
		},
		"loss": func(b *graph.Builder, v graph.Value, write func() graph.Value) fetches {
			x := graph.Tanh(v)
			loss := graph.SoftmaxCrossEntropy(x, graph.ConstOf(b, []int32{1, 0}, 2))
			before, old := graph.Neg(loss), graph.Neg(v)
			dy := graph.Sum(write(), []int{0}, false)
			dx := autodiff.Gradients(loss, fetches{x}, autodiff.Options{Dense: true, Seed: dy})[0].Dense
			return fetches{before, old, dx}
		},
		"loss of the Variable": func(b *graph.Builder, v graph.Value, write func() graph.Value) fetches {
			loss := graph.SoftmaxCrossEntropy(v, graph.ConstOf(b, []int32{1, 0}, 2))
			dv := grads(sum(loss), v)[0]
			write()
			return fetches{loss, dv}
		},
	} {
		b := graph.NewBuilder()
		v := b.Variable("v", graph.F64, []int{2, 2}, graph.Uniform(-1, 1))
		var targets fetches
		out := use(b, v.Read(), func() graph.Value {
			targets = append(targets, v.Assign(b.Const(graph.Fill(graph.F64, 3, 2, 2))))
			return v.Read()
		})
		g := build(t, b)
		run := func(bind bool, o Options) []*tensor.Tensor {
			s := NewState(StateOptions{})
			if err := s.Init(g); err != nil {
				t.Fatal(err)
			}
			if bind {
				now, _, err := s.Get(v)
				if err == nil {
					err = s.Bind(v, now)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			got, err := compile(t, g, nil, out, targets, o).Run(ctx, s)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return got
		}
		want := run(false, Options{Serial: true, Plain: true})
		for i, o := range variants(t) {
			for k, got := range run(true, o) {
				if string(got.Bytes()) != string(want[k].Bytes()) {
					t.Errorf("%s: variant %d, result %d is %v, want %v", name, i, k, got, want[k])
				}
			}
		}
	}
}

// TestPassesKeepWhatComesBefore fetches results that need a write by a control dependency of what they are made of alone: a pass that reads
// past a node must not lose what comes before it.
func TestPassesKeepWhatComesBefore(t *testing.T) {
	for name, use := range map[string]func(b *graph.Builder, x graph.Value, after func(f func() graph.Value) graph.Value) graph.Value{
		"shaped": func(_ *graph.Builder, x graph.Value, after func(func() graph.Value) graph.Value) graph.Value {
			return graph.Reshape(after(func() graph.Value { return graph.Reshape(x, graph.N(4)) }), graph.N(1), graph.N(4))
		},
		"transposed": func(_ *graph.Builder, x graph.Value, after func(func() graph.Value) graph.Value) graph.Value {
			return graph.Transpose(after(func() graph.Value { return graph.Transpose(x, 1, 0) }), 1, 0)
		},
		"product": func(_ *graph.Builder, x graph.Value, after func(func() graph.Value) graph.Value) graph.Value {
			return graph.MatMul(after(func() graph.Value { return graph.Transpose(x, 1, 0) }), x)
		},
		"negated": func(_ *graph.Builder, x graph.Value, after func(func() graph.Value) graph.Value) graph.Value {
			return graph.Neg(after(func() graph.Value { return graph.Neg(x) }))
		},
		"repeated": func(_ *graph.Builder, x graph.Value, after func(func() graph.Value) graph.Value) graph.Value {
			row := graph.Sum(x, []int{0}, false)
			return graph.Add(x, after(func() graph.Value { return graph.BroadcastTo(row, graph.Of(2, 2)...) }))
		},
		"times one": func(b *graph.Builder, x graph.Value, after func(func() graph.Value) graph.Value) graph.Value {
			return graph.Mul(x, after(func() graph.Value { return b.Scalar(graph.F64, 1) }))
		},
		"over ones": func(b *graph.Builder, x graph.Value, after func(func() graph.Value) graph.Value) graph.Value {
			one := b.Scalar(graph.F64, 1)
			return graph.Div(x, after(func() graph.Value { return graph.BroadcastTo(one, graph.Of(2, 2)...) }))
		},
		"folded": func(b *graph.Builder, x graph.Value, after func(func() graph.Value) graph.Value) graph.Value {
			return graph.Add(x, graph.Neg(after(func() graph.Value { return b.Scalar(graph.F64, 2) })))
		},
	} {
		b := graph.NewBuilder()
		x := b.Input("x", graph.F64, graph.Of(2, 2)...)
		v := b.Variable("v", graph.F64, nil, graph.Constant(1))
		write := v.AssignAdd(b.Scalar(graph.F64, 1))
		out := use(b, x, func(f func() graph.Value) (y graph.Value) {
			b.With(graph.Scope{Control: fetches{write}}, func() { y = f() })
			return y
		})
		g := build(t, b)
		for i, o := range variants(t) {
			s := NewState(StateOptions{})
			if err := s.Init(g); err != nil {
				t.Fatal(err)
			}
			if _, err := compile(t, g, fetches{x}, fetches{out}, nil, o).Run(ctx, s, f64s(l{1, 2, 3, 4}, 2, 2)); err != nil {
				t.Fatal(err)
			}
			if now, _, err := s.Get(v); err != nil || tensor.Flat[float64](now)[0] != 2 {
				t.Errorf("%s: variant %d: the Variable is %v, %v; want 2", name, i, now, err)
			}
		}
	}
}

// TestMergesBehindEveryFeed counts what is left of equal nodes: those that read the second feed are as equal as those that read the first.
func TestMergesBehindEveryFeed(t *testing.T) {
	b := graph.NewBuilder()
	x, y := b.Input("x", graph.F64, graph.N(2)), b.Input("y", graph.F64, graph.N(2))
	out := fetches{graph.Exp(x), graph.Exp(y), graph.Softmax(graph.Exp(y)), graph.Softmax(graph.Exp(x))}
	p := compile(t, build(t, b), fetches{x, y}, out, nil, Options{})
	n := 0
	for _, m := range p.nodes {
		if m.op == "Exp" {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d nodes compute the exponentials of two values", n)
	}
}

// TestAScanIsNotFolded fetches what a Scan of a constant saved, its only result: no kernel would compute it when the program is made.
func TestAScanIsNotFolded(t *testing.T) {
	b := graph.NewBuilder()
	s := graph.OpenScan(nil, fetches{graph.ConstOf(b, []float64{1, 2, 3}, 3)})
	s.Close(nil, nil, false)
	saved := b.Value(1, 0)
	got, err := compile(t, build(t, b), nil, fetches{saved}, nil, Options{}).Run(ctx, nil)
	if err != nil || !slices.Equal(tensor.Flat[float64](got[0]), []float64{1, 2, 3}) {
		t.Errorf("%v, %v; want 1 2 3", got, err)
	}
}
