package sim

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/protocol"
)

// A World is one simulated run. It belongs to one goroutine.
type World struct {
	seed   uint64
	o      Options
	now    int64 // ns
	seq    uint64
	queue  heap
	slots  []slot
	free   []int32
	nodes  []*node
	byName map[protocol.Name]int32 // without Incarnation
	store  store
	known  []invariant
	bad    *Violation

	plan   Plan
	active []*running // faults in force
	era    int        // rises with each Heal: faults of an older one no longer begin
	core   []bool     // nodes that Heal took out of all faults, if healed
	healed bool

	net *Network

	events uint64
	hash   uint64
	lines  []Line
	facts  [32]Fact // the last ones
	nfacts int
}

// Options of a World. The zero value works.
type Options struct {
	Link      Link          // of nodes that Connect does not name; zero: 100 µs and up to 20 µs of jitter
	MetaLink  Link          // to the metadata store; zero: 300 µs and up to 100 µs of jitter
	Reconnect time.Duration // from a lost link to the next try; 0: 10 ms
	MetaWait  time.Duration // until a call of a store that is away fails; 0: 1 s
	StoreTime time.Duration // that a disk takes for a write; 0: 200 µs, and 1 ns a byte
	MaxEvents uint64        // then the run fails: a livelock is a failure, not a wait; 0: 5 million
	Trace     bool          // keep each event as a Line
}

// A Node is the number of a node, in the order of Add.
type Node int32

// Meta is the metadata store as a member of Fault.Nodes.
const Meta Node = -1

// A Fact is what a machine reported.
type Fact struct {
	At    time.Duration // since the World began
	Node  Node
	Name  protocol.Name // of the machine, with the incarnation that reported
	Value any
}

type invariant struct {
	name  string
	holds func(Fact) error
}

// New returns an empty World.
func New(seed uint64, o Options) *World {
	if o.Link == (Link{}) {
		o.Link = Link{Delay: 100 * time.Microsecond, Jitter: 20 * time.Microsecond}
	}
	if o.MetaLink == (Link{}) {
		o.MetaLink = Link{Delay: 300 * time.Microsecond, Jitter: 100 * time.Microsecond}
	}
	o.Reconnect = cmp.Or(o.Reconnect, 10*time.Millisecond)
	o.MetaWait = cmp.Or(o.MetaWait, time.Second)
	o.StoreTime = cmp.Or(o.StoreTime, 200*time.Microsecond)
	o.MaxEvents = cmp.Or(o.MaxEvents, 5_000_000)
	return &World{seed: seed, o: o, byName: map[protocol.Name]int32{}, hash: draw.Mix(seed)}
}

// Seed is the World's.
func (w *World) Seed() uint64 { return w.seed }

// Now is the virtual time since the World began.
func (w *World) Now() time.Duration { return time.Duration(w.now) }

// Events is the number of events so far.
func (w *World) Events() uint64 { return w.events }

// Nodes is the number of nodes.
func (w *World) Nodes() int { return len(w.nodes) }

// Name is the present name of n, with its incarnation.
func (w *World) Name(n Node) protocol.Name { return w.nodes[n].name }

// Up says whether n runs: it has neither crashed nor ended.
func (w *World) Up(n Node) bool { return w.nodes[n].up }

// Exited says whether n's machine ended by itself, and with what error.
func (w *World) Exited(n Node) (bool, error) { return w.nodes[n].exited, w.nodes[n].exit }

// Machine is what n's boot returned last. A test may look at it between runs.
func (w *World) Machine(n Node) protocol.Machine { return w.nodes[n].machine }

// Invariant adds a condition over the facts that machines report. An error ends the run.
func (w *World) Invariant(name string, holds func(Fact) error) {
	w.known = append(w.known, invariant{name, holds})
}

// Call asks n's machine, after so long, and passes its Answer to done, which may be nil. If n is not up, or crashes before it answers,
// done gets ErrDown.
func (w *World) Call(n Node, after time.Duration, arg any, done func(result any, err error)) {
	w.push(w.now+int64(after), slot{what: callEvent, node: int32(n), arg: &call{arg, done}})
}

// After calls f after so long, between two events.
func (w *World) After(d time.Duration, f func()) {
	w.push(w.now+int64(d), slot{what: funcEvent, arg: f})
}

// Stop asks n's machine to end, after so long.
func (w *World) Stop(n Node, after time.Duration) {
	w.push(w.now+int64(after), slot{what: stopEvent, node: int32(n)})
}

// Run puts the plan's faults on the calendar (their times are the World's; what is past happens now) and lets the World run until that
// time. It returns a *Violation if an invariant broke, a machine panicked, or MaxEvents was reached.
func (w *World) Run(p Plan, until time.Duration) error {
	if err := p.check(len(w.nodes)); err != nil {
		return err
	}
	for _, f := range p {
		w.schedule(f)
	}
	w.plan = append(w.plan, p...)
	if err := w.run(int64(until), nil); err != nil {
		return err
	}
	w.now = max(w.now, int64(until))
	return nil
}

