package tensor

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// A Pool is a set of threads for short parallel loops: Run forks and joins in about a microsecond, because its workers spin for a
// while before they park. A nil Pool runs everything on the caller.
//
// Invariant: f and n are written only while the gate is closed and nobody is inside it.
type Pool struct {
	running sync.Mutex // held by the Run that has the workers, and by Close
	threads int
	workers []worker // of threads 1 and up; the caller of Run is thread 0
	done    sync.WaitGroup

	f        func(i, worker int)
	n        int64
	panicked atomic.Pointer[Panic]
	joined   chan struct{} // the last worker to leave tells a parked caller
	idle     idle
	out      atomic.Int32 // threads that take no part

	_    [64]byte
	gate atomic.Uint64 // which loop, whether it is open, how many are inside
	_    [56]byte
	next atomic.Int64 // next index to be taken
	_    [56]byte
}

// The gate. Workers enter a loop that they have not seen, if it is open, by adding 1; they leave by subtracting it. The caller closes
// it before it waits, so a worker that comes late never delays the join, nor sees f change.
const (
	gateCount  = 1<<16 - 1 // how many workers are inside
	gateClosed = 1 << 16
	gateWaits  = 1 << 17 // the caller is parked
	gateStop   = 1 << 18 // Close was called
	gateLoop   = 1 << 20 // one loop; the bits above count them
)

type worker struct {
	parked atomic.Bool
	wake   chan struct{}
	_      [48]byte
}

// spin is how long a thread looks for work, or for the others to finish, before it parks. A parked thread wakes in 5 to 50 µs, so
// spinning much longer than that saves little.
const spin = 50 * time.Microsecond

// NewPool returns a pool of so many threads, the caller of Run among them; 0 means GOMAXPROCS. Close ends it.
func NewPool(threads int) *Pool {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	threads = min(threads, gateCount)
	p := &Pool{threads: threads, workers: make([]worker, threads-1), joined: make(chan struct{}, 1), idle: idle{time.Now, runtime.Gosched}}
	p.start()
	return p
}

// start begins the lives of the workers.
func (p *Pool) start() {
	p.gate.Store(gateClosed)
	p.done.Add(len(p.workers))
	for i := range p.workers {
		p.workers[i].wake = make(chan struct{}, 1)
		go p.work(i)
	}
}

// Threads is the number of threads of a Run, the caller's included: 1 for a nil Pool.
func (p *Pool) Threads() int {
	if p == nil {
		return 1
	}
	return p.threads
}

// Width is how many of the threads take part in a Run: all, unless SetWidth has said otherwise; 1 for a nil Pool.
func (p *Pool) Width() int {
	if p == nil {
		return 1
	}
	return p.threads - int(p.out.Load())
}

// SetWidth has n of the threads take part in each Run from now on, at least the caller's and at most all. It changes nothing else: not
// Threads, which says how many workers f may be called with.
func (p *Pool) SetWidth(n int) {
	if p != nil {
		p.out.Store(int32(p.threads - min(max(n, 1), p.threads)))
	}
}

// Run calls f(i, worker) once for each i in [0, n), in any order, and returns when all calls have. In one Run no two calls at the same
// time have the same worker, a number in [0, Threads()), so f may keep scratch memory by it. It allocates nothing.
//
// Run inside a Run, and Run while another goroutine's is under way, is serial on the caller, as worker 0: scratch memory must belong
// to one Run, not to the pool. If f panics, calls not yet begun are dropped and Run panics with a *Panic.
func (p *Pool) Run(n int, f func(i, worker int)) {
	if n <= 0 {
		return
	}
	if n == 1 || p.Width() == 1 || !p.running.TryLock() {
		for i := range n {
			f(i, 0)
		}
		return
	}
	p.fork(n, f)
}

func (p *Pool) fork(n int, f func(i, worker int)) {
	defer p.running.Unlock()
	v := p.gate.Load()
	if v&gateStop != 0 { // closed: serial
		for i := range n {
			f(i, 0)
		}
		return
	}
	p.f, p.n = f, int64(n)
	p.next.Store(0)
	p.gate.Store((v/gateLoop + 1) * gateLoop)
	for i := range min(n, p.Width()) - 1 {
		if w := &p.workers[i]; w.parked.Load() && w.parked.CompareAndSwap(true, false) {
			w.wake <- struct{}{}
		}
	}
	defer p.join()
	p.loop(0)
}

