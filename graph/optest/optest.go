// Package optest has graphs that together use every computing operation and every gradient rule, with random feeds: tests of rules, of
// kernels and of executors run them all.
//
// The type is a Sample. The loop that a test writes:
//
//	for name, build := range optest.Graphs() {
//		s := optest.Build(graph.F32, build)
//		g, err := s.B.Build()
//		// evaluate s.Y from s.Feeds in two ways, and compare
//	}
package optest

import (
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/autodiff"
	"github.com/trivium-ml/trivium/tensor"
)

// Sample is a graph being built, with its feeds. Floating-point ones are of one type, lie apart from kinks, and are the same each time.
type Sample struct {
	B     *graph.Builder
	DType graph.DType
	Feeds map[graph.Value]*tensor.Tensor
	Y     graph.Value // a scalar that depends on everything
	Third bool        // Y has a gradient: no operation on its way lacks one
	rng   *rand.Rand
}

// Build makes a sample with feeds of type dt.
func Build(dt graph.DType, f func(l *Sample) graph.Value) *Sample {
	l := &Sample{B: graph.NewBuilder(), rng: rand.New(rand.NewPCG(3, 4)), Feeds: map[graph.Value]*tensor.Tensor{}, DType: dt, Third: true}
	l.Y = f(l)
	return l
}

// Graphs walks the samples by name.
func Graphs() iter.Seq2[string, func(l *Sample) graph.Value] {
	return func(yield func(string, func(l *Sample) graph.Value) bool) {
		for _, name := range slices.Sorted(maps.Keys(numeric)) {
			if !yield(name, numeric[name]) {
				return
			}
		}
	}
}

// in is an input whose elements lie in [lo, lo+1), at least 0.05 from 0 and apart from one another.
func (l *Sample) in(lo float64, sizes ...int) graph.Value {
	return l.dyn(lo, graph.Of(sizes...), sizes...)
}

func (l *Sample) dyn(lo float64, s graph.Shape, sizes ...int) graph.Value {
	x := l.B.Input(fmt.Sprintf("x_%d", len(l.Feeds)), l.DType, s...)
	t := tensor.New(l.DType, sizes...)
	for i, k := range l.rng.Perm(t.Len()) {
		v := lo + (float64(k)+0.2+0.6*l.rng.Float64())/float64(t.Len())
		if v > -0.05 && v < 0.05 {
			v += 0.15
		}
		if l.DType == graph.F32 {
			tensor.Flat[float32](t)[i] = float32(v)
		} else {
			tensor.Flat[float64](t)[i] = v
		}
	}
	l.Feeds[x] = t
	return x
}

func (l *Sample) ints(data []int64, s ...graph.Dim) graph.Value {
	x := l.B.Input(fmt.Sprintf("i_%d", len(l.Feeds)), graph.I64, s...)
	t := tensor.New(graph.I64, len(data))
	copy(tensor.Flat[int64](t), data)
	l.Feeds[x] = t
	return x
}

func total(vs ...graph.Value) graph.Value {
	y := graph.Sum(graph.Square(vs[0]), nil, false)
	for _, v := range vs[1:] {
		y = graph.Add(y, graph.Sum(graph.Square(v), nil, false))
	}
	return y
}

// twice is y's gradients, squared and added: to check rules of rules.
func twice(y graph.Value, xs ...graph.Value) graph.Value {
	var ds []graph.Value
	for _, g := range autodiff.Gradients(y, xs, autodiff.Options{Dense: true}) {
		ds = append(ds, g.Dense)
	}
	return total(ds...)
}