// Heal ends all faults for the nodes of core, the links among them, and the metadata store: nil means all nodes. Those that are down
// start again with their disks. Faults that are still to come no longer do. The nodes of a core stay spared by later plans.
func (w *World) Heal(core []Node) {
	w.core = make([]bool, len(w.nodes))
	for i := range w.core {
		w.core[i] = core == nil
	}
	for _, n := range core {
		w.core[n] = true
	}
	w.healed = true
	w.era++
	w.refresh()
	if core == nil {
		w.active, w.healed = nil, false
	}
	for i, n := range w.nodes {
		if w.core[i] && !n.up && !n.exited {
			w.boot(n)
		}
	}
}

// Converges lets the World run until done says so; after `within` without it, it returns a *Violation.
func (w *World) Converges(within time.Duration, done func() bool) error {
	if done() {
		return nil
	}
	end := w.now + int64(within)
	if err := w.run(end, done); err != nil {
		return err
	}
	if w.now < end && done() {
		return nil
	}
	w.now = max(w.now, end)
	if done() {
		return nil
	}
	w.violate("converges", fmt.Errorf("not within %v after Heal", within))
	return w.bad
}

// run handles events until that time, until done, or until something is wrong.
func (w *World) run(until int64, done func() bool) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.violate("no panic", fmt.Errorf("%v\n%s", p, debug.Stack()))
			err = w.bad
		}
	}()
	for len(w.queue) > 0 && w.queue[0].at <= until && w.bad == nil {
		e := w.queue.pop()
		w.now = e.at
		if w.events++; w.events > w.o.MaxEvents {
			w.violate("ends", fmt.Errorf("after %d events there are still more: a livelock, or Options.MaxEvents is too small", w.o.MaxEvents))
			break
		}
		w.handle(e)
		if done != nil && done() {
			break
		}
	}
	if w.bad != nil {
		return w.bad
	}
	return nil
}

func (w *World) fact(n *node, value any) {
	f := Fact{At: time.Duration(w.now), Node: Node(n.index), Name: n.name, Value: value}
	w.facts[w.nfacts%len(w.facts)] = f
	w.nfacts++
	if w.o.Trace {
		w.line(n.index, fmt.Sprintf("report %v", value))
	}
	for _, i := range w.known {
		if err := i.holds(f); err != nil {
			w.violate(i.name, err)
			return
		}
	}
}

// what an event is.
type what uint8

const (
	messageEvent what = iota
	timerEvent
	callEvent
	computedEvent
	storedEvent
	metaAsk
	metaAnswer
	lostEvent
	backEvent
	startEvent
	stopEvent
	faultBegin
	faultEnd
	linkRetry
	bootEvent
	funcEvent
	swizzleEvent
	leaseEvent
	wakeEvent
)

// slot holds an event's content, beside the heap so that the heap moves little.
type slot struct {
	what what
	node int32 // that it happens to
	peer int32
	gen  uint32 // of the node's boot or of the link: the event is void if that has another by then
	id   uint64
	seq  uint64
	body protocol.Body
	arg  any
	err  error
}

// push puts an event on the calendar.
func (w *World) push(at int64, s slot) {
	i := w.keep(s)
	w.queue.push(entry{max(at, w.now), w.seq, i})
}

// keep finds room for a slot.
func (w *World) keep(s slot) (i int32) {
	if n := len(w.free); n > 0 {
		i = w.free[n-1]
		w.free = w.free[:n-1]
	} else {
		i = int32(len(w.slots))
		w.slots = append(w.slots, slot{})
	}
	w.seq++
	s.seq = w.seq
	w.slots[i] = s
	return i
}

// release gives a slot back.
func (w *World) release(i int32) {
	s := &w.slots[i]
	s.body, s.arg, s.err = nil, nil, nil
	w.free = append(w.free, i)
}

// note adds an event to the hash.
func (w *World) note(s *slot, extra uint64) {
	h := draw.Mix(w.hash ^ uint64(w.now)*draw.Weyl)
	h += uint64(s.what)<<56 ^ uint64(uint32(s.node))<<28 ^ uint64(uint32(s.peer)) ^ s.id*draw.Weyl
	w.hash = draw.Mix(h ^ extra*0xbf58476d1ce4e5b9)
}

// The purposes of draws at a node and on a link.
const (
	drawShort = iota
	drawTorn
	drawCrash
	drawMeta
	drawMetaBack
	drawMetaLost
	drawJitter
	drawLoss
	drawCorrupt
	drawDuplicate
	drawReorder
	drawLate
	drawEnd
	purposes = 16
)

// bits is node n's i-th draw for a purpose.
func (w *World) bits(n *node, purpose, i uint64) uint64 {
	return draw.Mix(draw.Mix(w.seed^draw.Weyl*uint64(n.index+1)) + draw.Weyl*(i*purposes+purpose))
}

// chance draws whether something of probability p, in units of 2⁻³², happens.
func chance(bits uint64, p uint32) bool { return uint32(bits>>32) < p }

// upTo draws a time in [0, d).
func upTo(bits uint64, d int64) int64 {
	if d <= 0 {
		return 0
	}
	return int64(draw.Mix(bits) % uint64(d))
}
