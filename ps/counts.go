package ps

import "slices"

// TableCounters are what a client's workers did with one table since it was opened.
type TableCounters struct {
	Table string
	Reads uint64 // by all workers; what is asked for ahead is none
	Hits  uint64 // those that the cache answered, perhaps since they were asked for ahead

	// Stale[n] are the reads that lacked n rounds: the worker's clock less the value clock, at least 0. The last has all that lacked more.
	Stale [MaxStale + 1]uint64

	Rounds        uint64 // that added to the table
	BytesSent     uint64 // of these: keys and cells, each once, however often it was sent again
	BytesReceived uint64 // of cells, asked for or pushed
}

// MaxStale is from how many rounds on TableCounters tells reads apart no more.
const MaxStale = 16

// counted counts a read at that clock. The client's lock is held.
func (t *clientTable) counted(at, v Clock, cached bool) {
	n := &t.counts
	n.Reads++
	if cached {
		n.Hits++
	}
	n.Stale[min(max(at-v, 0), MaxStale)]++
}

// sent counts what the sections of a round bring.
func (c *ClientState) sent(secs []section) {
	for i := range secs {
		c.tables[secs[i].table].counts.BytesSent += uint64(secs[i].size())
	}
}

// received counts what a section of an answer brings.
func (c *ClientState) received(s *section) {
	c.BytesReceived += uint64(len(s.cells))
	if int(s.table) < len(c.tables) {
		c.tables[s.table].counts.BytesReceived += uint64(len(s.cells))
	}
}

// TableCounters returns the client's, table by table, in the order in which they were defined.
func (c *Client) TableCounters() []TableCounters {
	c.Lock()
	defer c.Unlock()
	return c.state.tableCounters()
}

func (c *ClientState) tableCounters() []TableCounters {
	all := slices.Grow([]TableCounters(nil), len(c.tables))
	for _, t := range c.tables {
		n := t.counts
		n.Table = t.spec.Name
		all = append(all, n)
	}
	return all
}
