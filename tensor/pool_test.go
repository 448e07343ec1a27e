package tensor

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestPoolRunsEachIndexOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 8} {
		p := NewPool(threads)
		for n := range 40 {
			calls := make([]atomic.Int32, n)
			busy := make([]atomic.Int32, threads)
			p.Run(n, func(i, worker int) {
				if busy[worker].Add(1) != 1 {
					t.Errorf("two calls at once on worker %d", worker)
				}
				calls[i].Add(1)
				busy[worker].Add(-1)
			})
			for i := range calls {
				if c := calls[i].Load(); c != 1 {
					t.Fatalf("%d threads, n = %d: index %d was called %d times", threads, n, i, c)
				}
			}
		}
		p.Close()
		p.Close()
		sum := 0
		p.Run(5, func(i, worker int) { sum += i }) // serial after Close
		if sum != 10 {
			t.Errorf("after Close the indices sum to %d, want 10", sum)
		}
	}
}

func TestPoolPlainMemoryIsHandedOver(t *testing.T) { // what f writes is seen after Run, and before it by f: for the race detector
	p := NewPool(3)
	defer p.Close()
	x := make([]int, 64)
	for round := range 500 {
		p.Run(len(x), func(i, _ int) { x[i]++ })
		for i, v := range x {
			if v != round+1 {
				t.Fatalf("round %d: x[%d] = %d", round, i, v)
			}
		}
	}
}

func TestPoolParkedWorkersWake(t *testing.T) {
	p := NewPool(4)
	defer p.Close()
	for range 20 {
		for i := range p.workers {
			for !p.workers[i].parked.Load() {
				runtime.Gosched()
			}
		}
		var ran [4]atomic.Bool
		var all sync.WaitGroup
		all.Add(4)
		p.Run(4, func(_, worker int) { // each call waits for the three others, so all four threads must take part
			ran[worker].Store(true)
			all.Done()
			all.Wait()
		})
		for w := range ran {
			if !ran[w].Load() {
				t.Fatalf("worker %d took no part", w)
			}
		}
	}
}

// TestPoolWidth: of the threads only as many as SetWidth says take part, also where others spin or are parked, and all of them again later.
func TestPoolWidth(t *testing.T) {
	p := NewPool(4)
	defer p.Close()
	for _, width := range []int{4, 2, 1, 3, 9, 0, 4} {
		p.SetWidth(width)
		want := min(max(width, 1), 4)
		if p.Width() != want || p.Threads() != 4 {
			t.Fatalf("width %d of %d, want %d of 4", p.Width(), p.Threads(), want)
		}
		var met [4]atomic.Bool
		var here atomic.Int32
		for range 20 {
			p.Run(want, func(_, worker int) { // each waits for the others, so that nobody takes two
				met[worker].Store(true)
				here.Add(1)
				for here.Load()%int32(want) != 0 {
					runtime.Gosched()
				}
			})
		}
		p.Run(100, func(_, worker int) { met[worker].Store(true) })
		for i := range met {
			if met[i].Load() != (i < want) {
				t.Errorf("width %d: worker %d took part: %t", want, i, met[i].Load())
			}
		}
	}
}

func TestPoolNested(t *testing.T) {
	p := NewPool(3)
	defer p.Close()
	var calls atomic.Int32
	p.Run(6, func(_, _ int) {
		last := -1
		p.Run(5, func(i, worker int) {
			if worker != 0 || i != last+1 {
				t.Errorf("nested call %d on worker %d after %d: want serial on worker 0", i, worker, last)
			}
			last = i
			calls.Add(1)
		})
	})
	if calls.Load() != 30 {
		t.Errorf("%d nested calls, want 30", calls.Load())
	}
}

func TestPoolConcurrentRuns(t *testing.T) {
	p := NewPool(3)
	defer p.Close()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for range 200 {
				var sum atomic.Int64
				p.Run(10, func(i, _ int) { sum.Add(int64(i)) })
				if sum.Load() != 45 {
					t.Errorf("goroutine %d: indices sum to %d, want 45", g, sum.Load())
				}
			}
		})
	}
	wg.Wait()
}

