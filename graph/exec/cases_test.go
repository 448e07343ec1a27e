package exec

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

func TestCase7Accumulator(t *testing.T) {
	b := graph.NewBuilder()
	a := b.Accumulator("acc", graph.F64)
	local, g, n := b.Input("local", graph.I64), b.Input("g", graph.F64), b.Input("n", graph.I64)
	counted, mean := a.Apply(local, g), a.Take(n)
	gr := build(t, b)
	s := NewState(StateOptions{})
	apply := compile(t, gr, fetches{local, g}, fetches{counted}, nil, Options{})
	take := compile(t, gr, fetches{n}, fetches{mean}, nil, Options{})
	add := func(step int64, v float64) bool {
		out, err := apply.Run(ctx, s, tensor.Scalar(step), tensor.Scalar(v))
		if err != nil {
			t.Fatal(err)
		}
		return tensor.Flat[bool](out[0])[0]
	}
	for _, v := range []float64{1, 2, 6} {
		if !add(0, v) {
			t.Fatal("a fresh gradient was dropped")
		}
	}
	out, err := take.Run(ctx, s, tensor.Scalar[int64](2))
	if err != nil || tensor.Flat[float64](out[0])[0] != 3 {
		t.Fatal(out, err)
	}
	if step, held, _ := s.AccumulatorStep(a); step != 1 || held != 0 {
		t.Fatalf("step %d, %d held, want 1 and 0", step, held)
	}
	if add(0, 1) || !add(1, 1) {
		t.Fatal("local step 0 must be dropped, 1 counted")
	}
	if _, _, dropped := s.AccumulatorStep(a); dropped != 1 {
		t.Fatal("one gradient was dropped, the count says", dropped)
	}
	if _, err := take.Run(ctx, s, tensor.Scalar[int64](0)); err == nil {
		t.Fatal("take(0) succeeded")
	}
	if err := s.SetAccumulatorStep(a, 0); err == nil {
		t.Fatal("the step went backwards")
	}
	synctest.Test(t, func(t *testing.T) {
		s := NewState(StateOptions{})
		_, err := take.Run(ctx, s, tensor.Scalar[int64](4))
		if err == nil || !strings.Contains(err.Error(), `"acc" at its step 0: 0 of 4 gradients`) || !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "1m0s") {
			t.Fatal(err)
		}
	})
}

func TestCase8SparseAccumulator(t *testing.T) {
	for _, perRow := range []bool{false, true} {
		b := graph.NewBuilder()
		a := b.Accumulator("acc", graph.F64, 2, 1)
		a.MeanPerRow = perRow
		rows, values := b.Input("rows", graph.I64, graph.Axis("n")), b.Input("values", graph.F64, graph.Axis("n"), graph.N(1))
		counted := a.ApplyRows(graph.ConstOf(b, []int64{0}), rows, values)
		mean := a.Take(graph.ConstOf(b, []int64{2}))
		g := build(t, b)
		s := NewState(StateOptions{})
		p := compile(t, g, fetches{rows, values}, fetches{counted}, nil, Options{})
		for _, in := range [][]*tensor.Tensor{{i64s(0), f64s(l{2}, 1, 1)}, {i64s(0, 1), f64s(l{4, 6}, 2, 1)}} {
			if _, err := p.Run(ctx, s, in...); err != nil {
				t.Fatal(err)
			}
		}
		out, err := compile(t, g, nil, fetches{mean}, nil, Options{}).Run(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		want := l{3, 3}
		if perRow {
			want = l{3, 6}
		}
		if got := tensor.Flat[float64](out[0]); got[0] != want[0] || got[1] != want[1] {
			t.Fatalf("per row %v: %v, want %v", perRow, got, want)
		}
	}
}

func TestCase9Queue(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := graph.NewBuilder()
			q := b.Queue("q", 2, graph.Type{DType: graph.F64})
			x := b.Input("x", graph.F64)
			put, first := q.Enqueue(x), q.Dequeue()[0]
			g := build(t, b)
			s := NewState(StateOptions{})
			enq := compile(t, g, fetches{x}, nil, fetches{put}, Options{})
			deq := compile(t, g, nil, fetches{first}, nil, Options{})
			third := make(chan error, 1)
			for i := range 2 {
				if _, err := enq.Run(ctx, s, tensor.Scalar(float64(i))); err != nil {
					t.Fatal(err)
				}
			}
			go func() {
				_, err := enq.Run(ctx, s, tensor.Scalar(2.0))
				third <- err
			}()
			synctest.Wait()
			if s.QueueLen(q) != 2 {
				t.Fatal("the queue holds more than its capacity")
			}
			s.CloseQueue(q, cancel)
			n := 3
			if cancel {
				n = 2
			}
			for i := range n {
				out, err := deq.Run(ctx, s)
				if err != nil || tensor.Flat[float64](out[0])[0] != float64(i) {
					t.Fatal(i, out, err)
				}
			}
			if _, err := deq.Run(ctx, s); !errors.Is(err, ErrEnd) {
				t.Fatal(err)
			}
			if err := <-third; cancel && !errors.Is(err, ErrClosed) || !cancel && err != nil {
				t.Fatal(err)
			}
			if _, err := enq.Run(ctx, s, tensor.Scalar(5.0)); !errors.Is(err, ErrClosed) {
				t.Fatal(err)
			}
		})
	}
}

func TestQueueWaitEndsAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := graph.NewBuilder()
		v := b.Queue("q", 2, graph.Type{DType: graph.F64}).Dequeue()[0]
		begun := time.Now()
		_, err := compile(t, build(t, b), nil, fetches{v}, nil, Options{StepDeadline: 3 * time.Second}).Run(ctx, NewState(StateOptions{}))
		if err == nil || !strings.Contains(err.Error(), `dequeue from "q"`) || !strings.Contains(err.Error(), "3s") || time.Since(begun) != 3*time.Second {
			t.Fatal(err, time.Since(begun))
		}
	})
}

// TestCase10RandomOperations runs random programs on 100 Variables, in which the order of effects alone decides the result: 1,000
// operations, ten times each.
func TestCase10RandomOperations(t *testing.T) {
	const variables, operations, runs = 100, 1000, 10
	seeds := uint64(5)
	if raceEnabled {
		seeds = 1 // the detector makes each some twenty times slower
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 10))
		b := graph.NewBuilder()
		var vs []*graph.Variable
		for i := range variables {
			vs = append(vs, b.Variable(fmt.Sprint("v", i), graph.F64, []int{3}, graph.Constant(float64(i)/variables)))
		}
		var targets fetches
		for range operations {
			var reads fetches
			for range 2 + r.IntN(19) {
				reads = append(reads, graph.Reshape(vs[r.IntN(variables)].Read(), graph.N(1), graph.N(3)))
			}
			v := graph.Mul(graph.Sum(graph.Concat(0, reads...), []int{0}, false), b.Scalar(graph.F64, .05))
			if to := vs[r.IntN(variables)]; r.IntN(2) == 0 {
				targets = append(targets, to.Assign(v))
			} else {
				targets = append(targets, to.AssignAdd(graph.Tanh(v)))
			}
		}
		var last fetches
		for _, v := range vs {
			last = append(last, v.Read())
		}
		g := build(t, b)
		var oracle []*tensor.Tensor
		for _, o := range []Options{{Serial: true, Plain: true}, {CPU: cpu(t, 1)}, {CPU: cpu(t, 2), Grain: 2000}, {CPU: cpu(t, 8), Grain: 1000}} {
			s := NewState(StateOptions{})
			if err := s.Init(g); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			p := compile(t, g, nil, last, targets, o)
			var got []*tensor.Tensor
			for range runs {
				var err error
				if got, err = p.Run(ctx, s); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			t.Logf("seed %d, %v: %v", seed, o.CPU.Describe(), time.Since(begun))
			if oracle == nil {
				oracle = got
			}
			for i := range got {
				if string(got[i].Bytes()) != string(oracle[i].Bytes()) {
					t.Fatalf("seed %d, %v threads: Variable %d is %v, serial %v", seed, o.CPU.Describe(), i, got[i], oracle[i])
				}
			}
		}
	}
}

