package exec

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/autodiff"
	"github.com/trivium-ml/trivium/graph/graphtest"
	"github.com/trivium-ml/trivium/tensor"
)

// TestImagesWithoutRows: what a convolution sees of them is padding, and their gradient has no elements to divide among threads.
func TestImagesWithoutRows(t *testing.T) {
	b := graph.NewBuilder()
	x, f := b.Input("x", graph.F64, graph.Of(9, 0, 1, 1)...), b.Input("f", graph.F64, graph.Of(1, 1, 1, 1)...)
	y := graph.Conv2D(x, f, graph.Value{}, graph.Linear, graph.Window{Pads: [4]int{1, 0, 0, 0}})
	g := grads(sum(y), x, f)
	want(t, b, map[graph.Value]*tensor.Tensor{x: tensor.New(graph.F64, 9, 0, 1, 1), f: graphtest.Of([]float64{3}, 1, 1, 1, 1).Tensor(graph.F64)},
		sum(y), []float64{0}, g[0], []float64{}, g[1], []float64{0})
}

// TestFoldsKernelsThatCutForThreads: a constant node may be one whose work is cut by the number of threads.
func TestFoldsKernelsThatCutForThreads(t *testing.T) {
	b := graph.NewBuilder()
	w := b.Input("w", graph.F64, graph.N(3), graph.N(1))
	indptr, indices, values := graph.ConstOf(b, []int64{0, 2}, 2), graph.ConstOf(b, []int64{0, 2}, 2), graph.ConstOf(b, []float64{7, 9}, 2)
	y := graph.SparseMatMul(indptr, indices, values, w)
	g := autodiff.Gradients(y, []graph.Value{w}, autodiff.Options{Dense: true, Seed: graph.ConstOf(b, []float64{1}, 1, 1)})[0].Dense
	want(t, b, map[graph.Value]*tensor.Tensor{w: tensor.New(graph.F64, 3, 1)}, g, []float64{7, 0, 9})
}

