package exec

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/autodiff"
	"github.com/trivium-ml/trivium/tensor"
)

func TestUninitialisedVariablesAreAllNamed(t *testing.T) {
	b := graph.NewBuilder()
	u, v := b.Variable("u", graph.F32, nil, graph.Zeros()), b.Variable("v", graph.F32, nil, graph.Zeros())
	both, up := graph.Add(u.Read(), v.Read()), u.AssignAdd(b.Scalar(graph.F32, 1))
	p := compile(t, build(t, b), nil, fetches{both}, fetches{up}, Options{})
	_, err := p.Run(ctx, NewState(StateOptions{}))
	if !errors.Is(err, ErrUninitialised) || !strings.Contains(err.Error(), `"u" "v"`) {
		t.Fatal(err)
	}
}

func TestCompileNamesEveryMistake(t *testing.T) {
	b, other := graph.NewBuilder(), graph.NewBuilder()
	x, y := b.Input("x", graph.F32), b.Input("y", graph.F32)
	z := other.Input("z", graph.F32)
	out := graph.Add(x, y)
	send := graph.Send(out, "edge", "/cpu:1")
	v := b.Variable("v", graph.F32, nil, graph.Zeros())
	up := v.Apply("sgd", out, nil)
	g := build(t, b)
	for _, c := range []struct {
		feeds, fetches, targets fetches
		want                    []string
	}{
		{nil, fetches{out}, nil, []string{`input "x"`, `input "y"`}},
		{fetches{z, x, x}, fetches{out, z}, nil, []string{"feed 0 (z)", "feed 2 (x) is given twice", "fetch 1 (z)"}},
		{fetches{x, y}, nil, fetches{send, up}, []string{"Options.Rendezvous", `rule "sgd"`}},
		{fetches{x, y, send}, fetches{out}, nil, []string{"feed 2 (Send)"}},
	} {
		_, err := Compile(g, c.feeds, c.fetches, c.targets, Options{})
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("error %v does not say %q", err, w)
			}
		}
	}
	if _, err := Compile(g, nil, nil, nil, Options{Grain: -1, Bindings: -1}); err == nil || !strings.Contains(err.Error(), "Grain") || !strings.Contains(err.Error(), "Bindings") {
		t.Fatal(err)
	}
}

