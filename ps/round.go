package ps

import (
	"errors"
	"fmt"
	"slices"
)

// newWorker adds a worker. The first Options.Workers begin at the client's start, others at its clock.
func (c *ClientState) newWorker() (*WorkerState, error) {
	if !c.joined {
		return nil, errors.New("ps: worker: the client takes no part yet")
	}
	if c.done {
		return nil, errors.New("ps: worker: this client is finished")
	}
	w := &WorkerState{c: c, index: len(c.workers), clock: c.clock, begun: c.clock, now: &workerRound{}}
	c.workers = append(c.workers, w)
	if w.clock < c.cut.At { // of the snapshot under way it is one more
		c.cut.await(w.index)
	}
	return w, nil
}

// buffer returns the deltas of a table in the worker's round.
func (w *WorkerState) buffer(t *clientTable, part uint32) buffered {
	for len(w.now.tables) <= int(t.id) {
		w.now.tables = append(w.now.tables, nil)
	}
	parts := w.now.tables[t.id]
	i, found := slices.BinarySearchFunc(parts, part, func(b buffered, part uint32) int { return int(b.partOf()) - int(part) })
	if !found {
		parts = slices.Insert(parts, i, w.c.take(t, part))
		w.now.tables[t.id] = parts
	}
	return parts[i]
}

// take returns empty deltas, with memory of a round before if there is any.
func (c *ClientState) take(t *clientTable, part uint32) buffered {
	free := c.free[t]
	for i, b := range free {
		if b.sender().free() {
			c.free[t] = slices.Delete(free, i, i+1)
			b.reset()
			b.setPart(part)
			return b
		}
	}
	return newBuffered(t, part)
}

// endRound ends a worker's round, sends the client's if that was the last worker, and waits for Lead.
func (c *ClientState) endRound(id uint64, x clockCall) {
	w := x.w
	switch {
	case w.finished:
		c.answer(id, nil, fmt.Errorf("ps: clock: worker %d of %s is finished", w.index, c.self))
		return
	case w.senseless() != nil:
		c.answer(id, nil, w.bad)
		return
	}
	if x.barrier {
		if err := c.unequal(w); err != nil {
			c.answer(id, nil, err)
			return
		}
	}
	w.shift()
	w.clock++
	c.capture(w)
	c.sendRounds()
	y := &wait{id: id, w: w, flow: true, barrier: x.barrier, deadline: c.now + c.o.RoundTimeout, since: c.now}
	if c.slack >= 0 {
		y.clock = max(w.clock-c.slack-1, 0)
	}
	if x.barrier {
		y.clock = w.clock
	}
	c.waits = append(c.waits, y)
	for _, g := range x.next {
		c.get(0, g)
	}
	c.wake()
}

// unequal is the error of a barrier of w where others of the client wait in one after another number of rounds. They end with it: each would
// wait for rounds that the other may never make.
func (c *ClientState) unequal(w *WorkerState) (err error) {
	kept := c.waits[:0]
	for _, o := range c.waits {
		if !o.barrier || o.w == w || o.w.clock == w.clock+1 {
			kept = append(kept, o)
			continue
		}
		if err == nil {
			err = fmt.Errorf("ps: barrier: worker %d of %s would wait at clock %d, and worker %d waits at clock %d: all must have ended equal numbers of rounds", w.index, c.self, w.clock+1, o.w.index, o.w.clock)
		}
		c.answer(o.id, nil, err)
	}
	clear(c.waits[len(kept):])
	c.waits = kept
	return err
}

// senseless returns what is wrong with the round under way: a delta that is no number, or deltas whose sum is none.
func (w *WorkerState) senseless() error {
	for id, parts := range w.now.tables {
		for _, b := range parts {
			if o := b.overflow(); o != nil && w.bad == nil {
				w.bad = fmt.Errorf("ps: clock: table %q, row %d, column %d: what worker %d of %s added in round %d comes to %v", w.c.tables[id].spec.Name, o.row, o.col, w.index, w.c.self, w.clock, o.sum)
			}
		}
	}
	return w.bad
}

// shift makes the round under way one that was sent.
func (w *WorkerState) shift() {
	w.now.stamp = w.clock
	if c := w.c; c.slack < 0 && max(len(c.workers), c.o.Workers) > 1 {
		w.now.bytes = roundOverhead
		for _, parts := range w.now.tables {
			for _, b := range parts {
				w.now.bytes += b.bytes()
			}
		}
		w.unsent += w.now.bytes
	}
	w.sent = append(w.sent, w.now)
	w.now = &workerRound{}
}