func TestCase11EffectsInCreationOrder(t *testing.T) {
	for _, o := range variants(t) {
		b := graph.NewBuilder()
		A, B, C, D := b.Variable("A", graph.F64, nil, graph.Constant(1)), b.Variable("B", graph.F64, nil, graph.Zeros()), b.Variable("C", graph.F64, nil, graph.Zeros()), b.Variable("D", graph.F64, nil, graph.Zeros())
		c := func(x float64) graph.Value { return b.Scalar(graph.F64, x) }
		targets := fetches{B.Assign(graph.Add(A.Read(), c(1))), C.Assign(graph.Add(A.Read(), c(2))), A.Assign(graph.Mul(C.Read(), c(2))), D.Assign(graph.Add(A.Read(), c(3)))}
		g := build(t, b)
		s := NewState(StateOptions{})
		if err := s.Init(g); err != nil {
			t.Fatal(err)
		}
		if _, err := compile(t, g, nil, nil, targets, o).Run(ctx, s); err != nil {
			t.Fatal(err)
		}
		for v, want := range map[*graph.Variable]float64{A: 6, B: 2, C: 3, D: 9} {
			if got, _, err := s.Get(v); err != nil || tensor.Flat[float64](got)[0] != want {
				t.Fatalf("%s is %v, want %v (%v)", v.Name, got, want, err)
			}
		}
		p := compile(t, g, nil, nil, targets[2:3], o)
		for range 8 { // Init and the first step were writes 1 and 2
			if _, err := p.Run(ctx, s); err != nil {
				t.Fatal(err)
			}
		}
		if _, version, _ := s.Get(A); version != 10 {
			t.Fatalf("version %d after ten writes", version)
		}
	}
}

func TestCase12FailedNode(t *testing.T) {
	b := graph.NewBuilder()
	v := b.Variable("v", graph.F64, []int{2}, graph.Zeros())
	table, i := b.Input("table", graph.F64, graph.N(3)), b.Input("i", graph.I64, graph.N(2))
	var row, up graph.Value
	up = v.AssignAdd(b.Const(graph.Fill(graph.F64, 1, 2)))
	b.With(graph.Scope{Control: fetches{up}}, func() { row = graph.Gather(table, i) })
	out := graph.Neg(row)
	g := build(t, b)
	for _, o := range variants(t) {
		s := NewState(StateOptions{})
		if err := s.Init(g); err != nil {
			t.Fatal(err)
		}
		p := compile(t, g, fetches{table, i}, fetches{out}, nil, o)
		tab := f64s(l{1, 2, 3}, 3)
		step := Step{ID: 4, Requester: 9}
		run := func(idx ...int64) error {
			return p.RunStep(ctx, s, step, []*tensor.Tensor{tab, i64s(idx...)}, make([]*tensor.Tensor, 1), nil)
		}
		err := run(0, 3)
		var e *NodeError
		if !errors.As(err, &e) || e.Op != "Gather" || e.Step != 4 || !strings.Contains(err.Error(), "index 1 is 3, want 0 to 2") || !strings.Contains(err.Error(), "/cpu:0") {
			t.Fatal(err)
		}
		if len(e.Written) != 1 || e.Written[0] != "v" {
			t.Fatal("written:", e.Written)
		}
		if err := run(0, 2); err != nil {
			t.Fatal(err)
		}
		if got, version, _ := s.Get(v); version != 2 || tensor.Flat[float64](got)[0] != 1 {
			t.Fatal("the retry of a step wrote again:", got, version)
		}
		step.ID++
		if err := run(0, 1); err != nil {
			t.Fatal(err)
		}
		if _, version, _ := s.Get(v); version != 3 {
			t.Fatal("the next step did not write")
		}
	}
}

func TestKernelPanicLeavesStateUsable(t *testing.T) {
	b := graph.NewBuilder()
	v := b.Variable("v", graph.F64, []int{2}, graph.Constant(3))
	up := v.Apply("odd", v.Read(), nil)
	g := build(t, b)
	angry := true
	rules := map[string]Rule{"odd": func(u *Update) error {
		if angry {
			panic("odd number")
		}
		u.F64.P[0] += 2
		return nil
	}}
	for _, o := range variants(t) {
		angry = true
		o.Rules = rules
		s := NewState(StateOptions{})
		if err := s.Init(g); err != nil {
			t.Fatal(err)
		}
		p := compile(t, g, nil, fetches{up}, nil, o)
		_, err := p.Run(ctx, s)
		var e *PanicError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "odd number") || len(e.Stack) == 0 {
			t.Fatal(err)
		}
		angry = false
		if _, err := p.Run(ctx, s); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := s.Get(v); tensor.Flat[float64](got)[0] != 5 {
			t.Fatal(got)
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

func TestCase22Segments(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F32, graph.N(2), graph.N(2))
	h := x
	var ws fetches
	for i := range 3 {
		w := b.Recv(fmt.Sprint("w", i), "/job:ps", graph.Type{DType: graph.F32, Shape: graph.Of(2, 2)})
		ws = append(ws, w)
		h = graph.Tanh(graph.MatMul(h, w))
	}
	d := grads(sum(h), ws...)
	g := build(t, b)
	meet := NewLocal()
	p := compile(t, g, fetches{x}, d, nil, Options{Rendezvous: meet, Device: "/job:worker/cpu:0"})
	if segs := p.Segments(); len(segs) != 3 {
		t.Fatalf("%d segments: %v", len(segs), segs)
	}
	id := f64s(l{1, 0, 0, 1}, 2, 2)
	eye := graphtest.FromTensor(id).Tensor(graph.F32)
	go func() { // any order, after or before the step begins
		for _, i := range []int{2, 0, 1} {
			if err := meet.Send(Key{Step: 7, Edge: fmt.Sprint("w", i)}, eye.Clone()); err != nil {
				t.Error(err)
			}
		}
	}()
	if err := p.RunStep(ctx, nil, Step{ID: 7}, []*tensor.Tensor{eye}, make([]*tensor.Tensor, 3), nil); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		err := p.RunStep(ctx, nil, Step{ID: 8}, []*tensor.Tensor{eye}, make([]*tensor.Tensor, 3), nil)
		if err == nil || !strings.Contains(err.Error(), "/job:ps") || !strings.Contains(err.Error(), "step 8") {
			t.Fatal(err)
		}
	})
}

