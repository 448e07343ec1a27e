package exec

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/autodiff"
	"github.com/trivium-ml/trivium/graph/graphtest"
	"github.com/trivium-ml/trivium/tensor"
)

// TestApplyMatchesTheReference runs a momentum rule, dense and row-sparse, in both element types.
func TestApplyMatchesTheReference(t *testing.T) {
	for _, dt := range []graph.DType{graph.F32, graph.F64} {
		for _, sparse := range []bool{false, true} {
			for _, o := range variants(t) {
				l := newLab(t, dt, 5, 1)
				v, slot := l.variable(4, 3), l.variable(4, 3)
				rate := l.b.Scalar(dt, .25)
				var up graph.Value
				if sparse {
					up = v.ApplyRows("momentum", l.ints(graph.I64, 4, nil, 2), l.in(-1, 1, 2, 3), []*graph.Variable{slot}, rate)
				} else {
					up = v.Apply("momentum", l.in(-1, 1, 4, 3), []*graph.Variable{slot}, rate)
				}
				out := fetches{up, v.Read(), slot.Read()}
				g := build(t, l.b)
				o.Rules = map[string]Rule{"momentum": momentum}
				l.m.Rules["momentum"] = func(p, g graphtest.Array, slots []graphtest.Array, params []float64) {
					for i := range p.Data {
						slots[0].Data[i] = .5*slots[0].Data[i] + g.Data[i]
						p.Data[i] -= params[0] * slots[0].Data[i]
					}
				}
				in := graphtest.Feeds{}
				for i, f := range l.feeds {
					in[f] = graphtest.FromTensor(l.data[i])
				}
				p := compile(t, g, l.feeds, out, nil, o)
				for range 3 {
					got, err := p.Run(ctx, l.state, l.data...)
					if err != nil {
						t.Fatal(err)
					}
					want, err := l.m.Run(g, in, out...)
					if err != nil {
						t.Fatal(err)
					}
					for i := range want {
						near(t, out[i], graphtest.FromTensor(got[i]), want[i], dt)
					}
				}
			}
		}
	}
}

// TestApplyOfTheVariableItself: a rule may read its gradient after it wrote, so that it is never given what it writes to.
func TestApplyOfTheVariableItself(t *testing.T) {
	less := func(u *Update) error {
		for i, r := range u.Rows {
			u.F64.P[r] -= u.F64.G[i]
		}
		return nil
	}
	for i, o := range variants(t) {
		b := graph.NewBuilder()
		v := b.Variable("v", graph.F64, []int{2}, graph.Zeros())
		up := v.ApplyRows("less", graph.ConstOf(b, []int64{1, 0}, 2), v.Read(), nil)
		g := build(t, b)
		s := NewState(StateOptions{})
		if err := s.Set(v, f64s(l{1, 2}, 2)); err != nil {
			t.Fatal(err)
		}
		o.Rules = map[string]Rule{"less": less}
		if _, err := compile(t, g, nil, nil, fetches{up}, o).Run(ctx, s); err != nil {
			t.Fatal(err)
		}
		if got, _, err := s.Get(v); err != nil || tensor.Flat[float64](got)[0] != -1 || tensor.Flat[float64](got)[1] != 1 {
			t.Errorf("variant %d: %v, %v, want [-1 1]", i, got, err)
		}
	}
}

func momentum(u *Update) error {
	if u.F32.P != nil {
		momentumOf(u, u.F32)
	} else {
		momentumOf(u, u.F64)
	}
	return nil
}

func momentumOf[T float](u *Update, c Cells[T]) {
	g := c.G
	if u.Rows != nil {
		cols := u.Shape[1]
		g = make([]T, len(c.P))
		for i, r := range u.Rows {
			for k := range cols {
				g[int(r)*cols+k] += c.G[i*cols+k]
			}
		}
	}
	for i := range c.P {
		c.Slots[0][i] = .5*c.Slots[0][i] + g[i]
		c.P[i] -= T(u.Params[0]) * c.Slots[0][i]
	}
}

