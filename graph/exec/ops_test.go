package exec

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/graphtest"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A lab builds a graph with random feeds.
type lab struct {
	t     testing.TB
	b     *graph.Builder
	rng   *rand.Rand
	dt    graph.DType
	scale int // sizes are multiplied by it, so that kernels are cut into tiles
	feeds []graph.Value
	data  []*tensor.Tensor
	state *State
	m     *graphtest.Machine
}

func newLab(t testing.TB, dt graph.DType, seed uint64, scale int) *lab {
	return &lab{
		t: t, b: graph.NewBuilder(), rng: rand.New(rand.NewPCG(seed, 7)), dt: dt, scale: scale,
		state: NewState(StateOptions{Seed: seed}), m: graphtest.NewMachine(),
	}
}

func (l *lab) input(dt graph.DType, s graph.Shape, sizes []int, draw func(i int) float64) graph.Value {
	x := l.b.Input(fmt.Sprintf("in%d", len(l.feeds)), dt, s...)
	a := graphtest.Zeros(sizes...)
	for i := range a.Data {
		a.Data[i] = draw(i)
	}
	l.feeds = append(l.feeds, x)
	l.data = append(l.data, a.Tensor(dt))
	return x
}

// in is an input of fixed sizes with elements in [lo, hi).
func (l *lab) in(lo, hi float64, sizes ...int) graph.Value {
	return l.input(l.dt, graph.Of(sizes...), sizes, func(int) float64 { return lo + (hi-lo)*l.rng.Float64() })
}

// dyn has a named axis in front.
func (l *lab) dyn(axis string, lo, hi float64, sizes ...int) graph.Value {
	s := graph.Of(sizes...)
	s[0] = graph.Axis(axis)
	return l.input(l.dt, s, sizes, func(int) float64 { return lo + (hi-lo)*l.rng.Float64() })
}

func (l *lab) ints(dt graph.DType, below int, s graph.Shape, sizes ...int) graph.Value {
	if s == nil {
		s = graph.Of(sizes...)
	}
	return l.input(dt, s, sizes, func(int) float64 { return float64(l.rng.IntN(below)) })
}

// n is a size, larger in the large variants.
func (l *lab) n(k int) int { return k * l.scale }

// csr is a sparse batch: row pointers, columns and values.
func (l *lab) csr(rows, cols int, dt graph.DType) (ptr, idx, values graph.Value) {
	at := []float64{0}
	for range rows {
		at = append(at, at[len(at)-1]+float64(l.rng.IntN(4)))
	}
	nnz := int(at[rows])
	ptr = l.input(dt, graph.Shape{graph.Axis("rows").Plus(1)}, []int{rows + 1}, func(i int) float64 { return at[i] })
	idx = l.ints(dt, cols, graph.Shape{graph.Axis("nnz")}, nnz)
	return ptr, idx, l.dyn("nnz", -1, 1, nnz)
}

type fetches = []graph.Value