func TestSnapshotIsNotOverwritten(t *testing.T) {
	for _, bound := range []bool{false, true} {
		b := graph.NewBuilder()
		v := b.Variable("v", graph.F64, []int{2}, graph.Constant(1))
		up := v.AssignAdd(b.Const(graph.Fill(graph.F64, 1, 2)))
		g := build(t, b)
		s := NewState(StateOptions{ConcurrentSteps: 1})
		mine := f64s(l{1, 1}, 2)
		if bound {
			if err := s.Bind(v, mine); err != nil {
				t.Fatal(err)
			}
		} else if err := s.Init(g); err != nil {
			t.Fatal(err)
		}
		snap, err := s.Snapshot(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		done, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := s.Snapshot(done, 2); err == nil {
			t.Fatal("a second snapshot beyond ConcurrentSteps")
		}
		p := compile(t, g, nil, fetches{up}, nil, Options{})
		for range 3 {
			if _, err := p.Run(ctx, s); err != nil {
				t.Fatal(err)
			}
		}
		if old, version, _ := snap.Value(v); tensor.Flat[float64](old)[0] != 1 || version != 1 {
			t.Fatalf("bound %v: the snapshot is %v of version %d", bound, old, version)
		}
		if now, version, _ := s.Get(v); tensor.Flat[float64](now)[1] != 4 || version != 4 {
			t.Fatalf("bound %v: now %v of version %d", bound, now, version)
		}
		if bound && tensor.Flat[float64](mine)[0] != 4 {
			t.Fatal("the bound tensor was not written")
		}
		snap.Close()
		snap.Close()
		if snap, err = s.Snapshot(ctx, 3); err != nil {
			t.Fatal(err)
		}
		snap.Close()
	}
}

// TestReadKeepsItsVersion reads a Variable, writes it, and uses the old value afterwards.
func TestReadKeepsItsVersion(t *testing.T) {
	for _, o := range variants(t) {
		b := graph.NewBuilder()
		v := b.Variable("v", graph.F64, []int{2}, graph.Constant(3))
		old := v.Read()
		up := v.Assign(graph.Mul(old, old))
		var after graph.Value
		b.With(graph.Scope{Control: fetches{up}}, func() { after = graph.Add(old, v.Read()) })
		g := build(t, b)
		s := NewState(StateOptions{})
		if err := s.Init(g); err != nil {
			t.Fatal(err)
		}
		out, err := compile(t, g, nil, fetches{after, old}, nil, o).Run(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		if tensor.Flat[float64](out[0])[0] != 12 || tensor.Flat[float64](out[1])[1] != 3 {
			t.Fatal(out)
		}
	}
}

// TestConcurrentStepsLoseNoWrite runs a step on many goroutines at once: each write is one version, and no reader sees half of one.
func TestConcurrentStepsLoseNoWrite(t *testing.T) {
	b := graph.NewBuilder()
	v := b.Variable("v", graph.F64, []int{500}, graph.Zeros())
	up := v.AssignAdd(b.Const(graph.Fill(graph.F64, 1, 500)))
	r := v.Read()
	spread := graph.Sub(graph.ReduceMax(r, nil, false), graph.Neg(graph.ReduceMax(graph.Neg(r), nil, false)))
	g := build(t, b)
	s := NewState(StateOptions{})
	if err := s.Init(g); err != nil {
		t.Fatal(err)
	}
	write := compile(t, g, nil, nil, fetches{up}, Options{CPU: cpu(t, 2)})
	read := compile(t, g, nil, fetches{spread}, nil, Options{CPU: cpu(t, 2), Plain: true})
	var wg sync.WaitGroup
	const goroutines, steps = 8, 50
	for i := range goroutines {
		wg.Go(func() {
			for range steps {
				if _, err := write.Run(ctx, s); err != nil {
					t.Error(err)
				}
				if i%2 == 0 {
					continue
				}
				out, err := read.Run(ctx, s)
				if err != nil || tensor.Flat[float64](out[0])[0] != 0 {
					t.Error("a reader saw half of a write:", out, err)
				}
			}
		})
	}
	wg.Wait()
	got, version, _ := s.Get(v)
	if version != goroutines*steps+1 || tensor.Flat[float64](got)[499] != goroutines*steps {
		t.Fatal(version, tensor.Flat[float64](got)[499])
	}
}

func TestReadyComesOncePerFetchAndBindReachesTheCallersMemory(t *testing.T) {
	m := newMLP(t, graph.F32, 50, 20, 5)
	for _, o := range variants(t) {
		p := m.compile(t, o)
		s := NewState(StateOptions{})
		var grads []*tensor.Tensor
		n := 0
		for _, v := range m.vars {
			n += elements(v.Shape())
		}
		flatParams, flatGrads := make([]float32, n), make([]float32, n)
		r := rand.New(rand.NewPCG(1, 1))
		for i := range flatParams {
			flatParams[i] = r.Float32() - .5
		}
		at := 0
		for _, v := range m.vars {
			k := elements(v.Shape())
			pt, _ := tensor.Of(flatParams[at:at+k], v.Shape()...)
			gt, _ := tensor.Of(flatGrads[at:at+k], v.Shape()...)
			grads, at = append(grads, gt), at+k
			if err := s.Bind(v, pt); err != nil {
				t.Fatal(err)
			}
		}
		dst := append([]*tensor.Tensor{tensor.Scalar[float32](0)}, grads...)
		feeds := m.data(30, graph.F32)
		for range 3 {
			counts := make([]atomic.Int32, len(dst))
			if err := p.RunInto(ctx, s, feeds, dst, func(i int) { counts[i].Add(1) }); err != nil {
				t.Fatal(err)
			}
			for i := range counts {
				if counts[i].Load() != 1 {
					t.Fatalf("ready(%d) came %d times", i, counts[i].Load())
				}
			}
		}
		want, err := p.Run(ctx, s, feeds...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range dst {
			if string(want[i].Bytes()) != string(dst[i].Bytes()) {
				t.Fatalf("fetch %d differs", i)
			}
		}
		flatParams[0] += 1
		if moved, _ := p.Run(ctx, s, feeds...); string(moved[0].Bytes()) == string(want[0].Bytes()) {
			t.Fatal("a change of the caller's parameters was not seen")
		}
	}
}

func TestMergedFetchesAreSeparateResults(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F64, graph.N(2))
	u, v := graph.Exp(x), graph.Exp(x)
	w := graph.Reshape(u, graph.N(2), graph.N(1))
	p := compile(t, build(t, b), fetches{x}, fetches{u, v, u, x, w}, nil, Options{})
	in := f64s(l{0, 1}, 2)
	out, err := p.Run(ctx, nil, in)
	if err != nil {
		t.Fatal(err)
	}
	for i := range out {
		tensor.Flat[float64](out[i])[0] = float64(100 + i)
	}
	for i := range out {
		if tensor.Flat[float64](out[i])[0] != float64(100+i) {
			t.Fatal("results share memory")
		}
	}
	if tensor.Flat[float64](in)[0] != 0 {
		t.Fatal("a feed was overwritten")
	}
}

func TestAnyValueMayBeFed(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F64, graph.N(2))
	h := graph.Exp(x)
	y := graph.Add(h, graph.Neg(h))
	out, err := compile(t, build(t, b), fetches{h}, fetches{y, h}, nil, Options{}).Run(ctx, nil, f64s(l{5, 6}, 2))
	if err != nil || tensor.Flat[float64](out[0])[0] != 0 || tensor.Flat[float64](out[1])[1] != 6 {
		t.Fatal(out, err)
	}
}

func TestCheckFiniteNamesTheFirstBadNode(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F32, graph.N(3))
	y := graph.Neg(graph.Softmax(graph.Log(x)))
	p := compile(t, build(t, b), fetches{x}, fetches{y}, nil, Options{CheckFinite: true, Plain: true})
	in, _ := tensor.Of([]float32{1, -2, 3}, 3)
	_, err := p.Run(ctx, nil, in)
	var e *NodeError
	if !errors.As(err, &e) || e.Op != "Log" || !strings.Contains(err.Error(), "element 1 is NaN") {
		t.Fatal(err)
	}
	in, _ = tensor.Of([]float32{1, 2, 3}, 3)
	if _, err := p.Run(ctx, nil, in); err != nil {
		t.Fatal(err)
	}
}