// TestCase13Networks checks the rules of layers with central differences, on this package's kernels.
func TestCase13Networks(t *testing.T) {
	for _, dt := range []graph.DType{graph.F32, graph.F64} {
		l := newLab(t, dt, 3, 1)
		x := l.in(-1, 1, 2, 5, 5, 2)
		h := graph.MaxPool(graph.Conv2D(x, l.in(-1, 1, 3, 3, 2, 3), l.in(-1, 1, 3), graph.WithTanh, graph.Window{Same: true}), 2, 2, graph.Window{})
		h = graph.Softmax(graph.Reshape(h, graph.N(2), graph.N(12)))
		wx, wh, c := l.in(-1, 1, 12, 8), l.in(-1, 1, 2, 8), l.in(-1, 1, 8)
		last, ys := graph.Scan(fetches{l.in(-1, 1, 1, 2), l.in(-1, 1, 1, 2)}, fetches{graph.Reshape(h, graph.N(2), graph.N(1), graph.N(12))}, func(s, x []graph.Value) (next, y []graph.Value) {
			a, b := graph.LSTMCell(x[0], s[0], s[1], wx, wh, c)
			return fetches{a, b}, fetches{a}
		})
		sparse := graph.SparseMatMul(l.input(graph.I32, graph.Of(3), []int{3}, func(i int) float64 { return float64(2 * i) }), l.ints(graph.I32, 5, nil, 4), l.in(-1, 1, 4), l.in(-1, 1, 5, 3))
		table := graph.Gather(l.in(-1, 1, 4, 2), l.ints(graph.I64, 4, nil, 6))
		loss := graph.Add(sum(graph.Square(last[1])), graph.Add(sum(ys[0]), graph.Add(sum(graph.Tanh(sparse)), sum(graph.SigmoidCrossEntropy(table, l.in(0, 1, 6, 2))))))
		loss = graph.Add(loss, sum(graph.Dropout(graph.Square(table), .3)))
		feeds := fed{}
		for i, v := range l.feeds {
			feeds[v] = l.data[i]
		}
		// Gradients as nodes are checked too: second derivatives.
		var total graph.Value
		for _, g := range autodiff.Gradients(loss, fetches{x, wx}, autodiff.Options{Dense: true}) {
			if total.IsZero() {
				total = sum(g.Dense)
			} else {
				total = graph.Add(total, sum(g.Dense))
			}
		}
		if err := autodiff.CheckNumeric(build(t, l.b), loss, autodiff.CheckOptions{Evaluate: Evaluate, Feeds: feeds, Indices: 12}); err != nil {
			t.Errorf("%v: %v", dt, err)
		}
		got, err := Evaluate(build(t, l.b), feeds, fetches{total})
		if err != nil {
			t.Fatal(err)
		}
		want, err := graphtest.Evaluate(build(t, l.b), feeds, fetches{total})
		if err != nil {
			t.Fatal(err)
		}
		if a, b := graphtest.FromTensor(got[0]).Data[0], graphtest.FromTensor(want[0]).Data[0]; !(math.Abs(a-b) <= 1e-4*max(1, math.Abs(b))) {
			t.Errorf("%v: sum of gradients %g, want %g", dt, a, b)
		}
	}
}

// TestWhatASendWaitsForGoesFirst: of two equal chains, the one that feeds the Send.
func TestWhatASendWaitsForGoesFirst(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F32, graph.N(8))
	chain := func(n int) graph.Value {
		v := x
		for range n {
			v = graph.Softmax(v)
		}
		return v
	}
	long, short := chain(20), graph.Neg(graph.Exp(graph.Softmax(graph.Square(x))))
	send := graph.Send(short, "edge", "/cpu:1")
	var mu sync.Mutex
	var order []string
	p := compile(t, build(t, b), fetches{x}, fetches{long}, fetches{send}, Options{Plain: true, Rendezvous: NewLocal(), Trace: func(e TraceEvent) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, e.Op)
	}})
	if _, err := p.Run(ctx, NewState(StateOptions{}), tensor.New(graph.F32, 8)); err != nil {
		t.Fatal(err)
	}
	if at := slices.Index(order, "Send"); at < 0 || at > 5 {
		t.Fatal("the Send came late:", order)
	}
}