// opCases is a graph for each operation: what comes out is compared with the reference interpreter.
var opCases = map[string]func(l *lab) fetches{
	"Add":  binaryCase(graph.Add),
	"Sub":  binaryCase(graph.Sub),
	"Mul":  binaryCase(graph.Mul),
	"Div":  binaryCase(graph.Div),
	"Max":  binaryCase(graph.Max),
	"Less": binaryCase(graph.Less),
	"Equal": func(l *lab) fetches {
		a, b := l.ints(graph.I32, 3, nil, l.n(4), 5), l.ints(graph.I32, 3, nil, 5)
		c, d := graph.Cast(a, l.dt), graph.Cast(b, l.dt)
		u := l.ints(graph.U8, 2, nil, 6)
		k := l.ints(graph.I64, 2, nil, 6)
		t := graph.Equal(u, l.ints(graph.U8, 2, nil, 6))
		return fetches{graph.Equal(a, b), graph.Equal(c, d), graph.Less(c, d), graph.Less(a, b), t, graph.Less(k, l.ints(graph.I64, 3, nil, 1)), graph.Equal(t, t)}
	},
	"Where": func(l *lab) fetches {
		a, b, c := l.in(-1, 1, l.n(4), 5), l.in(-1, 1, 5), l.in(-1, 1, l.n(4), 1)
		k := l.ints(graph.I64, 9, nil, l.n(4), 5)
		return fetches{
			graph.Where(graph.Less(a, b), a, b), graph.Where(graph.Less(b, b), a, b), graph.Where(graph.Less(c, c), a, c),
			graph.Where(graph.Less(a, c), k, k), graph.Where(graph.Less(a, c), graph.Cast(k, graph.U8), graph.Cast(k, graph.U8)),
			graph.Where(graph.Less(a, c), graph.Less(a, c), graph.Less(c, a)),
		}
	},
	"Neg":     unaryCase(graph.Neg, -2, 2),
	"Exp":     unaryCase(graph.Exp, -3, 3),
	"Log":     unaryCase(graph.Log, .1, 5),
	"Sqrt":    unaryCase(graph.Sqrt, 0, 9),
	"Square":  unaryCase(graph.Square, -3, 3),
	"Tanh":    unaryCase(graph.Tanh, -3, 3),
	"Sigmoid": unaryCase(graph.Sigmoid, -4, 4),
	"ReLU":    unaryCase(graph.ReLU, -1, 1),
	"Cast": func(l *lab) fetches {
		x := l.in(-99, 99, l.n(7))
		var out fetches
		for _, dt := range []graph.DType{graph.F32, graph.F64, graph.I32, graph.I64, graph.Bool, graph.BF16, graph.F16} {
			y := graph.Cast(graph.Cast(x, graph.I32), dt)
			out = append(out, graph.Cast(x, dt), y, graph.Cast(y, graph.I64), graph.Cast(y, l.dt))
		}
		return append(out, graph.Cast(graph.Square(x), graph.I64), graph.Cast(l.in(0, 255, 9), graph.U8))
	},
	"StopGradient": func(l *lab) fetches { return fetches{graph.Neg(graph.StopGradient(l.in(-1, 1, 3)))} },
	"ReLUGrad":     gradCase(graph.ReLUGrad),
	"TanhGrad":     gradCase(graph.TanhGrad),
	"SigmoidGrad":  gradCase(graph.SigmoidGrad),
	"MatMul": func(l *lab) fetches {
		a, b, c, d := l.dyn("m", -1, 1, l.n(5), l.n(7)), l.in(-1, 1, l.n(7), 3), l.in(-1, 1, l.n(7), 4), l.in(-1, 1, 3, l.n(7))
		return fetches{
			graph.MatMul(a, b), graph.MatMulT(a, d, false, true), graph.MatMulT(c, b, true, false), graph.MatMulT(c, d, true, true),
			graph.MatMul(graph.Transpose(c, 1, 0), b), graph.MatMul(l.in(-1, 1, 2, 0), l.in(-1, 1, 0, 3)),
		}
	},
	"Dense": func(l *lab) fetches {
		x, w, c := l.dyn("m", -1, 1, l.n(5), 7), l.in(-1, 1, 7, l.n(3)), l.in(-1, 1, l.n(3))
		z := graph.Add(c, graph.MatMul(x, w))
		return fetches{
			graph.Dense(x, w, c, graph.WithReLU), graph.Dense(x, w, graph.Value{}, graph.WithTanh), graph.Dense(x, w, c, graph.WithSigma),
			graph.Dense(x, w, c, graph.Linear), graph.ReLU(z), graph.Tanh(graph.Add(graph.MatMul(x, w), c)),
		}
	},
	"Transpose": func(l *lab) fetches {
		x := l.in(-1, 1, 2, l.n(3), 4)
		return fetches{
			graph.Transpose(x, 2, 0, 1), graph.Transpose(x, 1, 0, 2), graph.Transpose(x, 0, 2, 1), graph.Transpose(graph.Cast(x, graph.U8), 2, 1, 0),
			graph.Neg(graph.Transpose(graph.Transpose(x, 2, 0, 1), 1, 2, 0)),
		}
	},
	"SparseMatMul": func(l *lab) fetches {
		p, i, v := l.csr(l.n(6), 5, graph.I32)
		return fetches{graph.SparseMatMul(p, i, v, l.in(-1, 1, 5, 3))}
	},
	"SparseMatMulGradRows": func(l *lab) fetches {
		p, _, v := l.csr(l.n(6), 5, graph.I64)
		return fetches{graph.SparseMatMulGradRows(p, v, l.dyn("rows", -1, 1, l.n(6), 3))}
	},
	"SparseMatMulGradWeights": func(l *lab) fetches {
		p, i, v := l.csr(l.n(6), 5, graph.I64)
		return fetches{graph.SparseMatMulGradWeights(p, i, v, l.dyn("rows", -1, 1, l.n(6), 3), 5)}
	},
	"SparseMatMulGradValues": func(l *lab) fetches {
		p, i, _ := l.csr(l.n(6), 5, graph.I32)
		return fetches{graph.SparseMatMulGradValues(p, i, l.in(-1, 1, 5, 3), l.dyn("rows", -1, 1, l.n(6), 3))}
	},
	"Sum":       reduceCase(graph.Sum),
	"Mean":      reduceCase(graph.Mean),
	"ReduceMax": reduceCase(graph.ReduceMax),
	"ArgMax": func(l *lab) fetches {
		x := graph.Cast(l.ints(graph.I32, 4, nil, l.n(3), 4, 5), l.dt)
		return fetches{graph.ArgMax(x, 0, false), graph.ArgMax(x, 1, true), graph.ArgMax(x, 2, false)}
	},
	"SumTo": func(l *lab) fetches {
		x := l.dyn("m", -1, 1, l.n(3), 4, 5)
		return fetches{
			graph.SumTo(x, graph.N(4), graph.N(5)), graph.SumTo(x, graph.N(5)), graph.SumTo(x), graph.SumTo(x, graph.Axis("m"), graph.N(1), graph.N(5)),
			graph.SumTo(x, graph.N(1), graph.N(4), graph.N(1)),
		}
	},
	"Input": func(l *lab) fetches { x := l.in(0, 1, 3); return fetches{x, x} },
	"Const": func(l *lab) fetches {
		c := graph.ConstOf(l.b, []float64{1, 2, 3, 4}, 2, 2)
		return fetches{c, graph.Add(c, c), graph.Exp(l.b.Scalar(l.dt, 2))}
	},
	"Size": func(l *lab) fetches {
		x := l.dyn("m", 0, 1, l.n(3), 2)
		return fetches{l.b.Size(l.dt, x.Shape()...), graph.Div(graph.Sum(x, nil, false), l.b.Size(l.dt, x.Shape()...)), l.b.Size(graph.I64, graph.Axis("m").Plus(2)), x}
	},
	"Reshape": func(l *lab) fetches {
		x := l.dyn("m", -1, 1, l.n(3), 4)
		y := graph.Reshape(x, graph.Axis("m"), graph.N(2), graph.N(2))
		return fetches{y, graph.Neg(y), graph.Reshape(graph.Exp(x), graph.N(4), graph.Axis("m")), graph.Reshape(graph.Reshape(x, graph.N(4), graph.Axis("m")), graph.Axis("m"), graph.N(4))}
	},
	"BroadcastTo": func(l *lab) fetches {
		x := l.in(-1, 1, 3, 1)
		return fetches{graph.BroadcastTo(x, graph.N(l.n(2)), graph.N(3), graph.N(4)), graph.Mul(graph.BroadcastTo(x, graph.N(3), graph.N(4)), l.in(-1, 1, 4))}
	},
	"Concat": func(l *lab) fetches {
		a, c := l.dyn("m", -1, 1, l.n(2), 3), l.in(-1, 1, 4, 3)
		return fetches{graph.Concat(0, a, c), graph.Concat(1, a, a), graph.Concat(0, c)}
	},
	"Slice": func(l *lab) fetches {
		x := l.in(-1, 1, 2, 3, l.n(4))
		return fetches{
			graph.Slice(x, graph.Range{Start: 1, Stop: 2}, graph.Range{Stop: 3, Step: 2}), graph.Slice(x, graph.Range{}, graph.Range{Start: -2}, graph.Range{Start: 1, Step: 2}),
			graph.Slice(l.dyn("m", 0, 1, l.n(4), 2), graph.Range{Start: 1, Stop: -1}),
		}
	},
	"SliceGrad": func(l *lab) fetches {
		s := graph.Of(3, l.n(4))
		x := graph.Slice(l.in(-1, 1, 3, l.n(4)), graph.Range{Step: 2}, graph.Range{Start: 1, Step: 3})
		return fetches{graph.SliceGrad(x, s, []int{0, 1}, []int{graph.End, graph.End}, []int{2, 3})}
	},
	"OneHot": func(l *lab) fetches {
		i := l.ints(graph.I64, 4, nil, l.n(3), 2)
		return fetches{graph.OneHot(i, 4, l.dt), graph.OneHot(graph.Cast(i, graph.U8), 5, graph.I32)}
	},
	"Gather": func(l *lab) fetches {
		return fetches{graph.Gather(l.in(-1, 1, 5, 3), l.ints(graph.I64, 5, nil, l.n(3), 2)), graph.Gather(l.ints(graph.U8, 9, nil, 6), l.ints(graph.I32, 6, nil, 4))}
	},
	"ScatterAdd": func(l *lab) fetches {
		return fetches{graph.ScatterAdd(graph.Exp(l.in(-1, 1, 5, 3)), l.ints(graph.I64, 5, nil, l.n(4)), l.in(-1, 1, l.n(4), 3))}
	},
	"Softmax": func(l *lab) fetches {
		x := l.in(-4, 4, l.n(3), 5)
		return fetches{graph.Softmax(x), graph.Softmax(graph.Neg(x))}
	},
	"SoftmaxGrad": func(l *lab) fetches {
		return fetches{graph.SoftmaxGrad(l.in(-1, 1, l.n(3), 5), graph.Softmax(l.in(-4, 4, l.n(3), 5)))}
	},
	"SoftmaxCrossEntropy": func(l *lab) fetches {
		return fetches{graph.SoftmaxCrossEntropy(l.dyn("m", -4, 4, l.n(3), 5), l.ints(graph.I64, 5, graph.Shape{graph.Axis("m")}, l.n(3)))}
	},
	"SoftmaxCrossEntropyGrad": func(l *lab) fetches {
		x, y, d := l.in(-4, 4, l.n(3), 5), l.ints(graph.I32, 5, nil, l.n(3)), l.in(-1, 1, l.n(3))
		z := l.in(-4, 4, l.n(3), 5)
		return fetches{graph.SoftmaxCrossEntropyGrad(x, y, d), graph.SoftmaxCrossEntropy(z, y), graph.SoftmaxCrossEntropyGrad(z, y, d)}
	},
	"SigmoidCrossEntropy": func(l *lab) fetches {
		return fetches{graph.SigmoidCrossEntropy(l.in(-4, 4, l.n(3), 5), l.in(0, 1, l.n(3), 5)), graph.SigmoidCrossEntropy(l.in(-4, 4, l.n(3)), l.in(0, 1, l.n(3)))}
	},
	"SigmoidCrossEntropyGrad": func(l *lab) fetches {
		d := l.in(-1, 1, l.n(3))
		return fetches{graph.SigmoidCrossEntropyGrad(l.in(-4, 4, l.n(3), 5), l.in(0, 1, l.n(3), 5), d), graph.SigmoidCrossEntropyGrad(l.in(-4, 4, l.n(3)), l.in(0, 1, l.n(3)), d)}
	},
	"Conv2D": func(l *lab) fetches {
		x, f, c := l.dyn("m", -1, 1, l.n(2), 6, 7, 3), l.in(-1, 1, 3, 2, 3, 4), l.in(-1, 1, 4)
		return fetches{
			graph.Conv2D(x, f, graph.Value{}, graph.Linear, graph.Window{}), graph.Conv2D(x, f, c, graph.WithReLU, graph.Window{Same: true}),
			graph.Conv2D(x, f, c, graph.WithTanh, graph.Window{Strides: [2]int{2, 1}, Pads: [4]int{1, 0, 0, 2}}),
			graph.ReLU(graph.Add(graph.Conv2D(x, f, graph.Value{}, graph.Linear, graph.Window{Same: true}), c)),
		}
	},
	"Conv2DGradInput": func(l *lab) fetches {
		return fetches{graph.Conv2DGradInput(l.in(-1, 1, l.n(2), 3, 7, 4), l.in(-1, 1, 3, 2, 3, 4), graph.Of(l.n(2), 6, 6, 3), []int{2, 1}, []int{1, 1, 2, 0})}
	},
	"Conv2DGradFilter": func(l *lab) fetches {
		return fetches{graph.Conv2DGradFilter(l.in(-1, 1, l.n(2), 6, 6, 3), l.in(-1, 1, l.n(2), 3, 7, 4), graph.Of(3, 2, 3, 4), []int{2, 1}, []int{1, 1, 2, 0})}
	},
	"MaxPool": func(l *lab) fetches {
		x := l.in(-1, 1, l.n(2), 5, 6, 3)
		return fetches{graph.MaxPool(x, 2, 2, graph.Window{}), graph.MaxPool(x, 3, 2, graph.Window{Strides: [2]int{1, 2}, Pads: [4]int{1, 1, 0, 1}})}
	},
	"MaxPoolGrad": func(l *lab) fetches {
		x := graph.Cast(l.ints(graph.I32, 4, nil, l.n(2), 4, 6, 3), l.dt)
		y := graph.MaxPool(x, 2, 3, graph.Window{Strides: [2]int{1, 2}})
		d := l.in(-1, 1, l.n(2), 3, 2, 3)
		return fetches{y.Output(1), graph.MaxPoolGrad(d, y.Output(1), x.Shape(), []int{2, 3}, []int{1, 2}, []int{0, 0, 0, 0})}
	},
	"Dropout": func(l *lab) fetches {
		v := graph.Dropout(l.in(-1, 1, l.n(40)), .4)
		return fetches{v, v.Output(1), graph.Mul(v, v.Output(1))}
	},
	"LSTMCell": func(l *lab) fetches {
		n, in, u := l.n(2), 3, 4
		h, c := graph.LSTMCell(l.in(-1, 1, n, in), l.in(-1, 1, n, u), l.in(-1, 1, n, u), l.in(-1, 1, in, 4*u), l.in(-1, 1, u, 4*u), l.in(-1, 1, 4*u))
		return fetches{h, c, h.Output(2)}
	},
	"LSTMCellGrad": func(l *lab) fetches {
		n, u := l.n(2), 4
		dz, dc := graph.LSTMCellGrad(l.in(.1, .9, n, 4*u), l.in(-1, 1, n, u), l.in(-1, 1, n, u), l.in(-1, 1, n, u), l.in(-1, 1, n, u))
		return fetches{dz, dc}
	},
	"Scan": func(l *lab) fetches {
		xs, start, w := l.dyn("time", -1, 1, l.n(4), 3), l.in(-1, 1, 3), l.in(-1, 1, 3, 3)
		last, ys := graph.Scan(fetches{start}, fetches{xs}, func(c, x []graph.Value) (next, y []graph.Value) {
			s := graph.Tanh(graph.Reshape(graph.MatMul(graph.Reshape(graph.Add(c[0], x[0]), graph.N(1), graph.N(3)), w), graph.N(3)))
			return fetches{s}, fetches{graph.Square(s), c[0]}
		})
		return append(last, ys...)
	},
	"Read": func(l *lab) fetches { return fetches{graph.Neg(l.variable(2, 3).Read())} },
	"Assign": func(l *lab) fetches {
		v := l.variable(2, 3)
		old := v.Read()
		up := v.Assign(l.in(-1, 1, 2, 3))
		return fetches{up, graph.Square(v.Read()), old}
	},
	"AssignAdd": func(l *lab) fetches {
		v := l.variable(2, 3)
		old := v.Read()
		up := v.AssignAdd(graph.Mul(old, l.in(-1, 1, 2, 3)))
		return fetches{up, v.Read(), v.AssignAdd(v.Read()), v.Read()}
	},
}

