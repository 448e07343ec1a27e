package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// A Host is the machine on which a node runs. The zero value is a plain one.
type Host struct {
	Speed     float64       // of Compute, against 1; 0: 1
	Skew      float64       // by which its clock runs fast: 0.1 gains a tenth; above -1
	DiskBytes int64         // that its disk holds; 0: unbounded
	Step      time.Duration // that handling one event takes, at speed 1; 0: none
}

// ErrDown answers a Call to a node that is down or went down.
var ErrDown = errors.New("sim: the node is down")

// node is one machine's place in the World.
type node struct {
	index   int32
	name    protocol.Name
	host    Host
	make    func(Disk) protocol.Machine
	disk    disk
	machine protocol.Machine
	up      bool
	exited  bool
	exit    error
	silent  bool   // went down without closing its links
	gen     uint32 // rises when it goes down: events for an earlier one are void
	boots   int

	speed, rate  int64 // of computing and of the clock, in units of 2⁻²⁰
	base, passed int64 // at World time base, the machine's clock showed passed
	timers       map[protocol.TimerID]*timer
	calls        []pending
	lastCall     uint64
	links        []*link // to the node of that index
	held         []int32 // slots that wait because the node is paused or busy
	waking       bool
	busy         int64 // until when it handles an event
	cpu          int64 // until when it computes
	stores       uint64
	asks         uint64

	paused  bool
	slow    int64 // factor, in units of 2⁻²⁰
	metaCut bool
}

type call struct {
	arg  any
	done func(any, error)
}

type pending struct {
	id   uint64
	done func(any, error)
}

const one = 1 << 20 // 1 in units of 2⁻²⁰

// scaled is d·num/den, rounded down, without overflow in between; at most eternity.
func scaled(d, num, den int64) int64 {
	if num == den || d <= 0 {
		return min(max(d, 0), eternity)
	}
	hi, lo := bits.Mul64(uint64(d), uint64(num))
	if hi >= uint64(den) {
		return eternity
	}
	q, _ := bits.Div64(hi, lo, uint64(den))
	return int64(min(q, eternity))
}

const eternity = math.MaxInt64 / 4 // which can be added to what is now

// fixed is f in units of 2⁻²⁰: to scale by a power of two is exact, so that every processor has the same.
func fixed(f float64) int64 { return int64(math.Round(f * one)) }

// Add adds a node that starts now. boot makes its machine; it runs again after each restart, with what the disk kept.
func (w *World) Add(name protocol.Name, h Host, boot func(Disk) protocol.Machine) Node {
	key := name
	key.Incarnation = 0
	if _, taken := w.byName[key]; taken {
		panic(fmt.Sprintf("sim: a node named %v was added before", key))
	}
	h.Speed = cmp.Or(h.Speed, 1)
	n := &node{index: int32(len(w.nodes)), name: name, host: h, make: boot, speed: fixed(h.Speed), slow: one}
	if n.speed < 1 || h.Skew <= -1 {
		panic(fmt.Sprintf("sim: node %v: speed %v and skew %v: want above 0 and above -1", name, h.Speed, h.Skew))
	}
	n.rate = fixed(1 + h.Skew)
	n.disk.limit = h.DiskBytes
	w.byName[key] = n.index
	w.enter(n)
	w.push(w.now, slot{what: bootEvent, node: n.index})
	return Node(n.index)
}

// enter adds a node. What is in force, and what Heal has spared, does not concern it.
func (w *World) enter(n *node) {
	w.nodes = append(w.nodes, n)
	for _, r := range w.active {
		r.grow(len(w.nodes))
	}
	if w.core != nil {
		w.core = append(w.core, false)
	}
}

// clock is what n's machine reads now.
func (n *node) clock(now int64) int64 { return n.passed + scaled(now-n.base, n.rate, one) }

// boot starts n's machine.
func (w *World) boot(n *node) {
	if n.up || n.exited {
		return
	}
	if n.boots > 0 && n.name.Incarnation != 0 {
		n.name.Incarnation++
	}
	n.boots++
	n.up = true
	n.base, n.passed = w.now, 0
	n.busy, n.cpu = 0, 0
	n.timers = map[protocol.TimerID]*timer{}
	w.reopen(n)
	n.silent = false
	n.machine = n.make(Disk{n})
	w.push(w.now, slot{what: startEvent, node: n.index, gen: n.gen})
}

// crash takes n down at once.
func (w *World) crash(n *node, silent bool) {
	if !n.up {
		return
	}
	n.up = false
	n.silent = silent
	n.gen++
	n.machine = nil
	calls := n.calls
	n.calls = nil
	for _, i := range n.held {
		if c, ok := w.slots[i].arg.(*call); ok && c.done != nil {
			calls = append(calls, pending{done: c.done})
		}
		w.release(i)
	}
	n.held = n.held[:0]
	n.disk.crash(w, n)
	w.store.forget(n.index)
	w.closeLinks(n)
	for _, c := range calls {
		c.done(nil, ErrDown)
	}
}

