package collective

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/trivium-ml/trivium/transport"
)

// A peer is what is on its way to a rank.
type peer struct {
	h    *hub
	name transport.Name

	mu      sync.Mutex
	data    lane
	control lane // has a connection of its own, and does not wait behind data
	recent  int  // bytes sent directly since the last commit
	undone  atomic.Int64
	done    func(error)
	unsent  map[uint16]int // frames that Close did not wait for, by group
}

// A lane is what is sent to a peer one after the other.
type lane struct {
	wait [3]line // by orderOf
	busy bool    // drain runs
}

// orderOf is the order of priorities in a lane. The frames of one operation have one, and stay in theirs.
var orderOf = [...]int{transport.Urgent: 0, transport.Data: 1, transport.Bulk: 2, transport.Control: 0}

// A line is frames that wait, first come, first served.
type line struct {
	frames []transport.Frame
	gone   int // of them, from the front
}

func (l *line) push(f transport.Frame) {
	if len(l.frames) == cap(l.frames) && 2*l.gone > len(l.frames) { // there is room at the front
		n := copy(l.frames, l.frames[l.gone:])
		clear(l.frames[n:])
		l.frames, l.gone = l.frames[:n], 0
	}
	l.frames = append(l.frames, f)
}

func (l *line) pop() (f transport.Frame, ok bool) {
	if l.gone == len(l.frames) {
		return f, false
	}
	f, l.frames[l.gone] = l.frames[l.gone], f
	if l.gone++; l.gone == len(l.frames) {
		l.frames, l.gone = l.frames[:0], 0
	}
	return f, true
}

// next takes the frame that is to go next.
func (l *lane) next() (f transport.Frame, ok bool) {
	for i := range l.wait {
		if f, ok = l.wait[i].pop(); ok {
			break
		}
	}
	return f, ok
}

func (p *peer) lane(f *transport.Frame) *lane {
	if f.Priority == transport.Control {
		return &p.control
	}
	return &p.data
}

// busy says whether something waits to be sent.
func (p *peer) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.data.busy || p.control.busy
}

// send sends f at once where that cannot block. Otherwise a goroutine sends, so that a receiver never waits for its own sending; or where the
// caller has something else to do (aside) and f is not short.
func (p *peer) send(f transport.Frame, aside bool) {
	if f.Done == nil {
		f.Done = p.done
	}
	p.undone.Add(1)
	l := p.lane(&f)
	if !(aside && len(f.Payload) >= asideFrom) && p.try(l, &f) {
		return
	}
	p.mu.Lock()
	late := false
	if !l.busy {
		l.busy = p.h.spawn(func() { p.drain(l) })
		late = !l.busy
	}
	if !late {
		l.wait[orderOf[f.Priority]].push(f)
	}
	p.mu.Unlock()
	if late { // whoever called was held up until after Close
		p.missed(&f)
		p.through()
	}
}

// asideFrom is the size from which writing a frame takes longer than having another goroutine do it.
const asideFrom = 16 << 10

// try sends f at once, unless others of its lane go before or it might block. A stream that can say so itself is asked. Of the others it is
// known that they have room while little is under way to the peer.
func (p *peer) try(l *lane, f *transport.Frame) bool {
	n := len(f.Head) + len(f.Payload) + 64
	t, can := p.h.s.(transport.Trier)
	p.mu.Lock()
	free := !l.busy && p.undone.Load() <= 16 && (can || p.recent+n <= p.h.opt.Window/2)
	if free && !can {
		p.recent += n
	}
	p.mu.Unlock()
	switch {
	case !free:
		return false
	case !can:
		p.out(*f)
		return true
	}
	sent, err := t.Try(p.h.ctx, p.name, *f)
	if err != nil {
		p.failed(f, err)
	}
	return sent || err != nil
}

// drain sends what waits in l.
func (p *peer) drain(l *lane) {
	for {
		p.mu.Lock()
		f, ok := l.next()
		l.busy = ok
		p.mu.Unlock()
		if !ok {
			p.h.wake()
			return
		}
		p.out(f)
	}
}

func (p *peer) out(f transport.Frame) {
	if err := p.h.s.Send(p.h.ctx, p.name, f); err != nil {
		p.failed(&f, err)
	}
}

// failed says that f was not sent.
func (p *peer) failed(f *transport.Frame, err error) {
	p.through()
	if p.h.ctx.Err() != nil {
		p.missed(f)
		return
	}
	h := p.h
	h.do(func() {
		for _, c := range h.cores {
			if r := c.rankOf(p.name); r >= 0 {
				c.lost(r, err)
			}
		}
	})
}

// missed counts a frame that Close did not wait for: see recount.
func (p *peer) missed(f *transport.Frame) {
	if f.Kind == kindBye { // which does not count itself
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unsent == nil {
		p.unsent = map[uint16]int{}
	}
	p.unsent[uint16(f.Chunk>>16)]++
}

// allSent says, with the hub's lock held, whether nothing of a core that is over waits to be sent any more.
func (h *hub) allSent(c *core) bool {
	return h.flushing.Load() == 0 && !slices.ContainsFunc(c.peers, (*peer).busy)
}

// recount says goodbye anew to ranks for which Close has not waited: they would wait for frames that do not come.
func (h *hub) recount(cores []*core) {
	var list []outTo
	h.mu.Lock()
	for _, c := range slices.Backward(cores) {
		for r, p := range c.peers {
			p.mu.Lock()
			n := p.unsent[c.id]
			p.mu.Unlock()
			if n > 0 && c.told != nil {
				c.sayBye(r, c.told[r]-n)
			}
		}
		for _, out := range c.out {
			list = append(list, outTo{c.peers[out.to], out.f})
		}
		c.out = nil
	}
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), settleWait)
	defer cancel()
	for _, out := range list {
		_ = h.s.Send(ctx, out.p.name, out.f) // else its deadline tells it
	}
}

// through says that the stream is through with a frame's memory.
func (p *peer) through() {
	p.undone.Add(-1)
	p.h.wake()
}

// whenSent is the Done of a frame whose memory is to be written to afterwards. The transport calls it from wherever it writes, and must
// not be held up: a goroutine of the hub goes on from there.
func (h *hub) whenSent(p *peer, c *core, o *operation, task int32) func(error) {
	return func(err error) {
		p.through()
		if err != nil {
			return // it shows as a lost link
		}
		h.sentMu.Lock()
		defer h.sentMu.Unlock()
		h.sent = append(h.sent, sentTask{c, o, task})
		if !h.sentBusy {
			h.sentBusy = h.spawn(h.goOn)
		}
	}
}

type sentTask struct {
	c    *core
	o    *operation
	task int32
}

// goOn tells the cores what has been sent, until there is no more.
func (h *hub) goOn() {
	var list []sentTask
	for {
		h.sentMu.Lock()
		list, h.sent = h.sent, list[:0]
		if len(list) == 0 {
			h.sentBusy = false
			h.sentMu.Unlock()
			return
		}
		h.sentMu.Unlock()
		h.do(func() {
			for _, t := range list {
				t.c.sent(t.o, t.task)
			}
		})
		clear(list)
	}
}
