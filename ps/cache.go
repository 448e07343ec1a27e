package ps

import (
	"cmp"
	"slices"
	"unsafe"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/internal/raw"
)

// A clientTable is a table with what this client has of it.
type clientTable struct {
	*table
	byRow  []*cachedRow // where rows are few enough to be numbered
	rows   map[int64]*cachedRow
	cached int // rows

	counts    TableCounters                // under the client's lock; its Table is not set
	unposted  bool                         // answers do not come as they are asked for: they land where all do
	residuals map[int64]*compress.Residual // by row: what Options.Up dropped
	rate      float64                      // that these are measured in; 0: not told
	warmed    int                          // what warm has read: it is of no use, but the compiler does not know
}

const numberedRows = 1 << 20

func newClientTable(t *table) *clientTable {
	c := &clientTable{table: t}
	if t.spec.Rows > 0 && t.spec.Rows <= numberedRows {
		c.byRow = make([]*cachedRow, t.spec.Rows)
	} else {
		c.rows = map[int64]*cachedRow{}
	}
	return c
}

func (t *clientTable) find(row int64) *cachedRow {
	if t.byRow != nil {
		return t.byRow[row]
	}
	return t.rows[row]
}

// warm reads what is kept of the first warmRows of these rows, which lies far apart: it is waited for together.
func (t *clientTable) warm(rows []int64) {
	if t.byRow == nil {
		return
	}
	for _, row := range rows[:min(warmRows, len(rows))] {
		if uint64(row) < uint64(len(t.byRow)) {
			if r := t.byRow[row]; r != nil {
				t.warmed += r.pins + r.n + r.one[0].landed
			}
		}
	}
}

// byColumn reports whether servers send rows as the columns that they have. Sparse ones that are split come as runs of cells, as dense ones do.
func (t *clientTable) byColumn() bool { return t.spec.Sparse && t.cut.wholeRows() }

// A cachedRow is a row as servers sent it, without what its readers added since.
type cachedRow struct {
	t     *clientTable
	row   int64
	cells []uint64 // memory of the cells: all of them, or of a sparse row those of cols
	spare []uint64 // as much, for the next answer to land in; nil: there is none
	left  *landing // whose memory was not taken
	n     int      // cells in it
	cols  []int64  // sparse
	segs  []cachedSegment
	one   [1]cachedSegment
	pins  int  // by reads under way: it is not evicted
	views int  // of its memory, which is then not changed in place
	used  bool // since the hand of the eviction went by
	at    int  // in the ring
	bytes int
}

// A cachedSegment is the part of a row that one shard sent.
type cachedSegment struct {
	span
	lane    uint16
	v       Clock // every update with a smaller stamp is in it; -1: nothing is here
	own     Clock // and the client's own below this
	at      Clock // the highest clock that it was asked for (ASP)
	seen    Clock // the highest value clock of cells of it that were read past the cache: what lacks more is neither taken nor read
	version uint64
	gen     uint32 // the lane's generation, while the server sends changes; 0: it does not
	pull    *pulling
	landed  int  // cells of the pull that are here
	quiet   bool // when it was asked for, an unsubscription was on its way: it may undo the request's subscription
}

func (t *clientTable) newRow(row int64) *cachedRow {
	r := &cachedRow{t: t, row: row, used: true}
	r.segs = r.one[:0]
	t.cut.eachSpan(row, func(s span) {
		r.segs = append(r.segs, cachedSegment{span: s, lane: t.owners[s.shard], v: -1, at: -1})
	})
	return r
}

func viewOf[T Number](mem []uint64, n int) []T {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n)
}

func words(n, size int) int { return (n*size + 7) / 8 }

// hold makes room for the cells of a dense row.
func (r *cachedRow) room() {
	if r.cells == nil {
		r.n = int(r.t.spec.Cols)
		r.cells = make([]uint64, words(r.n, r.t.spec.Cell.Size()))
	}
}

// land copies cells from the wire to their place in a dense row.
func (r *cachedRow) land(from int64, n int, p []byte) {
	r.room()
	switch r.t.spec.Cell {
	case Float32:
		landCells[float32](r, from, n, p)
	case Float64:
		landCells[float64](r, from, n, p)
	case Int32:
		landCells[int32](r, from, n, p)
	default:
		landCells[int64](r, from, n, p)
	}
}

func landCells[T Number](r *cachedRow, from int64, n int, p []byte) {
	raw.Copy(viewOf[T](r.cells, r.n)[from:from+int64(n)], p)
}

// writable makes the row's memory its own again, where a reader holds it.
func (r *cachedRow) writable() {
	if r.views > 0 && r.cells != nil {
		r.cells = slices.Clone(r.cells)
		r.views = 0 // of the memory that it had
	}
}

// value returns what a segment is good for: its value clock, and the client's own rounds that it has.
func (c *ClientState) value(s *cachedSegment) (v, own Clock) {
	v, own = s.v, s.own
	if s.gen != 0 && v >= 0 {
		if l := c.lanes[s.lane]; s.gen == l.gen && l.pushedM > v {
			v, own = l.pushedM, max(own, l.pushedOwn)
		}
	}
	return v, own
}

// overtaken reports whether readers have, or have seen, more of a segment than a section of an answer holds: frames may overtake one another.
func (c *ClientState) overtaken(seg *cachedSegment, m *values, s *section) bool {
	v, own := c.value(seg)
	return seg.seen > m.m || v > m.m || v == m.m && own > m.ownOf(s)
}

// fresh reports whether a worker may read the row, and its value clock.
func (c *ClientState) fresh(r *cachedRow, w *WorkerState) (v Clock, ok bool) {
	if len(r.segs) == 1 {
		return c.freshSegment(r, &r.segs[0], w)
	}
	v = maxClock
	for i := range r.segs {
		x, ok := c.freshSegment(r, &r.segs[i], w)
		if !ok {
			return 0, false
		}
		v = min(v, x)
	}
	return v, true
}

