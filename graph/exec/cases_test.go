package exec

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/autodiff"
	"github.com/trivium-ml/trivium/graph/graphtest"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

func sum(v graph.Value) graph.Value { return graph.Sum(v, nil, false) }

func grads(y graph.Value, xs ...graph.Value) []graph.Value {
	out := make([]graph.Value, len(xs))
	for i, g := range autodiff.Gradients(y, xs, autodiff.Options{Dense: true}) {
		out[i] = g.Dense
	}
	return out
}

func build(t testing.TB, b *graph.Builder) *graph.Graph {
	t.Helper()
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func compile(t testing.TB, g *graph.Graph, feeds, fetches, targets []graph.Value, o Options) *Program {
	t.Helper()
	p, err := Compile(g, feeds, fetches, targets, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// want runs a graph in every way and compares the results with lists of elements.
func want(t *testing.T, b *graph.Builder, feeds map[graph.Value]*tensor.Tensor, expect ...any) {
	t.Helper()
	g := build(t, b)
	var vs, fetches []graph.Value
	var ts []*tensor.Tensor
	for v, x := range feeds {
		vs, ts = append(vs, v), append(ts, x)
	}
	var lists [][]float64
	for i := 0; i < len(expect); i += 2 {
		fetches, lists = append(fetches, expect[i].(graph.Value)), append(lists, expect[i+1].([]float64))
	}
	for k, o := range variants(t) {
		got, err := compile(t, g, vs, fetches, nil, o).Run(ctx, NewState(StateOptions{}), ts...)
		if err != nil {
			t.Fatal(err)
		}
		for i, list := range lists {
			a := graphtest.FromTensor(got[i]).Data
			if len(a) != len(list) {
				t.Fatalf("variant %d, %v: %v, want %v", k, fetches[i], a, list)
			}
			for j := range list {
				if !(math.Abs(a[j]-list[j]) <= 1e-6*max(1, math.Abs(list[j]))) {
					t.Fatalf("variant %d, %v: %v, want %v", k, fetches[i], a, list)
				}
			}
		}
	}
}

type fed = map[graph.Value]*tensor.Tensor

func f64s(x []float64, shape ...int) *tensor.Tensor {
	t, err := tensor.Of(x, shape...)
	if err != nil {
		panic(err)
	}
	return t
}

func i64s(x ...int64) *tensor.Tensor {
	t, _ := tensor.Of(x, len(x))
	return t
}

type l = []float64

func TestCase14Identities(t *testing.T) {
	b := graph.NewBuilder()
	x, unused := b.Input("x", graph.F64), b.Input("unused", graph.F64, graph.N(2))
	cube := graph.Mul(graph.Mul(x, x), x)
	first := grads(cube, x)[0]
	want(t, b, fed{x: tensor.Scalar(2.0), unused: f64s(l{1, 2}, 2)}, grads(cube, cube)[0], l{1}, grads(first, x)[0], l{12},
		grads(cube, unused)[0], l{0, 0}, grads(graph.StopGradient(cube), x)[0], l{0})
}

func TestCase15BroadcastGatherSliceTies(t *testing.T) {
	b := graph.NewBuilder()
	x, y := b.Input("x", graph.F64, graph.N(2), graph.N(3)), b.Input("y", graph.F64, graph.N(3))
	table := b.Input("table", graph.F64, graph.N(3))
	rows := graph.ConstOf(b, []int64{0, 0, 1, 1, 2}, 5)
	ties := b.Input("ties", graph.F64, graph.N(3))
	part := graph.Slice(x, graph.Range{Start: 1, Stop: 2}, graph.Range{Start: 0, Stop: 3, Step: 2})
	want(t, b, fed{x: f64s(make(l, 6), 2, 3), y: f64s(make(l, 3), 3), table: f64s(make(l, 3), 3), ties: f64s(l{3, 3, 1}, 3)},
		grads(sum(graph.Add(x, y)), y)[0], l{2, 2, 2}, grads(sum(graph.Gather(table, rows)), table)[0], l{2, 2, 1},
		grads(sum(part), x)[0], l{0, 0, 0, 1, 0, 1}, grads(graph.ReduceMax(ties, nil, false), ties)[0], l{.5, .5, 0})
}

func TestCase16SoftmaxCrossEntropy(t *testing.T) {
	b := graph.NewBuilder()
	x, y := b.Input("x", graph.F64, graph.Axis("n"), graph.N(3)), b.Input("y", graph.I64, graph.Axis("n"))
	loss := graph.SoftmaxCrossEntropy(x, y)
	want(t, b, fed{x: f64s(l{1000, 0, -1000, 1000, 0, -1000}, 2, 3), y: i64s(0, 2)}, loss, l{0, 2000}, grads(sum(loss), x)[0], l{0, 0, 0, 1, 0, -1})
	b = graph.NewBuilder()
	x, y = b.Input("x", graph.F64, graph.N(1), graph.N(10)), b.Input("y", graph.I64, graph.N(1))
	loss = graph.SoftmaxCrossEntropy(x, y)
	want(t, b, fed{x: f64s(make(l, 10), 1, 10), y: i64s(3)}, loss, l{math.Log(10)}, grads(sum(loss), x)[0], l{.1, .1, .1, -.9, .1, .1, .1, .1, .1, .1})
}

func TestCase17LeastSquares(t *testing.T) {
	b := graph.NewBuilder()
	x, w, y := b.Input("x", graph.F64, graph.N(2), graph.N(2)), b.Input("w", graph.F64, graph.N(2), graph.N(1)), b.Input("y", graph.F64, graph.N(2), graph.N(1))
	loss := graph.Mean(graph.Square(graph.Sub(graph.MatMul(x, w), y)), nil, false)
	want(t, b, fed{x: f64s(l{1, 2, 3, 4}, 2, 2), w: f64s(l{1, -1}, 2, 1), y: f64s(l{0, 1}, 2, 1)}, loss, l{2.5}, grads(loss, w)[0], l{-7, -10})
}

func TestCase18ConvolutionAndPooling(t *testing.T) {
	b := graph.NewBuilder()
	x, f := b.Input("x", graph.F64, graph.Of(1, 3, 3, 1)...), b.Input("f", graph.F64, graph.Of(2, 2, 1, 1)...)
	y := graph.Conv2D(x, f, graph.Value{}, graph.Linear, graph.Window{})
	d := grads(sum(y), x, f)
	want(t, b, fed{x: f64s(l{1, 2, 3, 4, 5, 6, 7, 8, 9}, 1, 3, 3, 1), f: f64s(l{1, 1, 1, 1}, 2, 2, 1, 1)}, y, l{12, 16, 24, 28},
		d[0], l{1, 2, 1, 2, 4, 2, 1, 2, 1}, d[1], l{12, 16, 24, 28},
		graph.MaxPool(x, 2, 2, graph.Window{Strides: [2]int{1, 1}}), l{5, 6, 8, 9})
}

func TestCase19LSTM(t *testing.T) {
	b := graph.NewBuilder()
	in := func(name string, s ...int) graph.Value { return b.Input(name, graph.F64, graph.Of(s...)...) }
	x, h, c, wx, wh, bias := in("x", 1, 1), in("h", 1, 1), in("c", 1, 1), in("wx", 1, 4), in("wh", 1, 4), in("b", 4)
	h1, c1 := graph.LSTMCell(x, h, c, wx, wh, bias)
	want(t, b, fed{x: f64s(l{1}, 1, 1), h: f64s(l{1}, 1, 1), c: f64s(l{2}, 1, 1), wx: f64s(make(l, 4), 1, 4), wh: f64s(make(l, 4), 1, 4), bias: f64s(make(l, 4), 4)},
		c1, l{1}, h1, l{0.3807970779778823})
}

func TestCase20Scan(t *testing.T) {
	b := graph.NewBuilder()
	xs := b.Input("xs", graph.F64, graph.Axis("time"))
	_, ys := graph.Scan(fetches{b.Scalar(graph.F64, 0)}, fetches{xs}, func(c, x []graph.Value) (next, y []graph.Value) {
		s := graph.Add(c[0], x[0])
		return fetches{s}, fetches{s}
	})
	unrolled := b.Scalar(graph.F64, 0)
	var parts fetches
	for i := range 3 {
		unrolled = graph.Add(unrolled, graph.Reshape(graph.Slice(b.Input(fmt.Sprint("u", i), graph.F64, graph.N(1)), graph.Range{}), nil...))
		parts = append(parts, graph.Reshape(unrolled, graph.N(1)))
	}
	u := graph.Concat(0, parts...)
	feeds := fed{xs: f64s(l{1, 2, 3}, 3)}
	g := build(t, b)
	for i := range 3 {
		v, _ := g.Input(fmt.Sprint("u", i))
		feeds[v] = f64s(l{float64(i + 1)}, 1)
	}
	want(t, b, feeds, ys[0], l{1, 3, 6}, grads(sum(ys[0]), xs)[0], l{3, 2, 1}, u, l{1, 3, 6})
}

func TestScanOfNothingAndOfOtherLengths(t *testing.T) {
	b := graph.NewBuilder()
	xs := b.Input("xs", graph.F64, graph.Axis("time"), graph.N(2))
	start := b.Input("start", graph.F64, graph.N(2))
	last, ys := graph.Scan(fetches{start}, fetches{xs}, func(c, x []graph.Value) (next, y []graph.Value) {
		return fetches{graph.Mul(graph.Add(c[0], x[0]), start)}, fetches{c[0]}
	})
	d := grads(sum(last[0]), start, xs)
	g := build(t, b)
	all := fetches{last[0], ys[0], d[0], d[1]}
	r := rand.New(rand.NewPCG(1, 1))
	for _, o := range variants(t) {
		p := compile(t, g, fetches{xs, start}, all, nil, o)
		for _, n := range []int{3, 0, 7, 1, 2, 7} {
			x, s := tensor.New(graph.F64, n, 2), tensor.New(graph.F64, 2)
			fillRandom(x, r)
			fillRandom(s, r)
			got, err := p.Run(ctx, nil, x, s)
			if err != nil {
				t.Fatal(err)
			}
			ref, err := graphtest.Evaluate(g, fed{xs: x, start: s}, all)
			if err != nil {
				t.Fatal(err)
			}
			for i := range ref {
				near(t, all[i], graphtest.FromTensor(got[i]), graphtest.FromTensor(ref[i]), graph.F64)
			}
		}
	}
}

func TestCase13NumericGradients(t *testing.T) {
	for _, dt := range []graph.DType{graph.F32, graph.F64} {
		m := newMLP(t, dt, 5, 4, 3)
		feeds := fed{}
		b := graph.NewBuilder()
		x, y, w0, b0, w1 := b.Input("x", dt, graph.N(6), graph.N(5)), b.Input("y", graph.I64, graph.N(6)), b.Input("w0", dt, graph.N(5), graph.N(4)), b.Input("b0", dt, graph.N(4)), b.Input("w1", dt, graph.N(4), graph.N(3))
		loss := sum(graph.SoftmaxCrossEntropy(graph.MatMul(graph.Tanh(graph.Add(graph.MatMul(x, w0), b0)), w1), y))
		r := rand.New(rand.NewPCG(1, 3))
		for _, v := range []graph.Value{x, w0, b0, w1} {
			sizes, _ := v.Shape().Fixed()
			feeds[v] = tensor.New(dt, sizes...)
			fillRandom(feeds[v], r)
		}
		feeds[y] = m.data(6, dt)[1]
		if err := autodiff.CheckNumeric(build(t, b), loss, autodiff.CheckOptions{Evaluate: Evaluate, Feeds: feeds}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCase23ArenaAndReaders(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F64, graph.Axis("n"))
	v := graph.Exp(x)
	first := graph.Softmax(v)                      // must not take v's place
	second := graph.Softmax(graph.Transpose(v, 0)) // the other reader
	chain := graph.Cast(graph.Cast(v, graph.F32), graph.F64)
	for range 20 {
		chain = graph.Softmax(graph.Reshape(graph.Slice(chain, graph.Range{}), graph.Axis("n")))
	}
	out := graph.Add(graph.Sub(first, graph.Softmax(v)), graph.Sub(second, chain))
	g := build(t, b)
	r := rand.New(rand.NewPCG(2, 3))
	in := tensor.New(graph.F64, 1000)
	fillRandom(in, r)
	var want []*tensor.Tensor
	for _, o := range variants(t) {
		p := compile(t, g, fetches{x}, fetches{out, first}, nil, o)
		got, err := p.Run(ctx, nil, in)
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = got
		}
		for i := range got {
			if string(got[i].Bytes()) != string(want[i].Bytes()) {
				t.Fatal("a value was overwritten before its last reader")
			}
		}
		arena, sum, err := p.arenaOf([]int{1000})
		if err != nil || arena > sum || arena > 6*8064 {
			t.Fatalf("arena of %d bytes for %d bytes of values (%v)", arena, sum, err)
		}
	}
}

// arenaOf is how much memory an instance for these sizes of the named axes keeps for values between nodes, and how much the values
// would need side by side.
func (p *Program) arenaOf(axes []int) (arena, sum int, err error) {
	x, err := p.acquire(axes)
	if err != nil {
		return 0, 0, err
	}
	defer p.release(x)
	return len(x.arena), x.sum, nil
}

func TestCase24DynamicBatch(t *testing.T) {
	m := newMLP(t, graph.F32, 20, 9, 4)
	s := NewState(StateOptions{})
	if err := s.Init(m.g); err != nil {
		t.Fatal(err)
	}
	p := m.compile(t, Options{CPU: cpu(t, 2), Grain: 500})
	for _, rows := range []int{1, 5, 1, 0, 64, 63, 5, 100, 7, 300, 2} {
		feeds := m.data(rows, graph.F32)
		got, err := p.Run(ctx, s, feeds...)
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := m.compile(t, Options{Serial: true}).Run(ctx, s, feeds...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if string(got[i].Bytes()) != string(fresh[i].Bytes()) {
				t.Fatalf("%d rows: result %d is %v, want %v", rows, i, got[i], fresh[i])
			}
		}
	}
	for _, rows := range []int{1, 5} { // and what a graph of that size alone gives
		fixed, own := newMLPOf(t, graph.N(rows), graph.F32, 20, 9, 4), NewState(StateOptions{})
		if err := own.Init(fixed.g); err != nil {
			t.Fatal(err)
		}
		feeds := m.data(rows, graph.F32)
		want, err := fixed.compile(t, Options{Serial: true}).Run(ctx, own, feeds...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Run(ctx, s, feeds...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if string(got[i].Bytes()) != string(want[i].Bytes()) {
				t.Fatalf("%d rows: result %d is %v, of a fixed graph %v", rows, i, got[i], want[i])
			}
		}
	}
	feeds := m.data(5, graph.F32)
	feeds[1] = i64s(1, 2, 3)
	if _, err := p.Run(ctx, s, feeds...); err == nil || !strings.Contains(err.Error(), "want 5, given 3") {
		t.Fatal(err)
	}
}

func TestCase25SameBits(t *testing.T) {
	for _, dt := range []graph.DType{graph.F32, graph.F64} {
		b := graph.NewBuilder()
		x, y := b.Input("x", dt, graph.Axis("n"), graph.N(90)), b.Input("y", graph.I64, graph.Axis("n"))
		w0, b0 := b.Variable("w0", dt, []int{90, 70}, graph.GlorotUniform()), b.Variable("b0", dt, []int{70}, graph.Uniform(-1, 1))
		w1, b1 := b.Variable("w1", dt, []int{70, 10}, graph.GlorotUniform()), b.Variable("b1", dt, []int{10}, graph.Zeros())
		ps := fetches{w0.Read(), b0.Read(), w1.Read(), b1.Read()}
		h := graph.Tanh(graph.Add(graph.MatMul(x, ps[0]), ps[1]))
		loss := sum(graph.SoftmaxCrossEntropy(graph.Add(graph.MatMul(h, ps[2]), ps[3]), y))
		all := append(fetches{loss}, grads(loss, ps...)...)
		g := build(t, b)
		s := NewState(StateOptions{Seed: 3})
		if err := s.Init(g); err != nil {
			t.Fatal(err)
		}
		m := mlp{widths: []int{90, 10}}
		feeds := m.data(130, dt)
		var want []*tensor.Tensor
		for _, isa := range kernel.Available() {
			if isa == kernel.Go {
				continue
			}
			for _, threads := range []int{1, 2, 7} {
				p := compile(t, g, fetches{x, y}, all, nil, Options{CPU: pooled(t, isa, threads), Grain: 3000})
				got, err := p.Run(ctx, s, feeds...)
				if err != nil {
					t.Fatal(err)
				}
				if want == nil {
					want = got
				}
				for i := range got {
					if string(got[i].Bytes()) != string(want[i].Bytes()) {
						t.Fatalf("%v on %v with %d threads: result %d differs", dt, isa, threads, i)
					}
				}
			}
		}
	}
}