// roundOverhead is about what a worker's round takes beside its deltas, in bytes.
const roundOverhead = 200

// finish ends a worker: what it added since its last clock is its last round.
func (c *ClientState) finish(id uint64, w *WorkerState) {
	if w.senseless() != nil {
		c.answer(id, nil, w.bad)
		return
	}
	if !w.finished {
		w.shift()
		w.finished = true
		if max(len(c.workers), c.o.Workers) > 1 && w.state != nil { // a snapshot may come while the others go on
			w.last = w.state()
		}
		c.capture(w)
		c.sendRounds()
	}
	c.waits = append(c.waits, &wait{id: id, w: w, acked: true, deadline: c.now + c.o.RoundTimeout})
	c.wake()
}

// sendRounds sends what all workers have completed.
func (c *ClientState) sendRounds() {
	if len(c.workers) < c.o.Workers || c.done {
		return
	}
	to, all := maxClock, true
	last := Clock(0)
	for _, w := range c.workers {
		if w.finished {
			last = max(last, w.clock)
			continue
		}
		to, all = min(to, w.clock), false
	}
	if all {
		to = last + 1
	}
	for c.clock < to {
		c.done = all && c.clock == last
		c.sendRound(c.clock, c.done)
		c.clock++
	}
}

// unmade is the error of workers that were promised and never made: rounds wait for all.
func (c *ClientState) unmade() error {
	n := len(c.workers)
	begun := slices.ContainsFunc(c.workers, func(w *WorkerState) bool { return len(w.sent) > 0 })
	if c.err == nil && begun && n < c.o.Workers { // what failed before says more
		return fmt.Errorf("ps: close: the rounds of %s were not sent: it has %d workers of the %d that Options.Workers names", c.self, n, c.o.Workers)
	}
	return nil
}

// A laneBatch is the pieces of a round for one lane, while it is packed.
type laneBatch struct {
	pieces []*batch
	size   int
	alone  bool // the last piece is one section's cells, where they lie: it is full but for what travels beside them
}

// markLast marks each shard's last section.
func (o *laneBatch) markLast() {
	seen := map[uint64]bool{}
	for i := len(o.pieces) - 1; i >= 0; i-- {
		secs := o.pieces[i].secs
		for k := len(secs) - 1; k >= 0; k-- {
			if key := shardKey(&secs[k]); !seen[key] {
				seen[key], secs[k].mark = true, true
			}
		}
	}
}

func (c *ClientState) sendRound(stamp Clock, finish bool) {
	outs := make([]laneBatch, len(c.lanes))
	var from []*workerRound
	var weights []weight
	for _, w := range c.workers {
		for _, r := range w.sent {
			if r.stamp == stamp && !r.batched {
				r.batched = true
				w.unsent -= r.bytes
				from = append(from, r)
				weights = append(weights, r.weights...)
			}
		}
	}
	for _, t := range c.tables {
		sums := c.sumOf(from, t)
		if len(sums) > 0 {
			t.counts.Rounds++
		}
		for _, b := range sums {
			emit := func(s section, h *hold) { c.pack(&outs[t.owners[s.shard]], c.lanes[t.owners[s.shard]], s, h) }
			if d, ok := b.(*deltas[float32]); ok {
				if c.o.Up != nil && t.codes() && d.part == 0 {
					codedSections(d, c.o.Up, emit)
					continue
				}
				if len(t.residuals) > 0 {
					release(d)
				}
			}
			b.sections(emit)
		}
	}
	c.rounds = append(c.rounds, roundAcks{stamp, len(c.lanes)})
	for i, l := range c.lanes {
		o := &outs[i]
		if n := len(o.pieces); n == 0 || len(l.drop) > 0 && (o.alone || o.size > maxPiece/2 || len(o.pieces[n-1].secs) > maxSections/2) {
			o.pieces = append(o.pieces, &batch{}) // where evicted rows have room
		}
		last := o.pieces[len(o.pieces)-1]
		last.last, last.finish = true, finish
		if len(o.pieces) > 1 {
			o.markLast()
		}
		last.drop = l.dropped(c.tables, maxSections-len(last.secs))
		for k, b := range o.pieces {
			b.lane, b.client, b.session, b.epoch, b.stamp, b.piece = l.lane, c.number, c.session, c.config.Epoch, stamp, uint32(k)
			b.weights = weights
			if c.o.Up != nil {
				b.codec = c.o.Up.String()
			}
			b.bytes = b.Size()
			l.inflight += b.bytes
			l.unacked = append(l.unacked, b)
			c.BytesSent += uint64(b.bytes)
			c.sent(b.secs)
			c.send(l.server, b)
		}
		last.prompt = l.inflight > c.o.Inflight/4
		if finish { // the lane does the same when the round is there
			c.unsubscribe(l)
		}
	}
}

