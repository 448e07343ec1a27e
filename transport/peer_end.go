package transport

import (
	"errors"
	"fmt"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// fail ends the link.
func (l *link) fail(err error) {
	pr := l.peer
	p := pr.port
	p.mu.RLock()
	pr.mu.Lock()
	defer pr.unlockBoth()
	if l.dead.Load() {
		return
	}
	if l.why != nil {
		err = l.why
	}
	if errors.Is(err, errGone) {
		pr.reported[0] = true
	}
	if pr.gone == nil && !pr.shutting {
		p.o.Log.Info("transport: link lost", "peer", pr.name.String(), "err", err.Error())
	}
	pr.lose(err)
	pr.start()
}

// errGone: the process that had the port has ended, or closed it.
var errGone = fmt.Errorf("its process is gone: %w", protocol.ErrRefused)

// lose ends the peer's link and begins a new one, for which nothing is taken until it is up. port.mu and peer.mu are held.
func (pr *peer) lose(err error) {
	pr.drop(fmt.Errorf("%w: %w", ErrLinkLost, err))
	if pr.gone != nil || pr.shutting {
		return
	}
	pr.lost = true
	for _, s := range pr.port.streams {
		s.tell(LinkLost, pr.name, err)
	}
}

// drop ends the peer's link and what waits for it.
func (pr *peer) drop(err error) {
	l := pr.link
	l.dead.Store(true)
	pr.left = l.half[control].bye || l.half[data].bye
	if l.up {
		pr.port.linked.Add(-1)
	}
	for _, fl := range l.flows {
		pr.backlog.add(fl)
		for i := range fl.side {
			q := &fl.side[i].waiting
			for o := q.first; o != nil; o = q.first {
				q.remove(o)
				o.done = nil // its Send returns the error
				pr.give(o, err)
			}
		}
	}
	for _, h := range l.half {
		if h.try != nil {
			pr.port.conns.remove(h.try)
		}
		if h.r != nil {
			h.r.reclaim()
		}
		for i := range h.queue {
			for o := h.queue[i].first; o != nil; o = h.queue[i].first {
				h.queue[i].remove(o)
				pr.over(o, err)
			}
		}
		h.cond.Broadcast()
	}
	if errors.Is(l.why, errGone) && pr.gone == nil && !pr.shutting {
		pr.port.wg.Go(l.closeLater)
	} else {
		l.close()
	}
	pr.link = newLink(pr)
	pr.drain()
}

// closeLater closes a link whose process is gone. All who had one to it learn of it in the same moment, and to close files and memory
// takes as long as all that they have to do about it: so that comes after.
func (l *link) closeLater() {
	t := time.NewTimer(afterDeath)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.peer.port.done:
	}
	l.close()
}

// drain closes drained if nothing is left to be written.
func (pr *peer) drain() {
	if !pr.shutting {
		return
	}
	if !pr.idle() {
		close(pr.drained)
	}
}

// idle reports whether the port closes and has nothing for the peer any more: it needs no link. peer.mu is held.
func (pr *peer) idle() bool {
	select {
	case <-pr.drained:
		return true
	default:
		return false
	}
}

// ended notes the end of a connection whose other end said goodbye, or is gone. It returns false if the link is over with it.
func (l *link) ended(h *half) bool {
	l.peer.mu.Lock()
	defer l.peer.unlock()
	h.ended = h.bye || l.gone.Load()
	other := l.half[data]
	if other == h {
		other = l.half[control]
	}
	return h.ended && !other.ended
}

// say tells the other end why the link ends, if that takes no long waiting.
func (l *link) say(cause, text string) {
	h, pr := l.half[control], l.peer
	limit := time.Now().Add(50 * time.Millisecond)
	for quiet := false; !quiet; {
		pr.mu.Lock()
		quiet = !h.busy && !h.first && len(h.rest) == 0 && !l.dead.Load()
		h.busy = h.busy || quiet
		pr.unlock()
		if !quiet && (l.dead.Load() || time.Now().After(limit)) {
			return
		}
		if !quiet {
			time.Sleep(100 * time.Microsecond) // the writer's goroutine ends what it writes
		}
	}
	_ = h.hard.SetWriteDeadline(limit) // the link ends anyway
	_, _ = h.nc.Write(appendRefusal(nil, cause, text))
	pr.mu.Lock()
	h.busy = false
	h.cond.Broadcast()
	pr.unlock()
}