// handle passes an event on to whom it concerns.
func (w *World) handle(e entry) {
	s := &w.slots[e.slot]
	w.note(s, s.seq)
	switch s.what {
	case messageEvent:
		if !w.arrives(s) {
			w.release(e.slot)
			return
		}
	case timerEvent:
		if !w.rings(s, e) {
			w.release(e.slot)
			return
		}
	case callEvent:
		if n := w.nodes[s.node]; !n.up {
			c := s.arg.(*call)
			w.release(e.slot)
			if c.done != nil {
				c.done(nil, ErrDown)
			}
			return
		}
	case stopEvent:
	case metaAnswer:
		if w.nodes[s.node].gen != s.gen || !w.store.answered(w, s) {
			w.release(e.slot)
			return
		}
	case computedEvent, lostEvent, backEvent, startEvent:
		if w.nodes[s.node].gen != s.gen {
			w.release(e.slot)
			return
		}
	case storedEvent:
		if n := w.nodes[s.node]; n.gen != s.gen || !n.disk.finish() {
			w.release(e.slot)
			return
		}
	default:
		w.arrange(e.slot)
		return
	}
	n := w.nodes[s.node]
	if !n.up {
		w.release(e.slot)
		return
	}
	if n.paused || n.busy > w.now || len(n.held) > 0 {
		n.held = append(n.held, e.slot)
		w.wake(n)
		return
	}
	w.deliver(n, e.slot)
}

// arrange handles what concerns the World rather than one machine.
func (w *World) arrange(i int32) {
	s := w.slots[i]
	w.release(i)
	switch s.what {
	case faultBegin:
		w.begin(s.arg.(*running))
	case faultEnd:
		w.end(s.arg.(*running))
	case linkRetry:
		w.retry(&s)
	case bootEvent:
		w.boot(w.nodes[s.node])
	case wakeEvent:
		w.woken(w.nodes[s.node])
	case funcEvent:
		s.arg.(func())()
	case swizzleEvent:
		w.refresh()
	case metaAsk:
		w.store.ask(w, &s)
	case leaseEvent:
		w.store.expire(w, &s)
	}
}

// wake sees to it that what waits at n is handled when n can.
func (w *World) wake(n *node) {
	if n.waking || n.paused || len(n.held) == 0 {
		return
	}
	n.waking = true
	w.push(n.busy, slot{what: wakeEvent, node: n.index})
}

func (w *World) woken(n *node) {
	n.waking = false
	for len(n.held) > 0 && n.up && !n.paused && n.busy <= w.now && w.bad == nil {
		i, gen := n.held[0], n.gen
		n.held = n.held[1:] // before it is handled: a crash gives back what is still held
		w.deliver(n, i)
		if n.gen != gen {
			return // it went down, and what it held with it
		}
	}
	w.wake(n)
}

// deliver makes an event of a slot, gives it to n's machine, and does what the machine commands.
func (w *World) deliver(n *node, i int32) {
	s := &w.slots[i]
	var ev protocol.Event
	switch s.what {
	case messageEvent:
		from := w.nodes[s.peer].name
		from.Incarnation = s.id
		ev = protocol.Message{From: from, Body: s.body}
	case timerEvent:
		t := s.arg.(*timer)
		if !t.rung { // it was stopped, or set anew, while this waited
			w.release(i)
			return
		}
		t.rung = false
		ev = t.event
	case callEvent:
		c := s.arg.(*call)
		n.lastCall++
		if c.done != nil {
			n.calls = append(n.calls, pending{n.lastCall, c.done})
		}
		ev = protocol.Call{ID: n.lastCall, Arg: c.arg}
	case computedEvent:
		ev = protocol.Computed{ID: s.id}
	case storedEvent:
		ev = protocol.Stored{ID: s.id, Err: s.err}
	case metaAnswer:
		ev = protocol.MetaReply{ID: s.id, KV: s.arg.(*question).reply, Err: s.err}
	case lostEvent:
		ev = protocol.LinkLost{Peer: s.arg.(protocol.Name), Err: s.err}
	case backEvent:
		ev = protocol.LinkBack{Peer: s.arg.(protocol.Name)}
	case startEvent:
		ev = protocol.Start{}
	case stopEvent:
		ev = protocol.Stop{}
	}
	w.release(i)
	if w.o.Trace {
		w.trace(n, ev)
	}
	if cost := w.cost(n); cost > 0 {
		n.busy = w.now + cost
	}
	for _, c := range n.machine.Step(time.Duration(n.clock(w.now)), ev) {
		if w.command(n, c); !n.up {
			return
		}
	}
}

// cost is how long n takes for an event. A slow node takes some time even where the Host counts none.
func (w *World) cost(n *node) int64 {
	d := int64(n.host.Step)
	if n.slow != one && d == 0 {
		d = int64(20 * time.Microsecond)
	}
	if d == 0 {
		return 0
	}
	return scaled(scaled(d, one, n.speed), n.slow, one)
}

func (w *World) command(n *node, c protocol.Command) {
	switch c := c.(type) {
	case protocol.Send:
		w.send(n, &c)
	case protocol.SetTimer:
		w.set(n, c)
	case protocol.Answer:
		for i, p := range n.calls {
			if p.id == c.ID {
				n.calls = append(n.calls[:i], n.calls[i+1:]...)
				p.done(c.Result, c.Err)
				break
			}
		}
	case protocol.Compute:
		n.cpu = max(n.cpu, w.now) + scaled(scaled(int64(c.For), one, n.speed), n.slow, one)
		w.push(n.cpu, slot{what: computedEvent, node: n.index, gen: n.gen, id: c.ID})
	case protocol.Store:
		w.write(n, c)
	case protocol.MetaCall:
		w.store.call(w, n, c)
	case protocol.Report:
		w.fact(n, c.Fact)
	case protocol.Exit:
		if w.o.Trace {
			w.line(n.index, fmt.Sprintf("exit %v", c.Err))
		}
		n.exited, n.exit = true, c.Err
		w.crash(n, false)
	default:
		panic(fmt.Sprintf("sim: %v: unknown command %T", n.name, c))
	}
}