func TestTraceReportsEveryNodeAndTransfer(t *testing.T) {
	b := graph.NewBuilder()
	w := b.Recv("w", "/cpu:1", graph.Type{DType: graph.F32, Shape: graph.Of(2)})
	send := graph.Send(graph.Exp(w), "y", "/cpu:1")
	var mu sync.Mutex
	seen := map[string]int64{}
	meet := NewLocal()
	p := compile(t, build(t, b), nil, nil, fetches{send}, Options{Rendezvous: meet, Trace: func(e TraceEvent) {
		mu.Lock()
		defer mu.Unlock()
		seen[e.Op] += e.Bytes
	}})
	in, _ := tensor.Of([]float32{0, 1}, 2)
	if err := meet.Send(Key{Edge: "w"}, in); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Run(ctx, NewState(StateOptions{})); err != nil {
		t.Fatal(err)
	}
	got := make(chan *tensor.Tensor, 1)
	meet.Recv(ctx, Key{Edge: "y"}, func(t *tensor.Tensor, err error) { got <- t })
	if y := <-got; tensor.Flat[float32](y)[0] != 1 {
		t.Fatal(y)
	}
	if seen["Recv"] != 8 || seen["Send"] != 8 {
		t.Fatal(seen)
	}
	if _, ok := seen["Exp"]; !ok {
		t.Fatal(seen)
	}
}