// numeric is graphs that together use every rule. Each gives the value to check.
var numeric = map[string]func(l *Sample) graph.Value{
	"arithmetic": func(l *Sample) graph.Value {
		a, b, c := l.in(0.5, 2, 3), l.in(1, 3), l.in(0.7, 2, 1)
		y := graph.Div(graph.Sub(graph.Mul(a, b), graph.Neg(c)), graph.Add(a, c))
		return twice(total(y, graph.Div(c, b)), a, b, c)
	},
	"functions": func(l *Sample) graph.Value {
		a := l.in(0.3, 7)
		y := graph.Mul(graph.Exp(a), graph.Add(graph.Log(a), graph.Sqrt(a)))
		return twice(total(y, graph.Tanh(a), graph.Sigmoid(a), graph.Square(a), graph.Softmax(a)), a)
	},
	"kinks": func(l *Sample) graph.Value {
		a, b := l.in(-0.5, 9), l.in(-0.52, 9)
		return twice(total(graph.ReLU(a), graph.Max(a, b), graph.Where(graph.Less(a, b), a, graph.Square(b))), a, b)
	},
	"cast": func(l *Sample) graph.Value {
		a := l.in(0, 4)
		return graph.Sum(graph.Cast(graph.Square(graph.Cast(a, graph.F64)), l.DType), nil, false)
	},
	"products": func(l *Sample) graph.Value {
		l.Third = false
		x := l.dyn(-0.5, graph.Shape{graph.Axis("batch"), graph.N(3)}, 2, 3)
		w, v, u, bias := l.in(-0.5, 3, 4), l.in(-0.5, 4, 3), l.in(-0.5, 3, 2), l.in(-0.5, 4)
		y := graph.Dense(x, w, bias, graph.WithTanh)
		y = graph.MatMulT(y, graph.Dense(v, u, graph.Value{}, graph.WithSigma), false, false)
		nt, tn, tt := graph.MatMulT(y, u, false, true), graph.MatMulT(w, u, true, false), graph.MatMulT(u, v, true, true)
		return twice(total(nt, tn, tt, graph.Dense(x, w, bias, graph.WithReLU), graph.Dense(x, w, bias, graph.Linear)), x, w, v, u, bias)
	},
	"transpose": func(l *Sample) graph.Value {
		a := l.in(-0.5, 2, 3, 4)
		return twice(total(graph.Mul(graph.Transpose(a, 2, 0, 1), l.in(0, 4, 2, 3))), a)
	},
	"sparse": func(l *Sample) graph.Value {
		indptr := l.ints([]int64{0, 2, 2, 5}, graph.Axis("batch").Plus(1))
		indices := l.ints([]int64{0, 3, 1, 3, 3}, graph.Axis("entries"))
		values := l.dyn(-0.5, graph.Shape{graph.Axis("entries")}, 5)
		return total(graph.SparseMatMul(indptr, indices, values, l.in(-0.5, 4, 2)))
	},
	"reductions": func(l *Sample) graph.Value {
		a := l.dyn(-0.5, graph.Shape{graph.Axis("batch"), graph.N(3), graph.N(2)}, 2, 3, 2)
		y := total(graph.Sum(a, []int{1}, true), graph.Mean(a, nil, false), graph.Mean(a, []int{-1}, false), graph.ReduceMax(a, []int{0, 2}, false))
		return twice(y, a)
	},
	"shapes": func(l *Sample) graph.Value {
		n := graph.Axis("batch")
		a, f := l.dyn(-0.5, graph.Shape{n, graph.N(3)}, 4, 3), l.in(-0.5, 2, 3)
		c := graph.Concat(0, f, a, f) // dynamic between fixed ones
		tail := graph.Slice(c, graph.Range{Start: -3}, graph.Range{Start: 0, Stop: 3, Step: 2})
		y := total(c, tail, graph.Slice(a, graph.Range{Start: 1}), graph.Reshape(graph.BroadcastTo(a, graph.N(2), n, graph.N(3)), graph.N(6), n))
		return twice(y, a, f)
	},
	"rows": func(l *Sample) graph.Value {
		table, more := l.in(-0.5, 4, 2), l.in(-0.5, 3, 2)
		idx := l.ints([]int64{3, 0, 3}, graph.N(3))
		return twice(total(graph.ScatterAdd(graph.Square(table), idx, graph.Mul(more, graph.Gather(table, idx)))), table, more)
	},
	"losses": func(l *Sample) graph.Value {
		l.Third = false
		x, z := l.dyn(-0.5, graph.Shape{graph.Axis("batch"), graph.N(3)}, 2, 3), l.in(-1, 2, 2)
		y := total(graph.SoftmaxCrossEntropy(x, l.ints([]int64{2, 0}, graph.Axis("batch"))), graph.SigmoidCrossEntropy(z, graph.Sigmoid(graph.Neg(z))))
		return twice(y, x, z)
	},
	"images": func(l *Sample) graph.Value {
		l.Third = false
		n := graph.Axis("batch")
		x, f, g := l.dyn(-0.5, graph.Shape{n, graph.N(5), graph.N(4), graph.N(2)}, 2, 5, 4, 2), l.in(-0.5, 3, 2, 2, 2), l.in(-0.5, 2, 2, 2, 1)
		h := graph.Conv2D(x, f, l.in(0, 2), graph.WithTanh, graph.Window{Same: true})
		h = graph.Conv2D(h, g, graph.Value{}, graph.Linear, graph.Window{Strides: [2]int{2, 1}, Pads: [4]int{1, 0, 0, 1}})
		return twice(total(h), x, f, g)
	},
	"pool": func(l *Sample) graph.Value {
		x := l.in(-0.5, 2, 4, 5, 2)
		return total(graph.MaxPool(x, 2, 2, graph.Window{}), graph.MaxPool(x, 3, 2, graph.Window{Strides: [2]int{1, 2}, Pads: [4]int{1, 1, 0, 1}}))
	},
	"dropout": func(l *Sample) graph.Value { return total(graph.Dropout(l.in(-0.5, 20), 0.4)) },
	"lstm": func(l *Sample) graph.Value {
		h, c := graph.LSTMCell(l.in(-0.5, 2, 3), l.in(-0.5, 2, 2), l.in(-0.5, 2, 2), l.in(-0.5, 3, 8), l.in(-0.5, 2, 8), l.in(-0.5, 8))
		return total(h, c)
	},
	"scan": func(l *Sample) graph.Value {
		x, start := l.dyn(-0.5, graph.Shape{graph.Axis("time"), graph.N(2)}, 3, 2), l.in(-0.5, 2)
		w, table := l.in(-0.5, 2), l.in(-0.5, 3, 2)
		last, ys := graph.Scan([]graph.Value{start, graph.ConstOf(l.B, []int64{2}, 1)}, []graph.Value{x}, func(c, x []graph.Value) (next, y []graph.Value) {
			s := graph.Tanh(graph.Add(graph.Mul(c[0], w), graph.Mul(x[0], l.B.Scalar(l.DType, 3))))
			row := graph.Reshape(graph.Gather(table, c[1]), graph.N(2))
			return []graph.Value{graph.Add(s, row), c[1]}, []graph.Value{graph.Square(s), x[0]}
		})
		return twice(total(last[0], ys[0], ys[1]), x, start, w, table)
	},
	"nested scan": func(l *Sample) graph.Value {
		x, w := l.in(-0.5, 2, 3), l.in(-0.5, 1)
		last, _ := graph.Scan([]graph.Value{l.in(0, 1)}, []graph.Value{x}, func(c, row []graph.Value) (next, y []graph.Value) {
			scale := graph.Mul(c[0], w)
			in, ys := graph.Scan(c, row, func(c, x []graph.Value) (next, y []graph.Value) {
				s := graph.Mul(graph.Add(c[0], x[0]), graph.Sigmoid(scale))
				return []graph.Value{s}, []graph.Value{graph.Exp(s)}
			})
			return []graph.Value{graph.Add(in[0], graph.Sum(ys[0], []int{0}, false))}, nil
		})
		return total(last[0])
	},
}