// TestVariableOfAnotherGraph: two graphs may have a Variable of one name in a State only if it is the same one.
func TestVariableOfAnotherGraph(t *testing.T) {
	s := NewState(StateOptions{})
	b := graph.NewBuilder()
	b.Variable("w", graph.F32, []int{2}, graph.Zeros())
	if err := s.Init(build(t, b)); err != nil {
		t.Fatal(err)
	}
	for name, use := range map[string]func(b *graph.Builder, w *graph.Variable) graph.Value{
		"read": func(_ *graph.Builder, w *graph.Variable) graph.Value { return graph.Exp(w.Read()) },
		"assign": func(b *graph.Builder, w *graph.Variable) graph.Value {
			return w.Assign(b.Const(graph.Fill(graph.F32, 1, 1000)))
		},
		"add": func(b *graph.Builder, w *graph.Variable) graph.Value {
			return w.AssignAdd(b.Const(graph.Fill(graph.F32, 1, 1000)))
		},
	} {
		b := graph.NewBuilder()
		v := use(b, b.Variable("w", graph.F32, []int{1000}, graph.Zeros()))
		_, err := compile(t, build(t, b), nil, fetches{v}, nil, Options{}).Run(ctx, s)
		if err == nil || !strings.Contains(err.Error(), `Variable "w" is f32[2] in this State, and f32[1000] in the graph`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b = graph.NewBuilder()
	w := b.Variable("w", graph.F32, []int{3}, graph.Zeros())
	build(t, b)
	if err := s.Set(w, tensor.New(graph.F32, 3)); err == nil {
		t.Error("Set of another shape")
	}
}

// TestAccumulatorOfAnotherGraph: as of Variables. A smaller gradient was added to the first cells of a larger sum.
func TestAccumulatorOfAnotherGraph(t *testing.T) {
	s := NewState(StateOptions{})
	for _, n := range []int{3, 2} {
		b := graph.NewBuilder()
		counted := b.Accumulator("acc", graph.F64, n).Apply(graph.ConstOf(b, []int64{0}), b.Const(graph.Fill(graph.F64, 1, n)))
		_, err := compile(t, build(t, b), nil, fetches{counted}, nil, Options{}).Run(ctx, s)
		if n == 3 && err != nil || n == 2 && (err == nil || !strings.Contains(err.Error(), `accumulator "acc" is f64[3] in this State, and f64[2] in the graph`)) {
			t.Errorf("of %d: %v", n, err)
		}
	}
}

// TestAssignedAndAddedTo: a step that assigns a Variable, adds to it and reads it needs no value from before.
func TestAssignedAndAddedTo(t *testing.T) {
	b := graph.NewBuilder()
	v := b.Variable("v", graph.F64, nil, graph.Zeros())
	targets := fetches{v.Assign(b.Scalar(graph.F64, 2)), v.AssignAdd(b.Scalar(graph.F64, 3))}
	read := v.Read()
	out, err := compile(t, build(t, b), nil, fetches{read}, targets, Options{}).Run(ctx, NewState(StateOptions{}))
	if err != nil || tensor.Flat[float64](out[0])[0] != 5 {
		t.Fatal(out, err)
	}
}

// TestNoState: a program of Variables says that it needs a State, also on a first step.
func TestNoState(t *testing.T) {
	b := graph.NewBuilder()
	w := b.Variable("w", graph.F32, []int{2}, graph.Zeros())
	read := graph.Exp(w.Read())
	p := compile(t, build(t, b), nil, fetches{read}, nil, Options{})
	for range 2 {
		if _, err := p.Run(ctx, nil); err == nil || !strings.Contains(err.Error(), "needs a State") {
			t.Fatal(err)
		}
	}
}

// TestSizeOfAnUnboundAxis: the size of an axis that no feed has is an error, and not a number.
func TestSizeOfAnUnboundAxis(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F64, graph.Axis("batch"))
	total := sum(x)
	mean := graph.Div(total, b.Size(graph.F64, graph.Axis("batch")))
	p := compile(t, build(t, b), fetches{total}, fetches{mean}, nil, Options{})
	if out, err := p.Run(ctx, NewState(StateOptions{}), tensor.Scalar(6.0)); err == nil || !strings.Contains(err.Error(), "no feed gives the size of axis batch") {
		t.Fatal(out, err)
	}
}

// TestTakesInTurn: who waits behind a take that gave up is served by what is there.
func TestTakesInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := graph.NewBuilder()
		r := b.Accumulator("acc", graph.F64)
		s := NewState(StateOptions{})
		a := s.accumulator(r.Resource)
		first, giveUp := context.WithCancel(ctx)
		got := make([]error, 2)
		a.take(first, 5, func(_ []*tensor.Tensor, err error) { got[0] = err })
		a.take(ctx, 2, func(_ []*tensor.Tensor, err error) { got[1] = err })
		for range 3 {
			a.apply(0, nil, slotOf(tensor.Scalar(1.0)))
		}
		giveUp()
		synctest.Wait()
		if got[0] == nil || got[1] != nil || a.step != 1 {
			t.Fatal(got, a.step)
		}
	})
}

// TestAccumulatorOfManyRows: a row that repeats in a gradient counts once for it, without a search among those before it. Of as many rows as
// here that search took minutes.
func TestAccumulatorOfManyRows(t *testing.T) {
	const n = 1 << 20
	b := graph.NewBuilder()
	r := b.Accumulator("acc", graph.F32, n)
	r.MeanPerRow = true
	a := NewState(StateOptions{}).accumulator(r.Resource)
	rows, ones := make([]int32, n+1), tensor.New(graph.F32, n+1)
	for i := range rows {
		rows[i] = int32(i % n) // row 0 twice
		tensor.Flat[float32](ones)[i] = 1
	}
	for range 2 {
		a.apply(0, rows, slotOf(ones))
	}
	a.apply(0, rows[:1], slotOf(tensor.Scalar[float32](5)))
	var mean []float32
	a.take(ctx, 3, func(out []*tensor.Tensor, _ error) { mean = tensor.Flat[float32](out[0]) })
	if mean[0] != 3 || mean[1] != 1 || mean[n-1] != 1 { // (2 + 2 + 5) / 3, (1 + 1) / 2
		t.Fatal(mean[0], mean[1], mean[n-1])
	}
}