func TestRendezvousCase6(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewLocal()
		one := tensor.Scalar(1.0)
		k := func(e string) Key { return Key{Step: 1, Edge: e} }
		var got []string
		recv := func(ctx context.Context, e string) {
			m.Recv(ctx, k(e), func(x *tensor.Tensor, err error) { got = append(got, fmt.Sprint(e, x != nil)+fmt.Sprint(err)) })
		}
		if err := m.Send(k("a"), one); err != nil {
			t.Fatal(err)
		}
		recv(ctx, "a")
		recv(ctx, "b")
		if err := m.Send(k("b"), one); err != nil {
			t.Fatal(err)
		}
		if err := m.Send(k("b"), one); !errors.Is(err, ErrKeyUsed) {
			t.Fatal(err)
		}
		recv(ctx, "b")
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		recv(short, "c")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		recv(ctx, "d")
		m.Abort(1, errors.New("ps/0 died"))
		recv(ctx, "e")
		m.End(1)
		want := []string{"atrue<nil>", "btrue<nil>", `bfalseexec: receive "b" of step 1: the key was used before`,
			`cfalseexec: receive "c" of step 1: nobody sent it: context deadline exceeded`, `dfalseexec: receive "d" of step 1: ps/0 died`, `efalseexec: receive "e" of step 1: ps/0 died`}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
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

// TestCase31CompileIsLinear compares the time to compile 10,000 and 100,000 nodes: ten times the nodes, at most 13 times the time.
func TestCase31CompileIsLinear(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector's own memory makes large graphs slower")
	}
	graphs := map[int]func() time.Duration{}
	evict := make([]byte, 64<<20)
	for _, n := range []int{10000, 100000} {
		b := graph.NewBuilder()
		x := b.Input("x", graph.F32, graph.N(4))
		vs := fetches{x}
		r := rand.New(rand.NewPCG(1, uint64(n)))
		for range n {
			a, c := vs[max(0, len(vs)-1-r.IntN(30))], vs[max(0, len(vs)-1-r.IntN(30))]
			switch r.IntN(4) {
			case 0:
				vs = append(vs, graph.Add(a, c))
			case 1:
				vs = append(vs, graph.Tanh(a))
			case 2:
				vs = append(vs, graph.Softmax(a))
			default:
				vs = append(vs, graph.Mul(a, b.Scalar(graph.F32, float64(r.IntN(5)))))
			}
		}
		g := build(t, b)
		last := fetches{sum(vs[len(vs)-1])}
		last = vs[len(vs)-20:]
		graphs[n] = func() time.Duration {
			runtime.GC() // how often the collector runs, and over how much, depends on all that the test holds
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			for i := 0; i < len(evict); i += 64 { // the small graph would start in cache, which the large one does not fit
				evict[i]++
			}
			begun := time.Now()
			compile(t, g, fetches{x}, last, nil, Options{})
			return time.Since(begun)
		}
	}
	small, large, ratio := time.Hour, time.Hour, 0.0
	for round := range 25 { // until noise has spared both once
		small, large = min(small, graphs[10000]()), min(large, graphs[100000]())
		if ratio = float64(large) / float64(small); round >= 6 && ratio <= 13 {
			break
		}
	}
	t.Logf("10,000 nodes in %v, 100,000 in %v: %.1f times", small, large, ratio)
	if ratio > 13 {
		t.Fatalf("ten times the nodes took %.1f times the time, want at most 13", ratio)
	}
}