// sumOf returns what workers added to a table in one round, part by part: a worker's own buffers where no other has any.
func (c *ClientState) sumOf(from []*workerRound, t *clientTable) []buffered {
	var sums []buffered
	var merged []bool
	for _, r := range from {
		for _, b := range r.of(t) {
			if b.empty() {
				continue
			}
			i, found := slices.BinarySearchFunc(sums, b.partOf(), func(x buffered, part uint32) int { return int(x.partOf()) - int(part) })
			if !found {
				sums, merged = slices.Insert(sums, i, b), slices.Insert(merged, i, false)
				continue
			}
			if !merged[i] { // the workers lay their own over what they read
				m := newBuffered(t, b.partOf())
				m.merge(sums[i])
				sums[i], merged[i] = m, true
			}
			sums[i].merge(b)
		}
	}
	return sums
}

// pack adds a section to the round's pieces for one lane.
func (c *ClientState) pack(o *laneBatch, l *laneLink, s section, h *hold) {
	l.lists.name(&s)
	c.KeysSent += uint64(s.keyBytes())
	n := s.full() + 8
	b := (*batch)(nil)
	if k := len(o.pieces); k > 0 {
		b = o.pieces[k-1]
	}
	alone := h != nil && s.form == formRange && len(s.cells) >= inPlace // nothing but the cells, which are sent from where they lie
	switch {
	case b != nil && o.alone && s.small() && len(b.secs) <= besideSections:
		s.beside = true
	case b != nil && !o.alone && alone && smallOnes(b.secs):
		putBeside(b.secs)
		o.alone = true
	case b == nil || o.alone || alone || o.size+n > c.o.piece || len(b.secs) >= maxSections:
		b, o.size, o.alone = &batch{}, 0, alone
		o.pieces = append(o.pieces, b)
	}
	b.holds.add(h)
	b.secs = append(b.secs, s)
	o.size += n
}

// roundAcks counts the lanes that do not hold a round yet.
type roundAcks struct {
	stamp Clock
	left  int
}

// acked hears that one more lane holds a round. What all hold, and no read needs, is free.
func (c *ClientState) acked(stamp Clock) {
	for i := range c.rounds {
		if c.rounds[i].stamp == stamp {
			c.rounds[i].left--
		}
	}
	for len(c.rounds) > 0 && c.rounds[0].left == 0 {
		c.held = c.rounds[0].stamp + 1
		c.rounds = slices.Delete(c.rounds, 0, 1)
	}
	for _, w := range c.workers {
		c.prune(w)
	}
}

// prune gives up a worker's rounds that all lanes hold and that are in whatever it may read: a value of v ≥ c - s has those below. While
// it reads, none: what it was told that it may read, before it heard that they are held, may lack them.
func (c *ClientState) prune(w *WorkerState) {
	if w.reads > 0 {
		return
	}
	for len(w.sent) > 0 && w.sent[0].stamp < c.held && w.sent[0].stamp < w.clock-c.overlays {
		for id, parts := range w.sent[0].tables {
			t := c.tables[id]
			if len(c.free[t]) < 4+len(parts) { // a few rounds' worth
				c.free[t] = append(c.free[t], parts...)
			}
		}
		w.base = w.sent[0].stamp + 1
		w.sent = slices.Delete(w.sent, 0, 1)
	}
}

// wake answers what need not wait any longer.
func (c *ClientState) wake() {
	for i := 0; i < len(c.waits); {
		w := c.waits[i]
		if !c.ready(w) {
			i++
			continue
		}
		i = slices.Index(c.waits, w) // what ready asked for came behind it
		c.waits = slices.Delete(c.waits, i, i+1)
	}
}

// ready answers a call that need not wait, and reports whether it did.
func (c *ClientState) ready(w *wait) bool {
	if w.get != nil {
		return w.get.pulls == 0 && c.arrived(w)
	}
	if w.acked {
		for _, o := range c.workers {
			if !o.finished {
				c.answer(w.id, nil, nil)
				return true
			}
		}
	}
	if c.m < w.clock || w.flow && w.w.unsent > c.o.Inflight {
		return false
	}
	if w.flow || w.acked {
		for _, l := range c.lanes {
			if l.inflight > c.o.Inflight || w.flow && c.crowded(l) || w.acked && len(l.unacked) > 0 {
				return false
			}
		}
	}
	c.answer(w.id, w.w.clock, nil)
	return true
}
