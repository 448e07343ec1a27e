package transport

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/trivium-ml/trivium/wire"
)

// A link is a pair of connections to a peer: one for control frames and for what the transport says itself, one for data. It begins
// without them: then frames wait for it. Once lost it is never used again, and the peer gets a new one. All but what is atomic is
// guarded by peer.mu.
type link struct {
	peer    *peer
	up      bool
	dead    atomic.Bool
	id      [16]byte
	inbound bool
	attempt uint64 // inbound: of the dialler
	half    [2]*half
	flows   map[uint32]*flow
	dirty   []*flow // with something to tell the other end

	life net.Conn    // ends with the peer's process; nil: none
	gone atomic.Bool // the other end is: what it sent is read to the end, and then the link is lost
	why  error       // set with gone

	shared     sharedPath // nil: none
	sharedRefs atomic.Int64
}

// The halves of a link, and the sides of a flow.
const (
	data    = 0
	control = 1
)

// A flow is what passes over a link for one stream.
type flow struct {
	link *link
	id   uint32

	// What this end sends.
	assumed int // window that credit counts from, on either side; 0: nothing was sent yet
	largest int // frame that the other end takes; 0: it has not said
	side    [2]side

	// What this end receives.
	window, maxFrame int
	most             int      // the largest window that was told
	used             [2]usage // of each side: received, and not granted again
	owed             [2]usage // of it, released
	turned           [2]usage // of it, turned away
	announce         bool     // window is to be told
	dirty            bool
	missing          bool // frames were turned away: what comes is dropped
}

// A side is the sender's account of a flow's data frames, or of its control frames.
type side struct {
	credit  int        // bytes that may be sent; below 0 where the window turned out smaller than assumed
	frames  int        // under way, not granted again
	queued  int        // not yet written
	waiting frameQueue // for credit, or for room in the queue; by priority
}

type usage struct{ bytes, frames int }

const (
	maxUnderWay   = 1024 // frames of a stream, data and control each, that a peer may have under way
	grantFrames   = 256  // are granted again at once, at the latest
	defaultWindow = 4 << 20
	maxFlows      = 4096 // streams of one link
)

// sideOf is the side of a flow that frames of that priority belong to.
func sideOf(p Priority) int {
	if p == Control {
		return control
	}
	return data
}

// priorityOf is the priority of a frame.
func priorityOf(h *wire.Header) Priority { return Priority(h.Flags >> wire.PriorityShift & 3) }

func newLink(pr *peer) *link {
	l := &link{peer: pr, flows: map[uint32]*flow{}}
	for i := range l.half {
		l.half[i] = &half{link: l, ctl: i == control, cond: sync.Cond{L: &pr.mu}}
	}
	return l
}

func (l *link) flow(id uint32) *flow {
	fl := l.flows[id]
	if fl == nil {
		fl = &flow{link: l, id: id, window: defaultWindow, maxFrame: 1 << 20}
		l.flows[id] = fl
	}
	return fl
}

// attend waits for the end of the peer's process. What it sent before is read first.
func (l *link) attend() {
	_, _ = l.life.Read(make([]byte, 1)) // nobody ever writes
	l.bereave(errGone)
}

// bereave notes that the other end is gone: the readers take what has come from it, and then end the link.
func (l *link) bereave(why error) {
	l.peer.mu.Lock()
	if l.why == nil || errors.Is(why, errGone) {
		l.why = why
	}
	l.peer.unlock()
	if l.dead.Load() || l.gone.Swap(true) {
		return
	}
	for _, h := range l.half {
		h.interrupt()
		h.r.reclaim()
	}
}

// close closes what an ended link has open.
func (l *link) close() {
	for _, h := range l.half {
		if h.hard != nil {
			_ = h.hard.Close() // what is written is written
		}
	}
	if l.life != nil {
		_ = l.life.Close() // nobody writes there
	}
	if l.up && l.shared != nil {
		l.dropShared()
	}
}

// dropShared gives up one use of the shared memory; the last closes it.
func (l *link) dropShared() {
	if l.sharedRefs.Add(-1) == 0 {
		_ = l.shared.Close() // the memory goes with the process at the latest
	}
}

// fits reports whether a frame of n bytes may be queued now.
func (fl *flow) fits(which, n, queue int) bool {
	sd := &fl.side[which]
	return sd.queued < queue && sd.frames < maxUnderWay && sd.credit >= n
}

func (fl *flow) take(which, n int) {
	sd := &fl.side[which]
	sd.queued++
	sd.frames++
	sd.credit -= n
}

// untake returns what take took, for a frame that was not sent.
func (fl *flow) untake(which, n int) {
	sd := &fl.side[which]
	sd.queued--
	sd.frames--
	sd.credit += n
	fl.wake(which)
}

// wake queues the frames that wait, in their order, as far as there is room.
func (fl *flow) wake(which int) {
	q, h := &fl.side[which].waiting, fl.link.half[which]
	for o := q.first; o != nil && fl.fits(which, o.n, o.limit); o = q.first {
		q.remove(o)
		fl.take(which, o.n)
		o.state = sendQueued
		h.queue[o.rank].push(o)
		if o.done != nil {
			o.answer(nil)
		}
	}
	if h.queue[0].first != nil || h.queue[1].first != nil || h.queue[2].first != nil {
		h.cond.Signal()
	}
}