// TestRandomShapesAgainstTheReference runs random chains of broadcast arithmetic and reductions, in every way, against the interpreter.
func TestRandomShapesAgainstTheReference(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		rank := r.IntN(4)
		dims := make([]int, rank)
		for i := range dims {
			dims[i] = r.IntN(5)
		}
		case1 := func(l *lab) fetches {
			rng := rand.New(rand.NewPCG(seed, uint64(rank)))
			shape := func() []int {
				s := slices.Clone(dims[rng.IntN(rank+1):])
				for i := range s {
					if rng.IntN(3) == 0 {
						s[i] = 1
					}
				}
				return s
			}
			vs := fetches{l.in(.5, 2, dims...)}
			for range 3 {
				vs = append(vs, l.in(.5, 2, shape()...))
			}
			for range 12 {
				a, b := vs[rng.IntN(len(vs))], vs[rng.IntN(len(vs))]
				if _, err := graph.Broadcast(a.Shape(), b.Shape()); err != nil {
					continue
				}
				switch rng.IntN(7) {
				case 0:
					vs = append(vs, graph.Add(a, b))
				case 1:
					vs = append(vs, graph.Sub(a, b))
				case 2:
					vs = append(vs, graph.Mul(graph.Tanh(a), b))
				case 3:
					vs = append(vs, graph.Max(a, b))
				case 4:
					vs = append(vs, graph.Sigmoid(graph.Neg(a)))
				case 5:
					if k := len(a.Shape()); k > 0 {
						vs = append(vs, graph.Sum(a, []int{rng.IntN(k)}, rng.IntN(2) == 0))
					}
				case 6:
					vs = append(vs, graph.Where(graph.Less(a, b), a, b))
				}
			}
			return vs[1:]
		}
		compareOp(t, case1, []graph.DType{graph.F32, graph.F64}[r.IntN(2)], 1)
	}
}

// TestLossOfNoClasses: a label is outside when there are no classes, and no rows have no label. The axis of classes may be a named one.
func TestLossOfNoClasses(t *testing.T) {
	for _, dt := range []graph.DType{graph.F32, graph.F64} {
		b := graph.NewBuilder()
		x := b.Input("x", dt, graph.Axis("batch"), graph.Axis("classes"))
		y := b.Input("y", graph.I64, graph.Axis("batch"))
		loss := graph.SoftmaxCrossEntropy(x, y)
		grad := grads(sum(loss), x)[0]
		g := build(t, b)
		for _, out := range []fetches{{loss}, {grad}, {loss, grad}} {
			for i, o := range variants(t) {
				p := compile(t, g, fetches{x, y}, out, nil, o)
				if _, err := p.Run(ctx, nil, tensor.New(dt, 0, 0), tensor.New(graph.I64, 0)); err != nil {
					t.Errorf("variant %d of %v: %v", i, out, err)
				}
				_, err := p.Run(ctx, nil, tensor.New(dt, 2, 0), tensor.New(graph.I64, 2))
				if err == nil || !strings.Contains(err.Error(), "label 0 is 0") {
					t.Errorf("variant %d of %v: %v, want an error about the label", i, out, err)
				}
			}
		}
	}
}

// TestApplyOfNoRows: a row-sparse gradient without rows is none, not a dense one.
func TestApplyOfNoRows(t *testing.T) {
	for _, dt := range []graph.DType{graph.I32, graph.I64} {
		for i, o := range variants(t) {
			b := graph.NewBuilder()
			v, slot := b.Variable("v", graph.F64, []int{2, 3}, graph.Zeros()), b.Variable("slot", graph.F64, []int{2, 3}, graph.Zeros())
			n := graph.Axis("n")
			rows, values := b.Input("rows", dt, n), b.Input("values", graph.F64, n, graph.N(3))
			up := v.ApplyRows("momentum", rows, values, []*graph.Variable{slot}, b.Scalar(graph.F64, .25))
			g := build(t, b)
			var sparse bool
			o.Rules = map[string]Rule{"momentum": func(u *Update) error {
				sparse = u.Rows != nil
				return momentum(u)
			}}
			s := NewState(StateOptions{})
			for _, x := range []*graph.Variable{v, slot} {
				if err := s.Set(x, f64s(l{1, 2, 3, 4, 5, 6}, 2, 3)); err != nil {
					t.Fatal(err)
				}
			}
			p := compile(t, g, fetches{rows, values}, nil, fetches{up}, o)
			if _, err := p.Run(ctx, s, tensor.New(dt, 0), tensor.New(graph.F64, 0, 3)); err != nil || !sparse {
				t.Errorf("%v, variant %d: %v, sparse: %v", dt, i, err, sparse)
			}
		}
	}
}
