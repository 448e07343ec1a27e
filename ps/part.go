package ps

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// A part runs one machine: it owns the state, steps it under a lock, and does what it commands.
type part struct {
	h     *Host
	begun time.Time
	lands bool                  // a client: its answers may land beside its cache
	queue chan protocol.Message // of lanes; nil: whoever receives steps
	work  sync.WaitGroup

	mu     sync.Mutex
	m      protocol.Machine
	timers map[protocol.TimerID]*time.Timer
	calls  map[uint64]chan reply
	lastID uint64
	bodies []protocol.Body // of one send
	ended  chan struct{}   // closed by Exit or fail
	exit   error
}

type reply struct {
	result any
	err    error
}

func (h *Host) newPart(m protocol.Machine) *part {
	return &part{h: h, m: m, begun: time.Now(), timers: map[protocol.TimerID]*time.Timer{}, calls: map[uint64]chan reply{}, ended: make(chan struct{})}
}

// step gives the machine an event.
func (p *part) step(in protocol.Event) {
	p.mu.Lock()
	p.stepLocked(in)
	p.mu.Unlock()
}

func (p *part) stepLocked(in protocol.Event) {
	if p.over() {
		return
	}
	list := p.m.Step(time.Since(p.begun), in)
	for i, c := range list {
		switch c := c.(type) {
		case protocol.Send:
			p.send(c, list[i+1:])
		case protocol.SetTimer:
			p.setTimer(c)
		case protocol.Answer:
			if ch := p.calls[c.ID]; ch != nil {
				delete(p.calls, c.ID)
				ch <- reply{c.Result, c.Err}
				p.h.answered.Add(1)
			}
		case protocol.Compute:
			p.work.Go(func() {
				if c.Work != nil {
					c.Work()
				}
				p.step(protocol.Computed{ID: c.ID})
			})
		case protocol.Report:
			p.h.log.Debug("ps", "fact", c.Fact)
		case protocol.Exit:
			p.end(c.Err)
		}
	}
	if p.lands {
		p.h.takeBack()
	}
}

// send sends c's message, and with a client's what follows it to the same server: a worker's round, and what it asks for the next.
func (p *part) send(c protocol.Send, rest []protocol.Command) {
	p.bodies = append(p.bodies[:0], c.Body)
	if p.lands {
		for i := range rest {
			if s, ok := rest[i].(protocol.Send); ok && s.To == c.To {
				p.bodies = append(p.bodies, s.Body)
				rest[i] = nil
			}
		}
	}
	p.h.send(c.To, p.bodies...)
	clear(p.bodies)
}

func (p *part) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *part) end(err error) {
	if p.over() {
		return
	}
	p.exit = err
	close(p.ended)
	for _, t := range p.timers {
		t.Stop()
	}
	for id, ch := range p.calls {
		delete(p.calls, id)
		ch <- reply{nil, errors.Join(errEnded, err)}
	}
}

var errEnded = errors.New("ps: closed")

// fail ends the part, and everything that waits for it.
func (p *part) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(err)
}

func (p *part) setTimer(c protocol.SetTimer) {
	t := p.timers[c.ID]
	switch {
	case c.After < 0:
		if t != nil {
			t.Stop()
		}
	case t == nil:
		p.timers[c.ID] = time.AfterFunc(c.After, func() { p.step(protocol.Timer{ID: c.ID}) })
	default:
		t.Reset(c.After)
	}
}

// close stops timers and waits for work.
func (p *part) close() {
	p.fail(nil)
	p.work.Wait()
	p.h.remove(p)
}

// call asks the machine and waits for its answer. When ctx ends first the call is withdrawn.
func (p *part) call(ctx context.Context, ch chan reply, arg any) (any, error) {
	p.mu.Lock()
	if p.over() {
		err := errors.Join(errEnded, p.exit)
		p.mu.Unlock()
		return nil, err
	}
	p.lastID++
	id := p.lastID
	p.calls[id] = ch
	p.stepLocked(protocol.Call{ID: id, Arg: arg})
	p.mu.Unlock()
	select {
	case r := <-ch: // mostly what a call asks for is here
		return r.result, r.err
	default:
	}
	p.h.attend(1)
	defer p.h.attend(-1)
	select {
	case r := <-ch:
		return r.result, r.err
	case <-ctx.Done():
	}
	p.step(protocol.Call{Arg: cancelCall{id, context.Cause(ctx)}})
	p.mu.Lock()
	if p.calls[id] == ch { // a call that cannot be withdrawn
		delete(p.calls, id)
		p.mu.Unlock()
		return nil, context.Cause(ctx)
	}
	p.mu.Unlock()
	r := <-ch
	return r.result, r.err
}