func (l *lab) variable(shape ...int) *graph.Variable {
	v := l.b.Variable(fmt.Sprintf("v%d", len(l.m.Vars)), l.dt, shape, graph.Zeros())
	a := graphtest.Zeros(shape...)
	for i := range a.Data {
		a.Data[i] = math.Round(l.rng.Float64()*100) / 64
	}
	if err := l.state.Set(v, a.Tensor(l.dt)); err != nil {
		l.t.Fatal(err)
	}
	l.m.Vars[v.Name], l.m.Versions[v.Name] = a, 1
	return v
}

func binaryCase(f func(a, b graph.Value) graph.Value) func(l *lab) fetches {
	return func(l *lab) fetches {
		a, b, c, s := l.dyn("m", 1, 2, l.n(4), 5), l.in(-2, -1, 5), l.dyn("m", 1, 2, l.n(4), 1), l.in(1, 2)
		d := l.in(-2, 2, 2, 1, 3, 1)
		e := l.in(.5, 2, l.n(4), 1, 5)
		return fetches{f(a, b), f(b, a), f(a, c), f(c, a), f(a, s), f(s, a), f(s, s), f(c, b), f(d, e), f(e, d), f(a, a), f(l.dyn("z", 0, 1, 0, 5), b)}
	}
}

func gradCase(f func(a, b graph.Value) graph.Value) func(l *lab) fetches {
	return func(l *lab) fetches {
		a, b := l.in(-1, 1, l.n(4), 5), l.in(-1, 1, l.n(4), 5)
		return fetches{f(a, b), f(graph.Neg(a), b), f(l.in(-1, 1), l.in(-1, 1))}
	}
}