// TestRefusedTypes: what no kernel can do is refused when the graph is built.
func TestRefusedTypes(t *testing.T) {
	for what, make := range map[string]func(b *graph.Builder){
		"gradients are f32 or f64": func(b *graph.Builder) { b.Accumulator("n", graph.I64, 3) },
		"that type is for storage": func(b *graph.Builder) { graph.OneHot(b.Input("i", graph.I64, graph.N(2)), 4, graph.BF16) },
	} {
		b := graph.NewBuilder()
		make(b)
		if _, err := b.Build(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
}

// TestLossBeforeReceivedGradient: a loss that another device needs to send its gradient does not wait for that gradient.
func TestLossBeforeReceivedGradient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := graph.NewBuilder()
		x := b.Input("x", graph.F32, graph.Of(2, 3)...)
		loss := graph.SoftmaxCrossEntropy(x, graph.ConstOf(b, []int32{1, 2}, 2))
		send := graph.Send(loss, "loss", "/cpu:1")
		dy := b.Recv("dy", "/cpu:1", graph.Type{DType: graph.F32, Shape: graph.Of(2)})
		dx := autodiff.Gradients(loss, []graph.Value{x}, autodiff.Options{Dense: true, Seed: dy})[0].Dense
		meet := NewLocal()
		p := compile(t, build(t, b), fetches{x}, fetches{dx}, fetches{send}, Options{Rendezvous: meet})
		meet.Recv(ctx, Key{Edge: "loss"}, func(got *tensor.Tensor, err error) {
			if err == nil {
				err = meet.Send(Key{Edge: "dy"}, got)
			}
			if err != nil {
				t.Error(err)
			}
		})
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if _, err := p.Run(limited, NewState(StateOptions{}), tensor.New(graph.F32, 2, 3)); err != nil {
			t.Fatal(err)
		}
	})
}

// TestMaxOfNaN: what is not a number stays so on either side, as a vector and as a number: else a bound would hide a loss that blew up.
// torch.maximum(torch.tensor([nan, 1, nan, inf, 2]), torch.tensor([1, nan, inf, nan, 1])) is [nan, nan, nan, nan, 2]; tf.maximum and
// ONNX's Max agree.
func TestMaxOfNaN(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, dt := range []graph.DType{graph.F32, graph.F64} {
		l := newLab(t, dt, 1, 1)
		list := func(v ...float64) graph.Value {
			return l.input(dt, graph.Of(len(v)), []int{len(v)}, func(i int) float64 { return v[i] })
		}
		a, b, none := list(nan, 1, nan, inf, 2), list(1, nan, inf, nan, 1), list(nan)
		three, nothing := l.b.Scalar(dt, 3), l.b.Scalar(dt, nan)
		out := fetches{
			graph.Max(a, b), graph.Max(b, a), graph.Max(a, three), graph.Max(three, a),
			graph.Max(a, none), graph.Max(none, a), graph.Max(a, nothing), graph.Max(nothing, a),
		}
		all, some := []float64{nan, nan, nan, nan, nan}, []float64{nan, 3, nan, inf, 3}
		check(t, l, out, [][]float64{{nan, nan, nan, nan, 2}, {nan, nan, nan, nan, 2}, some, some, all, all, all, all})
	}
}

// TestMaximaOfNothingAndNaN: over no elements, as in a batch without rows, the maximum is -Inf and its index -1; a NaN is the maximum,
// and its index that of the first. torch.argmax(torch.tensor([[3, nan, 1], [nan, 2, nan]]), 1) is [1, 0].
func TestMaximaOfNothingAndNaN(t *testing.T) {
	nan, low := math.NaN(), math.Inf(-1)
	for _, dt := range []graph.DType{graph.F32, graph.F64} {
		l := newLab(t, dt, 1, 1)
		list := []float64{3, nan, 1, nan, 2, nan}
		a := l.input(dt, graph.Of(2, 3), []int{2, 3}, func(i int) float64 { return list[i] })
		pool := graph.MaxPool(graph.Reshape(a, graph.N(1), graph.N(2), graph.N(3), graph.N(1)), 2, 2, graph.Window{})
		none := l.dyn("n", 0, 1, 0, 3)
		flat := l.in(0, 1, 2, 0)
		out := fetches{
			graph.ReduceMax(none, []int{0}, false), graph.ArgMax(none, 0, false), graph.ReduceMax(flat, []int{1}, false), graph.ArgMax(flat, 1, false),
			graph.ReduceMax(a, []int{1}, false), graph.ArgMax(a, 1, false), graph.ArgMax(a, 0, false),
			pool, pool.Output(1),
		}
		expect := [][]float64{{low, low, low}, {-1, -1, -1}, {low, low}, {-1, -1}, {nan, nan}, {1, 0}, {1, 0, 1}, {nan}, {1}}
		check(t, l, out, expect)
	}
}

