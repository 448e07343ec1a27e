package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/graphtest"
	"github.com/trivium-ml/trivium/tensor"
)

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
	if segs := segmentNames(p); len(segs) != 3 {
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

// segmentNames lists the names of the nodes of each segment.
func segmentNames(p *Program) [][]string {
	var names [][]string
	for _, s := range p.segments {
		var seg []string
		for _, n := range s.nodes {
			seg = append(seg, n.name())
		}
		names = append(names, seg)
	}
	return names
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
		want := []string{
			"atrue<nil>", "btrue<nil>", `bfalseexec: receive "b" of step 1: the key was used before`,
			`cfalseexec: receive "c" of step 1: nobody sent it: context deadline exceeded`, `dfalseexec: receive "d" of step 1: ps/0 died`, `efalseexec: receive "e" of step 1: ps/0 died`,
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// TestReceivedAgain: who gave up receiving has received nothing; what is sent afterwards waits for his next attempt.
func TestReceivedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, k := NewLocal(), Key{Step: 1, Edge: "a"}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var got []string
		note := func(x *tensor.Tensor, err error) { got = append(got, fmt.Sprint(x != nil, err)) }
		m.Recv(short, k, note)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if err := m.Send(k, tensor.Scalar(1.0)); err != nil {
			t.Fatal(err)
		}
		m.Recv(ctx, k, note)
		m.Recv(ctx, k, note)
		want := []string{
			`false exec: receive "a" of step 1: nobody sent it: context deadline exceeded`, "true <nil>",
			`false exec: receive "a" of step 1: the key was used before`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestRepeatedWhileItWaits: a step that is repeated while its first attempt still waits takes one entry, not two; if the first attempt gives
// up, the second takes it.
func TestRepeatedWhileItWaits(t *testing.T) {
	for _, giveUp := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := graph.NewBuilder()
			q := b.Queue("q", 2, graph.Type{DType: graph.F64})
			x := b.Input("x", graph.F64)
			put, taken := q.Enqueue(x), q.Dequeue()[0]
			g := build(t, b)
			s := NewState(StateOptions{})
			take := compile(t, g, nil, fetches{taken}, nil, Options{})
			first, cancel := context.WithCancel(ctx)
			defer cancel()
			got, errs := make([][]*tensor.Tensor, 2), make([]error, 2)
			for i, c := range []context.Context{first, ctx} {
				got[i] = make([]*tensor.Tensor, 1)
				go func() { errs[i] = take.RunStep(c, s, Step{ID: 1, Requester: 9}, nil, got[i], nil) }()
				synctest.Wait()
			}
			if giveUp {
				cancel()
				synctest.Wait()
				if errs[0] == nil {
					t.Error("no error of who gave up")
				}
			}
			fill := compile(t, g, fetches{x}, nil, fetches{put}, Options{})
			for _, v := range []float64{5, 7} {
				if _, err := fill.Run(ctx, s, tensor.Scalar(v)); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			for i := range got {
				if i == 0 && giveUp {
					continue
				}
				if errs[i] != nil || tensor.Flat[float64](got[i][0])[0] != 5 {
					t.Errorf("give up %v: attempt %d: %v, %v; want the first entry", giveUp, i, got[i], errs[i])
				}
			}
			if n := s.QueueLen(q); n != 1 {
				t.Errorf("give up %v: %d entries are left, want 1", giveUp, n)
			}
		})
	}
}

// TestAwaitRestsLate: a thread that waits for another's tile keeps its processor for 100 µs, but lets other goroutines run where there are
// more threads than processors. Two threads that yield while they wait for each other can end up in the queue of one processor.
func TestAwaitRestsLate(t *testing.T) {
	for _, crowded := range []bool{false, true} {
		begun := time.Unix(0, 0)
		now, yields := begun, 0
		var done atomic.Bool
		x := &instance{crowded: crowded}
		x.idle.now = func() time.Time { now = now.Add(time.Microsecond); return now }
		x.idle.yield = func() { yields++ }
		x.idle.rest = func() { done.Store(true) }
		if waited := 100 * time.Microsecond; !x.await(&done) || now.Sub(begun) < waited || now.Sub(begun) > waited+5*time.Microsecond {
			t.Errorf("crowded %v: rests after %v, want %v", crowded, now.Sub(begun), waited)
		}
		if yields > 0 != crowded {
			t.Errorf("crowded %v: %d yields before", crowded, yields)
		}
		done.Store(false)
		x.failed.Store(true)
		if x.await(&done) {
			t.Error("waits for a step that failed")
		}
	}
}