func (c *ClientState) freshSegment(r *cachedRow, s *cachedSegment, w *WorkerState) (v Clock, ok bool) {
	v, own := c.value(s)
	if v < s.seen || v < 0 {
		return 0, false
	}
	if r.t.spec.Mode == ASP { // once a round, and with all of the worker's rounds that are not kept to be laid over
		return v, s.at >= w.clock && (own >= w.base || r.t.spec.Optimizer != "")
	}
	return v, v >= w.clock-r.t.spec.staleness()
}

const maxClock = Clock(1<<62 - 1)

// A rowRing is the cached rows of all tables, for eviction by second chance: the hand passes those that were used since it came by.
type rowRing struct {
	rows  []*cachedRow
	hand  int
	bytes int64
	limit int64
}

func (g *rowRing) add(r *cachedRow) {
	r.at = len(g.rows)
	g.rows = append(g.rows, r)
}

func (g *rowRing) remove(r *cachedRow) {
	last := g.rows[len(g.rows)-1]
	g.rows[r.at] = last
	last.at = r.at
	g.rows[len(g.rows)-1] = nil
	g.rows = g.rows[:len(g.rows)-1]
	g.bytes -= int64(r.bytes)
	r.t.cached--
	if r.t.byRow != nil {
		r.t.byRow[r.row] = nil
	} else {
		delete(r.t.rows, r.row)
	}
}

// rowOverhead is about what a cached row takes beside its cells, in bytes.
const rowOverhead = 200

// weigh counts what r takes. One whose answer came when it was thrown out takes nothing here.
func (g *rowRing) weigh(r *cachedRow) {
	if r.at >= len(g.rows) || g.rows[r.at] != r {
		return
	}
	n := rowOverhead + 8*len(r.cells) + 8*len(r.spare) + 8*len(r.cols)
	if r.left != nil {
		n += 8 * len(r.left.cells)
	}
	g.bytes += int64(n - r.bytes)
	r.bytes = n
}

// evict removes rows until they take less than the limit. Rows that are being read stay: they may be more for so long.
func (c *ClientState) evict() {
	g := &c.ring
	for tries := 2 * len(g.rows); g.bytes > g.limit && tries > 0 && len(g.rows) > 0; tries-- {
		if g.hand >= len(g.rows) {
			g.hand = 0
		}
		r := g.rows[g.hand]
		switch {
		case r.pins > 0:
			g.hand++
		case r.used:
			r.used = false
			g.hand++
		default:
			g.remove(r)
			c.Evicted++
			for i := range r.segs {
				if s := &r.segs[i]; r.t.spec.Mode == ESSP && s.v >= 0 {
					l := c.lanes[s.lane]
					l.drop = append(l.drop, section{table: r.t.id, shard: uint32(s.shard), form: formRange, row: r.row, from: s.from, n: 1})
				}
			}
		}
	}
}

// maxDrops is how many evicted segments a lane may owe: what a batch brings at most, and more. Beyond it all subscriptions there end at once.
const maxDrops = 1 << 16

// boundDrops gives up the subscriptions of lanes that would be told of too many evicted segments, one by one: the rows that are read again are
// asked for again. Batches may bring fewer than are thrown out, of rows that lie in many shards, or of a round that reads without end.
func (c *ClientState) boundDrops() {
	for _, l := range c.lanes {
		if len(l.drop) > maxDrops {
			c.resubscribe(l)
		}
	}
}

// dropped returns what the lane is to send no longer, in at most so many sections: each has many rows of a shard, or segments of rows that
// are split, by their first columns.
func (l *laneLink) dropped(tables []*clientTable, most int) (secs []section) {
	slices.SortFunc(l.drop, func(a, b section) int {
		return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.shard, b.shard), cmp.Compare(a.row, b.row), cmp.Compare(a.from, b.from))
	})
	n := 0
	for room := maxPiece / 2; n < len(l.drop) && room > 0; n++ {
		q := &l.drop[n]
		if n > 0 && q.table == l.drop[n-1].table && q.row == l.drop[n-1].row && q.from == l.drop[n-1].from {
			continue // thrown out twice
		}
		k, whole := len(secs)-1, tables[q.table].cut.wholeRows()
		if k < 0 || secs[k].table != q.table || secs[k].shard != q.shard {
			if len(secs) == most {
				break
			}
			k++
			secs = append(secs, section{table: q.table, shard: q.shard, form: formCells})
			if whole {
				secs[k].form = formRows
			}
		}
		s := &secs[k]
		s.rows, room = append(s.rows, q.row), room-8
		if !whole {
			s.cols = append(s.cols, q.from)
			s.ends, room = append(s.ends, int64(len(s.cols))), room-16
		}
	}
	l.drop = slices.Delete(l.drop, 0, n)
	return secs
}

// unwanted unsubscribes from a row that is sent though it is not here: it was thrown out before it had come.
func (l *laneLink) unwanted(t *clientTable, row, col int64) {
	if t.spec.Rows > 0 && (row < 0 || row >= t.spec.Rows) || col < 0 || col >= t.spec.Cols {
		return
	}
	if shard, from, _ := t.cut.segment(row, col); t.owners[shard] == l.lane && !l.dropping(t, row, from) {
		l.drop = append(l.drop, section{table: t.id, shard: uint32(shard), form: formRange, row: row, from: from, n: 1})
	}
}

// unview ends a view of the memory that the row had.
func (r *cachedRow) unview(cells []uint64) {
	if len(r.cells) > 0 && len(cells) > 0 && &r.cells[0] == &cells[0] {
		r.views--
	}
}