// TestReLUGradOfWhatIsNotFinite: where ReLU was 0 nothing comes through, an infinity and a NaN neither.
func TestReLUGradOfWhatIsNotFinite(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, dt := range []graph.DType{graph.F32, graph.F64} {
		l := newLab(t, dt, 1, 1)
		list := func(v ...float64) graph.Value {
			return l.input(dt, graph.Of(len(v)), []int{len(v)}, func(i int) float64 { return v[i] })
		}
		check(t, l, fetches{graph.ReLUGrad(list(inf, nan, -inf, nan, 3), list(0, 0, 2, 1, nan))}, [][]float64{{0, 0, -inf, nan, 0}})
	}
}

// TestReductionsOfNothing folds any axes of shapes in which some have no elements, as in a batch without rows.
func TestReductionsOfNothing(t *testing.T) {
	for code := range 27 {
		compareOp(t, func(l *lab) (out fetches) {
			x := l.in(-1, 1, code%3, code/3%3, code/9)
			for _, axes := range [][]int{{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}} {
				out = append(out, graph.Sum(x, axes, false), graph.Mean(x, axes, true), graph.ReduceMax(x, axes, false))
			}
			return out
		}, []graph.DType{graph.F32, graph.F64}[code%2], 1)
	}
}

// check runs l's graph in every way, the oracle's too: the numbers of out have to be these.
func check(t *testing.T, l *lab, out fetches, expect [][]float64) {
	t.Helper()
	g := build(t, l.b)
	in := graphtest.Feeds{}
	for i, v := range l.feeds {
		in[v] = graphtest.FromTensor(l.data[i])
	}
	oracle, err := graphtest.Eval(g, in, out...)
	if err != nil {
		t.Fatal(err)
	}
	for k, o := range variants(t) {
		got, err := compile(t, g, l.feeds, out, nil, o).Run(ctx, nil, l.data...)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range expect {
			have, ref := graphtest.FromTensor(got[i]).Data, oracle[i].Data
			if fmt.Sprint(have) != fmt.Sprint(want) || fmt.Sprint(ref) != fmt.Sprint(want) {
				t.Errorf("%v, variant %d, result %d: %v, and %v of the oracle; want %v", l.dt, k, i, have, ref, want)
			}
		}
	}
}

// unlocked is a Local that refuses a tensor sent while the memory of its step is locked: who receives it notes that there.
type unlocked struct {
	*Local
	s *State
}

func (u unlocked) Send(k Key, t *tensor.Tensor) error {
	o := u.s.steps.of(stepKey{k.Incarnation, k.Step})
	if !o.mu.TryLock() {
		return errors.New("the memory of the step is locked")
	}
	o.mu.Unlock()
	return u.Local.Send(k, t)
}

// TestStepThatSendsToItself: a Send wakes a Recv of the same step, which has its outcome remembered as well; a repeated step gets it again.
func TestStepThatSendsToItself(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F64)
	got := graph.Neg(b.Recv("k", "/cpu:0", graph.Type{DType: graph.F64}))
	send := graph.Send(graph.Exp(x), "k", "/cpu:0")
	s := NewState(StateOptions{})
	p := compile(t, build(t, b), fetches{x}, fetches{got}, fetches{send}, Options{Rendezvous: unlocked{NewLocal(), s}})
	for range 2 {
		out := make([]*tensor.Tensor, 1)
		if err := p.RunStep(ctx, s, Step{ID: 3, Requester: 9}, []*tensor.Tensor{tensor.Scalar(0.)}, out, nil); err != nil {
			t.Fatal(err)
		}
		if v := tensor.Flat[float64](out[0])[0]; v != -1 {
			t.Fatal(v)
		}
	}
}