func unaryCase(f func(a graph.Value) graph.Value, lo, hi float64) func(l *lab) fetches {
	return func(l *lab) fetches {
		a := l.dyn("m", lo, hi, l.n(13), 5)
		return fetches{f(a), f(l.in(lo, hi)), graph.Mul(f(a), f(a)), f(graph.Mul(a, l.b.Scalar(l.dt, 1)))}
	}
}

func reduceCase(f func(a graph.Value, axes []int, keep bool) graph.Value) func(l *lab) fetches {
	return func(l *lab) fetches {
		a := l.dyn("m", -1, 1, l.n(3), 4, 5)
		out := fetches{f(a, nil, false), f(l.in(-1, 1, 20011), nil, false), f(l.dyn("m", -1, 1, l.n(3), 100), []int{0}, false), f(l.in(-1, 1, 70, 40), []int{1}, true)}
		for _, axes := range [][]int{{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}} {
			out = append(out, f(a, axes, len(axes) == 2))
		}
		return out
	}
}

// stateCases are the operations on queues, accumulators, rules and exchange, which have tests of their own.
var stateCases = map[string]bool{"Apply": true, "Enqueue": true, "Dequeue": true, "AccumApply": true, "AccumTake": true, "Send": true, "Recv": true}

func TestEveryOperationHasKernelsAndACase(t *testing.T) {
	for op := range graph.Ops() {
		if _, ok := kernels[op.Name]; !ok && op.Name != "Input" {
			t.Errorf("operation %s has no kernel", op.Name)
		}
		if opCases[op.Name] == nil && !stateCases[op.Name] {
			t.Errorf("operation %s has no case", op.Name)
		}
	}
}