func TestPoolPanic(t *testing.T) {
	p := NewPool(3)
	defer p.Close()
	cause := errors.New("tile 7 is broken")
	for range 50 {
		func() {
			defer func() {
				r, _ := recover().(*Panic)
				if r == nil || !errors.Is(r, cause) || !strings.Contains(string(r.Stack), "TestPoolPanic") {
					t.Fatalf("recovered %v, want a *Panic of %q with its stack", r, cause)
				}
			}()
			p.Run(20, func(i, _ int) {
				if i == 7 {
					panic(cause)
				}
			})
		}()
	}
	n := 0
	var mu sync.Mutex
	p.Run(9, func(_, _ int) { mu.Lock(); n++; mu.Unlock() })
	if n != 9 {
		t.Errorf("after panics Run made %d calls, want 9", n)
	}
}

func TestPoolWorkerThatExitsIsReplaced(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Run returned though a call ended its goroutine")
			}
		}()
		var both sync.WaitGroup
		both.Add(2)
		p.Run(2, func(_, worker int) {
			both.Done()
			both.Wait()
			if worker == 1 {
				runtime.Goexit()
			}
		})
	}()
	var both sync.WaitGroup
	both.Add(2)
	p.Run(2, func(_, _ int) { both.Done(); both.Wait() }) // hangs unless there are two threads again
}

// TestSpinnerYieldsLate: two threads that yield while they wait for each other can end up in the queue of one processor.
func TestSpinnerYieldsLate(t *testing.T) {
	begun := time.Unix(0, 0)
	now, yields := begun, 0
	i := idle{now: func() time.Time { now = now.Add(time.Microsecond); return now }}
	i.yield = func() {
		if waited := now.Sub(begun); waited < 20*time.Microsecond {
			t.Errorf("yields after %v", waited)
		}
		yields++
	}
	for spins := i.spinner(); spins.next(); {
	}
	if waited := now.Sub(begun); yields == 0 || waited < spin || waited > spin+5*time.Microsecond {
		t.Errorf("%d yields, parks after %v: want some, and %v", yields, waited, spin)
	}
}

// TestPoolYieldsNotAtOnce: a caller that waits for its worker looks at the clock a thousand times, and while the clock stands still, neither
// of them yields.
func TestPoolYieldsNotAtOnce(t *testing.T) {
	p := &Pool{threads: 2, workers: make([]worker, 1), joined: make(chan struct{}, 1)}
	var looks, yields atomic.Int64
	p.idle = idle{now: func() time.Time { looks.Add(1); return time.Unix(1, 0) }, yield: func() { yields.Add(1) }}
	p.start()
	defer p.Close()
	for range 3 {
		var both sync.WaitGroup
		both.Add(2)
		p.Run(2, func(_, worker int) {
			both.Done()
			both.Wait()
			for from := looks.Load(); worker == 1 && looks.Load() < from+1000; {
				runtime.Gosched() // the caller has a processor then
			}
		})
	}
	if n := yields.Load(); n != 0 {
		t.Errorf("%d yields though no time passed", n)
	}
}

func TestPoolNil(t *testing.T) {
	var p *Pool
	var got []int
	p.Run(3, func(i, worker int) { got = append(got, i, worker) })
	if !slices.Equal(got, []int{0, 0, 1, 0, 2, 0}) || p.Threads() != 1 {
		t.Errorf("calls %v on %d threads", got, p.Threads())
	}
	p.Close()
}

func TestPoolAllocatesNothing(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	var sink [64]int
	f := func(i, _ int) { sink[i]++ }
	if n := testing.AllocsPerRun(100, func() { p.Run(len(sink), f) }); n != 0 {
		t.Errorf("Run allocates %v times", n)
	}
}

func ExamplePool() {
	pool := NewPool(0)
	defer pool.Close()
	squares := make([]int, 5)
	pool.Run(len(squares), func(i, worker int) { squares[i] = i * i })
	fmt.Println(squares)
	// Output: [0 1 4 9 16]
}

func BenchmarkForkJoin(b *testing.B) {
	p := NewPool(2)
	defer p.Close()
	var x [2]struct {
		n int
		_ [120]byte
	}
	f := func(i, _ int) { x[i].n++ }
	for b.Loop() {
		p.Run(2, f)
	}
}
