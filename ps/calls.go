package ps

import (
	"fmt"
	"slices"
	"time"
)

// A wait is a call that is not answered yet.
type wait struct {
	id       uint64
	w        *WorkerState
	get      *getCall
	clock    Clock // of Clock, Barrier and Finish: what M must be
	flow     bool  // and the bytes under way few enough
	acked    bool  // and everything held
	barrier  bool
	deadline time.Duration // later where there is progress
	since    time.Duration // up to here its worker's waited has it
}

// needs is what M must be.
func (w *wait) needs() Clock {
	if w.get != nil {
		return w.get.need
	}
	return w.clock
}

// The calls of a ClientState.
type (
	// openCall is answered once the client takes part.
	openCall struct{}
	// createCall is answered once all servers have the table.
	createCall struct{ spec Spec }
	// workerCall is answered with a *WorkerState.
	workerCall struct{}
	// getCall is answered with the value clock; its rows are pinned until unpin.
	getCall struct {
		w      *WorkerState
		t      *clientTable
		rows   []int64
		cols   []int64 // with one row: these cells only, in out
		past   bool    // past the cache: the rows' cells are in out
		out    []byte
		owns   []Clock // of each of cols, or of rows: the client's own rounds that are in it
		hits   []*cachedRow
		need   Clock
		at     Clock
		v      Clock
		pulls  int
		silent bool // a prefetch: nobody waits
		missed bool // the cache lacked some of it, and a server was waited for
		begun  bool // it is one of its worker's reads
	}
	// prefetchCall is answered at once.
	prefetchCall struct{ gets []*getCall }
	// pullCall is answered once all its reads past the cache are here.
	pullCall struct{ calls []*getCall }
	// clockCall ends a worker's round, and asks for what the next one reads, as prefetchCall does.
	clockCall struct {
		w       *WorkerState
		barrier bool
		next    []*getCall
	}
	// finishCall ends a worker.
	finishCall struct{ w *WorkerState }
	// cancelCall withdraws the call of that number; its answer is the error that says what it waited for.
	cancelCall struct {
		id    uint64
		cause error
	}
)

type creating struct {
	id   uint64
	spec Spec
}

// call takes a local request.
func (c *ClientState) call(id uint64, arg any) {
	if x, ok := arg.(cancelCall); ok {
		c.cancel(x)
		return
	}
	if c.err != nil {
		c.answer(id, nil, c.err)
		return
	}
	switch x := arg.(type) {
	case openCall:
		if c.joined {
			c.answer(id, nil, nil)
		} else {
			c.opens = append(c.opens, id)
		}
	case createCall:
		err := checkTable(&c.p, &x.spec)
		if err == nil {
			_, err = definitions(&Definition{Spec: x.spec, By: c.self}, 0)
		}
		if err != nil {
			c.answer(id, nil, err)
			return
		}
		if t := c.byName[x.spec.Name]; t != nil {
			c.answer(id, nil, c.compare(t, &x.spec))
			return
		}
		c.creates = append(c.creates, &creating{id, x.spec})
		c.send(c.p.Directory, &create{client: c.number, session: c.session, req: id, spec: x.spec})
	case workerCall:
		w, err := c.newWorker()
		c.answer(id, w, err)
	case *getCall:
		c.get(id, x)
	case prefetchCall:
		for _, g := range x.gets {
			c.get(0, g)
		}
		c.answer(id, nil, nil)
	case pullCall:
		c.pull(id, x.calls)
	case clockCall:
		c.endRound(id, x)
	case finishCall:
		c.finish(id, x.w)
	}
}

// compare returns the error of a table that is there and is another; nil if it is the same.
func (c *ClientState) compare(t *clientTable, s *Spec) error {
	field, mine, theirs := s.differ(&t.spec)
	if field == "" {
		return nil
	}
	return fmt.Errorf("ps: table %q: %s: %s by %s, %s by %s", s.Name, field, mine, c.self, theirs, c.config.Tables[t.id].By)
}

func (c *ClientState) cancel(x cancelCall) {
	for i, w := range c.waits {
		if w.id != x.id {
			continue
		}
		err := fmt.Errorf("%s: %w", c.describe(w), x.cause)
		if w.get != nil {
			c.unpin(w.get)
		}
		c.waits = slices.Delete(c.waits, i, i+1)
		c.answer(x.id, nil, err)
		return
	}
	for i, o := range c.opens {
		if o == x.id {
			c.opens = slices.Delete(c.opens, i, i+1)
			err := fmt.Errorf("ps: open by %s: %s has not let it in, as it does once all servers are there: %w", c.self, c.p.Directory, x.cause)
			if c.away != nil {
				err = fmt.Errorf("ps: open by %s: %w: %w", c.self, c.away, x.cause)
			}
			c.answer(x.id, nil, err)
			if !c.joined && len(c.opens) == 0 { // whoever opens anew does so in this session: it is not to be let in twice
				c.fail(err)
			}
			return
		}
	}
	for i, o := range c.creates {
		if o.id == x.id {
			c.creates = slices.Delete(c.creates, i, i+1)
			c.answer(x.id, nil, fmt.Errorf("ps: create table %q: %s does not answer: %w", o.spec.Name, c.p.Directory, x.cause))
			return
		}
	}
}