// join waits for the workers inside the gate, even while the caller's f unwinds the stack.
func (p *Pool) join() {
	p.gate.Or(gateClosed)
	for spins := p.idle.spinner(); p.gate.Load()&gateCount != 0; {
		if spins.next() {
			continue
		}
		if v := p.gate.Load(); v&gateCount != 0 && p.gate.CompareAndSwap(v, v|gateWaits) {
			<-p.joined
			break
		}
	}
	p.f = nil
	if r := p.panicked.Swap(nil); r != nil {
		panic(r)
	}
}

// loop takes indices until there are none.
func (p *Pool) loop(worker int) {
	defer func() {
		if r := recover(); r != nil {
			p.fail(r)
		}
	}()
	f, n := p.f, p.n
	for i := p.next.Add(1) - 1; i < n; i = p.next.Add(1) - 1 {
		f(int(i), worker)
	}
}

// fail keeps the first panic and drops the calls not yet begun.
func (p *Pool) fail(value any) {
	if inner, ok := value.(*Panic); ok { // of a Run inside this one
		p.panicked.CompareAndSwap(nil, inner)
	} else {
		p.panicked.CompareAndSwap(nil, &Panic{Value: value, Stack: debug.Stack()})
	}
	p.next.Store(p.n)
}

// work is the life of worker i.
func (p *Pool) work(i int) {
	w, seen := &p.workers[i], uint64(0)
	ended := false
	defer func() {
		if ended {
			p.done.Done()
			return
		}
		// f called runtime.Goexit, as testing's FailNow does: the loop is over for this worker, and the pool gets another.
		p.fail("f ended its goroutine (runtime.Goexit)")
		p.leave()
		go p.work(i)
	}()
	for spins := p.idle.spinner(); ; {
		v := p.gate.Load()
		switch {
		case v&gateStop != 0:
			ended = true
			return
		case v/gateLoop != seen && v&gateClosed == 0 && i+1 < p.Width():
			if p.gate.CompareAndSwap(v, v+1) {
				seen = v / gateLoop
				p.loop(i + 1)
				p.leave()
				spins = p.idle.spinner()
			}
		case !spins.next():
			w.parked.Store(true)
			// A Run or Close since the load of v may have missed that this worker is parked.
			if p.gate.Load()/gateLoop == v/gateLoop && p.gate.Load()&gateStop == 0 || !w.parked.CompareAndSwap(true, false) {
				<-w.wake
			}
			spins = p.idle.spinner()
		}
	}
}

func (p *Pool) leave() {
	if v := p.gate.Add(^uint64(0)); v&(gateCount|gateWaits) == gateWaits {
		p.joined <- struct{}{}
	}
}

// Close ends the workers and waits for them; a Run under way ends first. Afterwards Run is serial. Close may be called again.
func (p *Pool) Close() {
	if p == nil {
		return
	}
	p.running.Lock()
	defer p.running.Unlock()
	p.gate.Or(gateStop)
	for i := range p.workers {
		if w := &p.workers[i]; w.parked.CompareAndSwap(true, false) {
			w.wake <- struct{}{}
		}
	}
	p.done.Wait()
}

// A Panic is what Run panics with when f did: the first value, and the stack of the call that had it.
type Panic struct {
	Value any
	Stack []byte
}

func (p *Panic) Error() string {
	return fmt.Sprintf("tensor: panic in a parallel loop: %v\n\n%s", p.Value, p.Stack)
}

// Unwrap is the panic's value, if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// A spinner counts turns of a waiting loop. At first they are as short as can be, for the usual wait; then each yields the processor
// to other goroutines.
//
// Two goroutines that yield at the same time may both end up in the queue of one processor, and nobody looks for work for the other: one
// of the two then stands still for milliseconds, until it is noticed. So the first part is long enough for the gaps between the loops of
// one step, in which the workers and their caller wait for each other by turns.
type spinner struct {
	*idle
	turns int
	start time.Time
}

// An idle is what a waiting thread knows: the time, and how to yield.
type idle struct {
	now   func() time.Time
	yield func()
}

func (i *idle) spinner() spinner { return spinner{idle: i} }

// next says whether to go on spinning.
func (s *spinner) next() bool {
	const short, busy = 64, 20 * time.Microsecond // a turn is some nanoseconds, a look at the clock forty
	s.turns++
	if s.turns%short != 0 {
		return true
	}
	if s.start.IsZero() {
		s.start = s.now()
		return true
	}
	switch waited := s.now().Sub(s.start); {
	case waited < busy:
		return true
	case waited < spin:
		s.yield()
		return true
	}
	return false
}