// granted takes in what the other end says about its window.
func (fl *flow) granted(h *wire.Header) error {
	switch h.Kind {
	case kindGrant:
		sd, frames := &fl.side[sideOf(priorityOf(h))], int(h.Chunk)
		if uint64(h.Op) > 1<<40 || frames > sd.frames {
			return &wire.FrameError{Cause: "credit", Text: fmt.Sprintf("%d bytes in %d frames granted again: more than was sent", h.Op, frames)}
		}
		sd.credit += int(h.Op)
		sd.frames -= frames
	case kindWindow:
		if uint64(h.Op) > 1<<40 {
			return &wire.FrameError{Cause: "credit", Text: fmt.Sprintf("a window of %d bytes", h.Op)}
		}
		more := int(h.Op) - fl.assumed
		fl.assumed = int(h.Op)
		fl.largest = int(h.Chunk)
		for i := range fl.side {
			fl.side[i].credit += more
			q := &fl.side[i].waiting // what is too large would wait for ever, and all that is behind it
			for o := q.first; o != nil; {
				next := o.next
				if err := fl.tooLarge(o.n); err != nil {
					q.remove(o)
					o.done = nil // its Send returns the error
					fl.link.peer.give(o, err)
				}
				o = next
			}
		}
	}
	fl.wake(data)
	fl.wake(control)
	return nil
}

// tooLarge says that the other end takes no frame of n bytes, where it has said so.
func (fl *flow) tooLarge(n int) error {
	if fl.largest == 0 || n <= fl.largest {
		return nil
	}
	return fmt.Errorf("%w: a frame of %d bytes, the peer's MaxFrame is %d", ErrTooLarge, n, fl.largest)
}

// arrived charges a frame of n bytes that begins to come.
func (fl *flow) arrived(which, n int) error {
	u := fl.used[which]
	u.frames++
	u.bytes += n
	if u.frames > maxUnderWay || u.bytes > fl.bound() {
		return &wire.FrameError{Cause: "credit", Text: fmt.Sprintf("%d frames with %d bytes are under way on one stream: more than was granted", u.frames, u.bytes)}
	}
	if err := fl.link.peer.backlog.check(fl, which); err != nil {
		return err
	}
	fl.used[which] = u
	return nil
}

// bound is how many bytes may be under way on either side.
func (fl *flow) bound() int { return max(fl.most, defaultWindow) }

// turnAway notes that a frame of n bytes that was charged was dropped, and is not to be granted again.
func (fl *flow) turnAway(which, n int) {
	u := &fl.turned[which]
	u.frames++
	u.bytes += n
}

// giveBack says that a frame of n bytes was released: the other end may send as much again.
func (fl *flow) giveBack(which, n int) {
	l := fl.link
	pr := l.peer
	if l.dead.Load() { // and peer.mu may be held
		pr.backlog.release(fl.id, which, n)
		return
	}
	pr.mu.Lock()
	defer pr.unlock()
	if l.dead.Load() {
		pr.backlog.release(fl.id, which, n)
		return
	}
	o := &fl.owed[which]
	o.frames++
	o.bytes += n
	// Few messages for much credit; but a frame of the largest size must never wait for what is not yet told.
	if o.frames >= grantFrames || o.bytes >= min(fl.window/4, fl.window-fl.maxFrame+1) && o.bytes > 0 {
		fl.tell()
	}
}

// tell puts fl among those that have something to tell the other end.
func (fl *flow) tell() {
	l := fl.link
	if !fl.dirty {
		fl.dirty = true
		l.dirty = append(l.dirty, fl)
	}
	l.half[control].kick()
}

// appendGrants appends the frames that the flows have to tell, and forgets them.
func (l *link) appendGrants(p []byte) []byte {
	for _, fl := range l.dirty {
		fl.dirty = false
		if fl.announce {
			fl.announce = false
			h := wire.Header{Kind: kindWindow, Flags: wire.Internal, Stream: fl.id, Op: wire.Op(fl.window), Chunk: uint32(fl.maxFrame)}
			p = appendHeader(p, &h)
		}
		for i, priority := range [...]Priority{data: Data, control: Control} {
			o := &fl.owed[i]
			if o.frames == 0 {
				continue
			}
			h := wire.Header{
				Kind: kindGrant, Flags: wire.Internal | uint16(priority)<<wire.PriorityShift, Stream: fl.id, Op: wire.Op(o.bytes), Chunk: uint32(o.frames),
			}
			p = appendHeader(p, &h)
			fl.used[i].bytes -= o.bytes
			fl.used[i].frames -= o.frames
			*o = usage{}
		}
	}
	l.dirty = l.dirty[:0]
	return p
}

func appendHeader(p []byte, h *wire.Header) []byte {
	n := len(p)
	p = slices.Grow(p, wire.HeaderLen)[:n+wire.HeaderLen]
	h.Put((*[wire.HeaderLen]byte)(p[n:]))
	return p
}
