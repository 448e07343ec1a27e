package ps

import (
	"fmt"
	"slices"
)

// install makes the directory's decisions this client's.
func (c *ClientState) install(n *Config) {
	me := -1
	for i := range n.Clients {
		if n.Clients[i].Name == c.self && n.Clients[i].Session == c.session {
			me = i
		}
	}
	if me < 0 || n.Version < c.config.Version {
		return
	}
	if m := n.Clients[me]; m.State == Ending || m.State == Ended {
		c.config = n
		c.fail(fmt.Errorf("ps: %s was counted as lost at clock %d, and the others go on without it", c.self, m.End))
		return
	}
	if err := c.p.check(c.self, n); err != nil {
		c.fail(err)
		return
	}
	again := n.Version == c.config.Version
	c.config = n
	for i := len(c.tables); i < len(n.Tables); i++ {
		d := &n.Tables[i]
		t := newClientTable(newTable(d, &c.p))
		c.tables = append(c.tables, t)
		c.byName[d.Spec.Name] = t
		switch {
		case d.Spec.Mode == ASP:
			c.slack = -1
		case c.slack >= 0:
			c.slack = max(c.slack, d.Spec.staleness())
		}
		if d.Spec.Mode == BSP && c.bsp == nil {
			c.bsp = t
		}
		if d.Spec.Optimizer == "" && d.Spec.Mode != ASP {
			c.overlays = max(c.overlays, d.Spec.staleness())
		}
	}
	if !c.joined {
		c.joined = true
		c.number, c.start = uint16(me), n.Clients[me].Start
		c.clock, c.m = c.start, 0
		for _, id := range c.opens {
			c.answer(id, nil, nil)
		}
		c.opens = nil
		for _, l := range c.lanes {
			l.heard, l.held = c.now, c.start
		}
	}
	kept := c.creates[:0]
	for _, x := range c.creates {
		if t := c.byName[x.spec.Name]; t != nil {
			c.answer(x.id, nil, c.compare(t, &x.spec))
			continue
		}
		kept = append(kept, x)
	}
	c.creates = kept
	late := false
	if n.Cut != c.cut.Cut {
		late = c.setCut(n.Cut)
	} else if again {
		late = c.cut.told && c.cut.states == nil && c.cut.At > 0
	}
	hi := c.clock
	for _, w := range c.workers {
		hi = max(hi, w.clock)
	}
	c.send(c.p.Directory, &accept{version: n.Version, client: c.number, isClient: true, session: c.session, refused: late, hi: hi})
}

// setCut makes x the cut, and reports whether a worker is there already.
func (c *ClientState) setCut(x Cut) (late bool) {
	c.cut = clientCut{Cut: x}
	if x.At == 0 {
		return false
	}
	for _, w := range c.workers {
		if w.clock >= x.At { // of one that has finished, rounds beyond it wait for the others
			c.cut.told = true // nothing to tell: the directory proposes again
			return true
		}
	}
	n := max(len(c.workers), c.o.Workers)
	c.cut.states, c.cut.have = make([][]byte, n), make([]bool, n)
	for i, w := range c.workers {
		if w.finished {
			c.cut.have[i], c.cut.states[i] = true, w.last
		}
	}
	c.tellProgress()
	return false
}

// await makes room for what the worker of that number is at the cut, which is waited for until capture has it.
func (x *clientCut) await(worker int) {
	for x.states != nil && len(x.have) <= worker {
		x.have, x.states = append(x.have, false), append(x.states, nil)
	}
}

// capture keeps what a worker is at the cut.
func (c *ClientState) capture(w *WorkerState) {
	if c.cut.At == 0 || c.cut.states == nil || w.clock < c.cut.At && !w.finished || w.index < len(c.cut.have) && c.cut.have[w.index] {
		return
	}
	c.cut.await(w.index)
	c.cut.have[w.index] = true
	if w.state != nil && w.begun < c.cut.At { // one that began later had done nothing at the cut
		c.cut.states[w.index] = w.state()
	}
	c.tellProgress()
}

func (c *ClientState) tellProgress() {
	if c.cut.states == nil || slices.Contains(c.cut.have, false) {
		return
	}
	m := &progress{cut: c.cut.ID, client: c.number, session: c.session, states: c.cut.states}
	size := 0
	for _, s := range c.cut.states {
		size += len(s)
	}
	if size > maxStates {
		m.states, m.text = nil, fmt.Sprintf("ps: snapshot: the workers of %s keep %d bytes, and at most %d are provided for", c.self, size, maxStates)
	}
	c.send(c.p.Directory, m)
	c.cut.told = true
}