// TestOperations compares every operation, in F32 and F64, small and cut into tiles, with the reference interpreter; and the pool, the
// passes and the instruction sets with the serial run of the graph as it was written, bit by bit.
func TestOperations(t *testing.T) {
	for op, build := range opCases {
		for _, dt := range []graph.DType{graph.F32, graph.F64} {
			for _, scale := range []int{1, 40} {
				t.Run(fmt.Sprintf("%s/%v/%d", op, dt, scale), func(t *testing.T) { compareOp(t, build, dt, scale) })
			}
		}
	}
}

func compareOp(t *testing.T, build func(l *lab) fetches, dt graph.DType, scale int) {
	const seed = 11
	var want []*tensor.Tensor
	for i, o := range variants(t) {
		l := newLab(t, dt, seed, scale)
		out := build(l)
		g, err := l.b.Build()
		if err != nil {
			t.Fatal(err)
		}
		p, err := Compile(g, l.feeds, out, nil, o)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Run(context.Background(), l.state, l.data...)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			for k := range got {
				if string(got[k].Bytes()) != string(want[k].Bytes()) {
					t.Fatalf("variant %d, result %d (%v): bits differ\n%v\n%v", i, k, out[k], got[k], want[k])
				}
			}
			continue
		}
		want = got
		in := graphtest.Feeds{}
		for k, v := range l.feeds {
			in[v] = graphtest.FromTensor(l.data[k])
		}
		l.m.Seed = seed
		ref, err := l.m.Run(g, in, out...)
		if err != nil {
			t.Fatal(err)
		}
		for k := range ref {
			near(t, out[k], graphtest.FromTensor(got[k]), ref[k], dt)
		}
	}
}

