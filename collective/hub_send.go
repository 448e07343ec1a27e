package collective

import (
	"sync"
	"sync/atomic"

	"github.com/trivium-ml/trivium/transport"
)

// A peer is what is on its way to a rank.
type peer struct {
	h    *hub
	name transport.Name

	mu     sync.Mutex
	queue  []transport.Frame
	busy   bool // drain runs
	recent int  // bytes sent directly since the last commit
	undone atomic.Int64
	done   func(error)
}

// send sends f at once where that cannot block. Otherwise a goroutine sends, so that a receiver never waits for its own sending; or where the
// caller has something else to do (aside) and f is not short.
func (p *peer) send(f transport.Frame, aside bool) {
	if f.Done == nil {
		f.Done = p.done
	}
	p.undone.Add(1)
	if !(aside && len(f.Payload) >= asideFrom) && p.try(&f) {
		return
	}
	p.mu.Lock()
	p.queue = append(p.queue, f)
	late := false
	if !p.busy {
		p.busy = p.h.spawn(p.drain)
		late = !p.busy
	}
	if late {
		p.queue = nil
	}
	p.mu.Unlock()
	if late { // whoever called was held up until after Close
		p.through()
	}
}

// asideFrom is the size from which writing a frame takes longer than having another goroutine do it.
const asideFrom = 16 << 10

// try sends f at once, unless others go before or it might block. A stream that can say so itself is asked. Of the others it is known that they
// have room while little is under way to the peer.
func (p *peer) try(f *transport.Frame) bool {
	n := len(f.Head) + len(f.Payload) + 64
	t, can := p.h.s.(transport.Trier)
	p.mu.Lock()
	free := !p.busy && p.undone.Load() <= 16 && (can || p.recent+n <= p.h.opt.Window/2)
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
		p.failed(err)
	}
	return sent || err != nil
}

func (p *peer) drain() {
	var batch []transport.Frame
	for {
		p.mu.Lock()
		batch, p.queue = p.queue, batch[:0]
		if len(batch) == 0 {
			p.busy = false
			p.mu.Unlock()
			p.h.wake()
			return
		}
		p.mu.Unlock()
		for i := range batch {
			p.out(batch[i])
			batch[i] = transport.Frame{}
		}
	}
}

func (p *peer) out(f transport.Frame) {
	if err := p.h.s.Send(p.h.ctx, p.name, f); err != nil {
		p.failed(err)
	}
}

// failed says that a frame was not sent.
func (p *peer) failed(err error) {
	p.through()
	if p.h.ctx.Err() != nil {
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