// TestStepOfTwoGraphs: two graphs that share a State may have steps of one number, and a node of one is none of the other's. A graph that
// is decoded again is the same.
func TestStepOfTwoGraphs(t *testing.T) {
	s := NewState(StateOptions{})
	for i, x := range []float64{5, 7} {
		b := graph.NewBuilder()
		v := b.Variable("v", graph.F64, nil, graph.Zeros())
		up := v.Assign(b.Scalar(graph.F64, x))
		g := build(t, b)
		again, err := graph.Decode(g.Encode())
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range []*graph.Graph{g, again} {
			p := compile(t, g, nil, nil, fetches{g.Value(up.Node(), 0)}, Options{})
			if err := p.RunStep(ctx, s, Step{ID: 1, Requester: 9}, nil, nil, nil); err != nil {
				t.Fatal(err)
			}
			if got, version, err := s.Get(v); err != nil || tensor.Flat[float64](got)[0] != x || version != int64(i+1) {
				t.Fatalf("graph %d: %v of version %d, %v; want %v", i, got, version, err, x)
			}
		}
	}
}

// TestAStepKeepsNothingOfTheCallers: the memory that a program keeps for its next step does not keep feeds and results alive, those of a
// Scan's body and of a sparse product neither.
func TestAStepKeepsNothingOfTheCallers(t *testing.T) {
	b := graph.NewBuilder()
	x, ptr := b.Input("x", graph.F64, graph.N(2), graph.N(3)), b.Input("ptr", graph.I64, graph.N(2))
	_, ys := graph.Scan(nil, fetches{x}, func(_, x []graph.Value) (next, y []graph.Value) { return nil, fetches{graph.Exp(x[0])} })
	flat := graph.Reshape(ys[0], graph.N(6))
	first := graph.SparseMatMul(ptr, graph.ConstOf(b, []int32{1}, 1), graph.ConstOf(b, []float64{2}, 1), graph.Exp(x))
	p := compile(t, build(t, b), fetches{x, ptr}, fetches{flat, first}, nil, Options{})
	var held []weak.Pointer[byte]
	var wg sync.WaitGroup
	wg.Go(func() { // on a stack that is gone afterwards
		feeds := []*tensor.Tensor{tensor.New(graph.F64, 2, 3), i64s(0, 1)}
		dst := []*tensor.Tensor{tensor.New(graph.F64, 6), tensor.New(graph.F64, 1, 3)}
		for _, m := range slices.Concat(feeds, dst) {
			held = append(held, weak.Make(&m.Bytes()[0]))
		}
		if err := p.RunInto(ctx, nil, feeds, dst, nil); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	runtime.GC()
	for i, m := range held {
		if m.Value() != nil {
			t.Errorf("%v, of feeds and results, is kept", i)
		}
	}
	runtime.KeepAlive(p)
}

// TestCastOfLeastIntegers: what int64 holds stays what it is, at both ends, whether the graph runs as written or not.
func TestCastOfLeastIntegers(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.I64, graph.N(4))
	in := []int64{math.MinInt64, math.MinInt64 + 1, math.MaxInt64 - 1, math.MaxInt64}
	y, k := graph.Cast(x, graph.I64), graph.Cast(graph.ConstOf(b, in, 4), graph.I64)
	g := build(t, b)
	for i, o := range variants(t) {
		got, err := compile(t, g, fetches{x}, fetches{y, k}, nil, o).Run(ctx, nil, i64s(in...))
		if err != nil {
			t.Fatal(err)
		}
		for _, out := range got {
			if v := tensor.Flat[int64](out); !slices.Equal(v, in) {
				t.Errorf("variant %d: %v, want %v", i, v, in)
			}
		}
	}
}

// TestAxisTooShort: a size that an axis is too short for is told by its name.
func TestAxisTooShort(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F64, graph.Axis("n"))
	out := graph.Slice(x, graph.Range{Start: 3})
	p := compile(t, build(t, b), fetches{x}, fetches{out}, nil, Options{})
	if _, err := p.Run(ctx, nil, f64s(l{1, 2}, 2)); err == nil || !strings.Contains(err.Error(), `axis 0 would have -1 elements, as axis "n" has 2`) {
		t.Error(err)
	}
}

// TestProgramKeepsItsFeeds: who compiled a program may use the list of feeds for something else.
func TestProgramKeepsItsFeeds(t *testing.T) {
	b := graph.NewBuilder()
	x, y := b.Input("x", graph.F64), b.Input("y", graph.F64, graph.N(2))
	feeds, out := fetches{x}, fetches{graph.Neg(x)}
	p := compile(t, build(t, b), feeds, out, nil, Options{})
	feeds[0] = y
	if _, err := p.Run(ctx, nil, f64s(l{1})); err != nil {
		t.Error(err)
	}
}