// variants are ways to run a graph that all give the same bits.
func variants(t testing.TB) []Options {
	exact := kernel.Exact()
	os := []Options{{CPU: &tensor.CPU{ISA: exact}, Serial: true, Plain: true}, {CPU: &tensor.CPU{ISA: exact}, Serial: true}, {CPU: pooled(t, exact, 2), Grain: 200}, {CPU: pooled(t, exact, 7), Grain: 50, Plain: true}}
	for _, isa := range kernel.Available() {
		if isa != kernel.Go && isa != exact {
			os = append(os, Options{CPU: pooled(t, isa, 2), Grain: 300})
		}
	}
	return os
}

func pooled(t testing.TB, isa kernel.ISA, threads int) *tensor.CPU {
	c := &tensor.CPU{ISA: isa, Pool: tensor.NewPool(threads)}
	t.Cleanup(c.Close)
	return c
}

func near(t *testing.T, v graph.Value, got, want graphtest.Array, dt graph.DType) {
	t.Helper()
	if !sameSizes(got.Shape, want.Shape) {
		t.Fatalf("%v: shape %v, want %v", v, got.Shape, want.Shape)
	}
	tol := 1e-12
	if dt == graph.F32 || v.DType() == graph.F32 {
		tol = 2e-5
	}
	if v.DType() == graph.BF16 || v.DType() == graph.F16 {
		tol = 1e-2
	}
	for i, w := range want.Data {
		if g := got.Data[i]; !(math.Abs(g-w) <= tol*max(1, math.Abs(w))) && !(math.IsNaN(g) && math.IsNaN(w)) && g != w {
			t.Fatalf("%v: element %d is %g, want %g", v, i, g, w)
		}
	}
}