func TestCancelledStep(t *testing.T) {
	m := newMLP(t, graph.F32, 5, 4)
	s := NewState(StateOptions{})
	if err := s.Init(m.g); err != nil {
		t.Fatal(err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := m.compile(t, Options{}).Run(done, s, m.data(3, graph.F32)...); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	b := graph.NewBuilder()
	x, y := b.Input("x", graph.F32, graph.Axis("n"), graph.Axis("time"), graph.N(5)), b.Input("y", graph.I64, graph.Axis("n"))
	wx, wh, bias, out := b.Variable("wx", graph.F32, []int{5, 16}, graph.GlorotUniform()), b.Variable("wh", graph.F32, []int{4, 16}, graph.GlorotUniform()), b.Variable("b", graph.F32, []int{16}, graph.Zeros()), b.Variable("out", graph.F32, []int{4, 3}, graph.GlorotUniform())
	zeros := graph.BroadcastTo(b.Scalar(graph.F32, 0), graph.Axis("n"), graph.N(4))
	ps := fetches{wx.Read(), wh.Read(), bias.Read(), out.Read()}
	last, _ := graph.Scan(fetches{zeros, zeros}, fetches{graph.Transpose(x, 1, 0, 2)}, func(c, x []graph.Value) (next, ys []graph.Value) {
		h, cell := graph.LSTMCell(x[0], c[0], c[1], ps[0], ps[1], ps[2])
		return fetches{h, cell}, nil
	})
	loss := sum(graph.SoftmaxCrossEntropy(graph.MatMul(last[0], ps[3]), y))
	var all fetches
	for _, g := range autodiff.Gradients(loss, ps, autodiff.Options{Dense: true}) {
		all = append(all, g.Dense)
	}
	g := build(t, b)
	s := NewState(StateOptions{})
	if err := s.Init(g); err != nil {
		t.Fatal(err)
	}
	for _, threads := range []int{1, 2} {
		p := compile(t, g, fetches{x, y}, all, nil, Options{CPU: cpu(t, threads), Grain: 5000})
		mk := func(n, time int) []*tensor.Tensor {
			in := tensor.New(graph.F32, n, time, 5)
			fillRandom(in, rand.New(rand.NewPCG(1, 1)))
			return []*tensor.Tensor{in, tensor.New(graph.I64, n)}
		}
		long, short := mk(20, 9), mk(15, 7)
		dst, err := p.Run(ctx, s, long...)
		if err != nil {
			t.Fatal(err)
		}
		run := func(feeds []*tensor.Tensor) {
			if err := p.RunInto(ctx, s, feeds, dst, nil); err != nil {
				t.Fatal(err)
			}
		}
		run(short)
		if n := testing.AllocsPerRun(20, func() { run(long) }); n > 0 {
			t.Errorf("%d threads: %v allocations a step", threads, n)
		}
		run(short)
		if n := testing.AllocsPerRun(20, func() { run(long); run(short) }); n > 0 {
			t.Errorf("%d threads: %v allocations when sizes change", threads, n)
		}
	}
}

func TestCPUDevice(t *testing.T) {
	m := newMLP(t, graph.F32, 6, 3)
	b := graph.NewBuilder()
	x, w := b.Input("x", graph.F32, graph.Axis("n"), graph.N(2)), b.Input("w", graph.F32, graph.N(2), graph.N(2))
	y := graph.ReLU(graph.MatMul(x, w))
	d := NewCPUDevice(Options{Device: "/cpu:3"}, 64)
	k, err := d.Compile(&Segment{Graph: build(t, b), In: fetches{x, w}, Out: fetches{y}}, []tensor.Shape{{1, 2}, {2, 2}})
	if err != nil {
		t.Fatal(err)
	}
	var bufs []Buffer
	for _, n := range []int64{8, 16, 8} {
		buf, err := d.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		bufs = append(bufs, buf)
	}
	if _, err := d.Alloc(40); err == nil || !strings.Contains(err.Error(), "want 40 bytes, 32 of 64 are free") || !strings.Contains(err.Error(), "/cpu:3") {
		t.Fatal(err)
	}
	in, _ := tensor.Of([]float32{1, 2}, 1, 2)
	ws, _ := tensor.Of([]float32{1, -1, 1, -1}, 2, 2)
	copy(bufs[0].Bytes(), in.Bytes())
	copy(bufs[1].Bytes(), ws.Bytes())
	ready := 0
	if err := k.Run(ctx, bufs[:2], bufs[2:], func(int) { ready++ }); err != nil || ready != 1 {
		t.Fatal(err, ready)
	}
	if err := d.Copy(bufs[0], bufs[2]).Wait(ctx); err != nil {
		t.Fatal(err)
	}
	copy(in.Bytes(), bufs[0].Bytes())
	if got := tensor.Flat[float32](in); got[0] != 3 || got[1] != 0 {
		t.Fatal(got)
	}
	if err := d.Copy(bufs[0], bufs[1]).Wait(ctx); err == nil {
		t.Fatal("copied 16 bytes into 8")
	}
	bufs[1].Free()
	if _, err := d.Alloc(40); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Compile(&Segment{Graph: m.g, In: fetches{m.x}, Out: fetches{m.loss}}, []tensor.Shape{{1, 6}}); err == nil {
		t.Fatal("compiled without an input")
	}
}
