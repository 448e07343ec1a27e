package exec

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

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
	if err := s.SetAccumulatorStep(a, 5); err != nil || add(4, 1) || !add(5, 1) {
		t.Fatal("moved to step 5, it must drop 4 and count 5:", err)
	}
	if step, held, dropped := s.AccumulatorStep(a); step != 5 || held != 2 || dropped != 2 {
		t.Fatalf("step %d, %d held, %d dropped, want 5, 2 and 2", step, held, dropped)
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
	const variables, operations = 100, 1000
	seeds, runs := uint64(2), 10
	if raceEnabled {
		seeds, runs = 1, 3 // the detector makes each some twenty times slower
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
			t.Logf("seed %d, %d threads: %v", seed, o.CPU.Threads(), time.Since(begun))
			if oracle == nil {
				oracle = got
			}
			for i := range got {
				if string(got[i].Bytes()) != string(oracle[i].Bytes()) {
					t.Fatalf("seed %d, %d threads: Variable %d is %v, serial %v", seed, o.CPU.Threads(), i, got[i], oracle[i])
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

// A failure in a Scan's body lists what the step had written around it.
func TestFailureInABodyListsWrites(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F64, graph.N(1), graph.N(2))
	v := b.Variable("v", graph.F64, nil, graph.Zeros())
	up := v.AssignAdd(b.Scalar(graph.F64, 1)) // version 2: outside of the table, so that the body fails behind the write
	_, ys := graph.Scan(nil, fetches{x}, func(_, x []graph.Value) (next, y []graph.Value) {
		return nil, fetches{graph.Gather(x[0], up)}
	})
	g := build(t, b)
	for _, o := range variants(t) {
		s := NewState(StateOptions{})
		if err := s.Init(g); err != nil {
			t.Fatal(err)
		}
		_, err := compile(t, g, fetches{x}, ys, nil, o).Run(ctx, s, f64s([]float64{1, 2}, 1, 2))
		var e *NodeError
		if !errors.As(err, &e) || e.Op != "Gather" || len(e.Written) != 1 || e.Written[0] != "v" {
			t.Fatalf("%v, want a failed Gather, and v written", err)
		}
	}
}

// Effects that an Eval reaches through what depends on them happen once in a trace, however many Evals follow.
func TestLazyRunsAnEffectOnce(t *testing.T) {
	s := NewState(StateOptions{})
	e := graph.NewBuilder()
	x := e.Input("x", graph.F64)
	put := e.Queue("q", 2, graph.Type{DType: graph.F64}).Enqueue(x)
	fill := compile(t, build(t, e), fetches{x}, nil, fetches{put}, Options{})
	for _, v := range []float64{5, 7} {
		if _, err := fill.Run(ctx, s, tensor.Scalar(v)); err != nil {
			t.Fatal(err)
		}
	}
	z := NewLazy(s, Options{})
	b := z.Builder()
	v, in := b.Variable("v", graph.F64, nil, graph.Zeros()), z.Input(tensor.Scalar(2.))
	up := v.AssignAdd(b.Scalar(graph.F64, 1))
	var first, second graph.Value
	b.With(graph.Scope{Control: fetches{up}}, func() { first, second = graph.Neg(in), graph.Square(in) })
	entry := b.Queue("q", 2, graph.Type{DType: graph.F64}).Dequeue()[0]
	for _, c := range []struct {
		y    graph.Value
		want float64
	}{{first, -2}, {second, 4}, {graph.Neg(entry), -5}, {graph.Square(entry), 25}} {
		out, err := z.Eval(ctx, c.y)
		if err != nil || tensor.Flat[float64](out[0])[0] != c.want {
			t.Fatalf("%v, %v, want %v", out, err, c.want)
		}
	}
	if got, _, err := s.Get(v); err != nil || tensor.Flat[float64](got)[0] != 1 {
		t.Fatalf("added more than once: %v, %v", got, err)
	}
}

// An effect that gives nothing happens once as well: before what follows it on its resource, under what depends on it, or asked for itself.
func TestLazyRunsAnEffectWithoutAResultOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a Dequeue that nothing was put before waits until the deadline
		s := NewState(StateOptions{})
		z := NewLazy(s, Options{})
		b := z.Builder()
		q, in := b.Queue("q", 9, graph.Type{DType: graph.F64}), z.Input(tensor.Scalar(2.))
		var first, second graph.Value
		b.With(graph.Scope{Control: fetches{q.Enqueue(in)}}, func() { first, second = graph.Neg(in), graph.Square(in) })
		again := q.Enqueue(graph.Exp(b.Scalar(graph.F64, 0)))
		taken, other := q.Dequeue()[0], q.Dequeue()[0]
		for _, c := range []struct {
			y            graph.Value
			want, queued float64
		}{{first, -2, 1}, {second, 4, 1}, {taken, 2, 1}, {graph.Neg(other), -1, 0}, {graph.Neg(in), -2, 0}} {
			out, err := z.Eval(ctx, c.y)
			if err != nil || tensor.Flat[float64](out[0])[0] != c.want || float64(s.QueueLen(q)) != c.queued {
				t.Fatalf("%v, %v, %d queued, want %v", out, err, s.QueueLen(q), c)
			}
		}
		for range 2 {
			if _, err := z.Eval(ctx, again); err != nil || s.QueueLen(q) != 0 {
				t.Fatalf("put again: %v, %d queued", err, s.QueueLen(q))
			}
		}
		if _, err := z.Eval(ctx, q.Enqueue(in), first); err != nil || s.QueueLen(q) != 1 {
			t.Fatalf("not put: %v, %d queued", err, s.QueueLen(q))
		}
	})
}

