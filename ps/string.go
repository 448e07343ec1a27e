package ps

import "fmt"

// Messages and calls say what they are in a line of a log or a trace, without what depends on the process.

func (m *batch) String() string {
	end := ""
	if m.last {
		end = " last"
	}
	if m.finish {
		end = " finish"
	}
	return fmt.Sprintf("batch lane %d client %d stamp %d piece %d%s %v drop %v", m.lane, m.client, m.stamp, m.piece, end, m.secs, m.drop)
}

func (s section) String() string {
	return fmt.Sprintf("{%d.%d form %d row %d.%d rows %v cols %v part %d list %d n %d}", s.table, s.shard, s.form, s.row, s.from, s.rows, s.cols, s.part, s.list, s.n)
}

func (m *pull) String() string {
	return fmt.Sprintf("pull %d lane %d client %d need %d own %d gen %d %v", m.id, m.lane, m.client, m.need, m.own, m.gen, m.secs)
}

func (m *probe) String() string {
	return fmt.Sprintf("probe lane %d client %d gen %d sent %d.%d held %d M %d", m.lane, m.client, m.gen, m.stamp, m.piece, m.held, m.m)
}

func (s status) String() string {
	return fmt.Sprintf("lane %d M %d own %d.%d gap %d gen %d pushes %d pushed %d", s.lane, s.m, s.own, s.piece, s.gap, s.gen, s.pushes, s.pushed)
}

func (m *values) String() string {
	return fmt.Sprintf("values %d piece %d/%d %v %v", m.id, m.piece, m.pieces, m.status, m.secs)
}

func (m *clocks) String() string { return "clocks " + m.status.String() }

func (m *have) String() string { return fmt.Sprintf("have lane %d complete %d", m.lane, m.complete) }

func (m *refused) String() string { return "refused " + m.text }

func (m *behind) String() string {
	return fmt.Sprintf("behind lane %d own %d M %d", m.lane, m.own, m.m)
}

func (m *install) String() string {
	return fmt.Sprintf("install version %d: clients %v, %d tables, cut %v", m.config.Version, m.config.Clients, len(m.config.Tables), m.config.Cut)
}

func (m *accept) String() string {
	return fmt.Sprintf("accept version %d by client %v %d or lane %d, refused %v, M %d, highest %d, ends %v %s", m.version, m.isClient, m.client, m.lane, m.refused, m.m, m.hi, m.ends, m.text)
}

func (m *hello) String() string { return fmt.Sprintf("hello %s with %d tables", m.name, len(m.specs)) }

func (m *create) String() string { return fmt.Sprintf("create %q by client %d", m.spec.Name, m.client) }

func (m *progress) String() string {
	return fmt.Sprintf("progress of client %d at cut %d: %v", m.client, m.cut, m.states)
}

func (m *saved) String() string {
	return fmt.Sprintf("saved cut %d by lane %d: %s %s", m.cut, m.lane, m.index.Key, m.text)
}

func (g *getCall) String() string {
	return fmt.Sprintf("get %q rows %v cols %v by worker %d", g.t.spec.Name, g.rows, g.cols, g.w.index)
}

func (w *WorkerState) String() string { return fmt.Sprintf("worker %d at clock %d", w.index, w.clock) }

func (c clockCall) String() string { return fmt.Sprintf("clock of %v, barrier %v", c.w, c.barrier) }

func (c finishCall) String() string { return fmt.Sprintf("finish of %v", c.w) }

func (c *Config) String() string { return fmt.Sprintf("config %d", c.Version) }

func (c snapshotCall) String() string { return "snapshot" }

func (x prefetchCall) String() string { return fmt.Sprintf("prefetch %v", x.gets) }

func (x pullCall) String() string { return fmt.Sprintf("pull %v", x.calls) }
