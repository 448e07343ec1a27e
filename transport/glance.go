package transport

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An Attender is a Stream that can be told when somebody waits for what comes next and has nothing else to do. All but those of
// [NewMemory] and of simulators are.
type Attender interface {
	// Attend(1) says that a caller waits for frames, and Attend(-1) that he does no longer. Meanwhile who reads a connection looks for a
	// short while whether more has come, before he lets his thread sleep: to be woken takes longer than what small frames are waited for,
	// and the system may wake him on the processor of the process that he waits for, while another is idle.
	Attend(by int)
}

// Attend is Attender's.
func (s *stream) Attend(by int) {
	if by < 0 {
		s.attendedTill.Store(int64(time.Since(s.port.opened) + attendNext))
	}
	s.attended.Add(int32(by))
}

// expects says whether somebody waits, at that time since the port was opened.
func (s *stream) expects(now time.Duration) bool {
	return s.attended.Load() > 0 || int64(now) < s.attendedTill.Load()
}

const (
	// glanceFor is how long who looks in vain goes on. To be woken on a processor that sleeps takes 35 µs, and what is waited for often comes
	// after several such wakes of others. Of three workers on two processors 60 µs made some up to an eighth slower, 200 µs some a quarter.
	glanceFor = 120 * time.Microsecond
	// glanceRest is how often at most a reader does not look, after it has looked in vain several times: where there are more processes
	// than processors, looking keeps those from working that are waited for. Of two it is seldom the case for long, and that both look is
	// how the system sees that they should not share a processor.
	glanceRest     = 256
	glanceRestPair = 4
	// glanceMost connections are looked at together.
	glanceMost = 16
	// attendNext is how long who has waited is thought to wait again soon: a commit comes after the last operation.
	attendNext = 10 * time.Microsecond
	// yieldMost is more than a peer with whom the processor is shared takes for an answer. Who was away for longer has let somebody
	// run who computes, and a slice of time is too much to give often.
	yieldMost = 500 * time.Microsecond
)

// A glancer knows whether it pays to look.
type glancer struct {
	vain int // looks in vain, less those that found something
	rest int // times not to look
}

// glance looks for a short while whether something comes, where somebody waits for it. It returns 0 where nothing does.
func (r *reader) glance(dst []byte) int {
	s := r.last
	if s == nil || r.h.try == nil || s.attended.Load() == 0 && !s.expects(time.Since(r.p.opened)) {
		return 0
	}
	g := &r.glances
	if g.rest > 0 {
		g.rest--
		return 0
	}
	// The runtime asks the system for other connections only when no goroutine can run: with one thread, who looks does so for all.
	var all []*direct
	if r.p.linked.Load() > 1 && runtime.GOMAXPROCS(0) == 1 {
		if all = r.p.conns.list(); len(all) > glanceMost {
			return 0
		}
	}
	from := time.Since(r.p.opened)
	last := from
	for now := from; ; now = time.Since(r.p.opened) {
		away := now - last
		last = now
		if away > yieldMost {
			g.rest = glanceRest
		}
		n, found := 0, all == nil || r.ready.any(all)
		if found {
			n = r.h.try.look(dst)
		}
		if n != 0 || found && all != nil { // else it is another's, who is woken once this one waits
			g.vain = max(g.vain-1, 0)
			return max(n, 0) // what is an error is found again by who waits
		}
		if !s.expects(now) || r.p.clogged.Load() > 0 {
			return 0
		}
		if now-from > glanceFor {
			if g.vain = min(g.vain+1, 8); g.vain >= 4 {
				rest := glanceRestPair
				if r.p.linked.Load() > 1 {
					rest = min(1<<g.vain, glanceRest)
				}
				g.rest = max(g.rest, rest)
			}
			return 0
		}
		runtime.Gosched()
		r.h.try.yield() // perhaps to him who is waited for: the system often has both on one processor, for a tenth of a second or more
	}
}

// directs are the connections of a port that can be looked at.
type directs struct {
	mu  sync.Mutex
	all atomic.Pointer[[]*direct] // is replaced, never changed
}

func (c *directs) list() []*direct {
	if l := c.all.Load(); l != nil {
		return *l
	}
	return nil
}

func (c *directs) add(d *direct) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := append(slices.Clone(c.list()), d)
	c.all.Store(&l)
}

func (c *directs) remove(d *direct) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := slices.DeleteFunc(slices.Clone(c.list()), func(x *direct) bool { return x == d })
	c.all.Store(&l)
}

// A pulse is a timer that keeps the runtime's watch going while frames come and go.
//
// A system call through the runtime begins by waking the watch (sysmon), which sleeps while a process is idle: a thread that is woken, and
// sleeps again 20 µs later, for each frame that a process was woken by; and with one thread of Go a write of some frames is a call for so
// long that the watch gives what the thread was doing to another. It took a tenth of all time of small operations, and a quarter of that
// of a parameter server and its workers where they share two processors. So while frames of data come and go, calls that cannot wait do
// without the runtime. But then nobody might wake the watch at all, and a goroutine that goes on to compute would not be interrupted for
// others: a timer wakes it too, and this one is always there.
type pulse struct {
	used    atomic.Bool // since the last beat
	running atomic.Bool
}

const (
	pulseBeat = 5 * time.Millisecond
	pulseIdle = 40 // beats
)

// keep has the pulse beat from now on.
func (u *pulse) keep(p *port) {
	if !u.used.Load() {
		u.used.Store(true)
	}
	if u.running.Load() || !u.running.CompareAndSwap(false, true) {
		return
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return
	}
	p.wg.Go(func() { u.run(p.done) })
}

func (u *pulse) run(done <-chan struct{}) {
	tick := time.NewTicker(pulseBeat)
	defer tick.Stop()
	for idle := 0; idle < pulseIdle; idle++ {
		if u.used.Swap(false) {
			idle = 0
		}
		select {
		case <-tick.C:
		case <-done:
			return
		}
	}
	u.running.Store(false)
	// Who has come between the two starts it with the next.
}

// beats says whether calls may do without the runtime.
func (u *pulse) beats() bool { return u.running.Load() }