// An Eval that fails behind effects has had them: what follows gets their results, and none of them happens again. The failed Eval is of a
// program that was compiled of another trace, whose nodes had other numbers.
func TestLazyKeepsTheEffectsOfAFailedEval(t *testing.T) {
	z := NewLazy(NewState(StateOptions{}), Options{})
	for before := range 2 {
		z.Reset()
		b := z.Builder()
		for range before {
			b.Scalar(graph.F64, 3) // of no use
		}
		v, q := b.Variable("v", graph.F64, nil, graph.Zeros()), b.Queue("q", 9, graph.Type{DType: graph.F64})
		index := i64s(2)
		table, at := z.Input(f64s(l{5, 6}, 2)), z.Input(index)
		old, up := v.Read(), v.AssignAdd(b.Scalar(graph.F64, 1))
		first := q.Enqueue(b.Scalar(graph.F64, 7))
		second, taken := q.Enqueue(b.Scalar(graph.F64, 8)), q.Dequeue()[0]
		var row graph.Value
		b.With(graph.Scope{Control: fetches{up, first, second, taken}}, func() { row = graph.Gather(table, at) })
		if _, err := z.Eval(ctx, row); err == nil || !strings.Contains(err.Error(), "index 0 is 2") {
			t.Fatal(err)
		}
		tensor.Flat[int64](index)[0] = 1
		out, err := z.Eval(ctx, row, old, taken)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []float64{6, float64(before), 7} {
			if got := tensor.Flat[float64](out[i])[0]; got != want {
				t.Errorf("trace %d, value %d is %v, want %v", before, i, got, want)
			}
		}
		if got, _, err := z.state.Get(v); err != nil || tensor.Flat[float64](got)[0] != float64(before+1) || z.state.QueueLen(q) != 1 {
			t.Errorf("trace %d: %v, %d queued, %v: an effect happened twice", before, got, z.state.QueueLen(q), err)
		}
		if out, err := z.Eval(ctx, q.Dequeue()[0]); err != nil || tensor.Flat[float64](out[0])[0] != 8 {
			t.Fatal(out, err)
		}
	}
	if n := z.Stats(); n.Compiled != 3 {
		t.Errorf("%d programs were compiled, want 3: one of each Eval, for both traces", n.Compiled)
	}
}

// A trace that declares a Variable otherwise than the State has it is refused, also when one of its structure was compiled.
func TestLazyRefusesAVariableOfAnotherShape(t *testing.T) {
	z := NewLazy(NewState(StateOptions{}), Options{})
	eval := func(shape ...int) error {
		z.Reset()
		_, err := z.Eval(ctx, z.Builder().Variable("w", graph.F64, shape, graph.Zeros()).Read())
		return err
	}
	if err := eval(2, 3); err != nil {
		t.Fatal(err)
	}
	if err := eval(3, 2); err == nil || !strings.Contains(err.Error(), `Variable "w"`) {
		t.Fatal("no error about w:", err)
	}
}

// A value of an earlier trace is refused, also when a trace of the same structure was compiled.
func TestLazyRefusesAValueOfAnotherTrace(t *testing.T) {
	z := NewLazy(NewState(StateOptions{}), Options{})
	trace := func(x float64) (h, y graph.Value) {
		z.Reset()
		h = graph.Square(z.Input(tensor.Scalar(x)))
		return h, graph.Neg(h)
	}
	old, y := trace(2)
	if _, err := z.Eval(ctx, old, y); err != nil {
		t.Fatal(err)
	}
	_, y = trace(3)
	if out, err := z.Eval(ctx, y, old); err == nil || !strings.Contains(err.Error(), "not a value of this trace") {
		t.Fatalf("%v, %v", out, err)
	}
}
