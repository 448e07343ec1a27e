package ps

import (
	"math"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A Gatherer is an updater that steps many short rows at once. A server gathers the cells and slots of rows that lie far apart, has it step
// them as one run, and puts them back: to call it for each row would take longer than the step.
type Gatherer interface {
	trivium.Optimizer
	// Gathers reports whether rows may come as copies of their cells and slots, and many at once. If not, Apply is called for each.
	Gathers() bool
	// Counting reports whether an update depends on the number of its step. Then rows come in the order of theirs.
	Counting() bool
	// ApplyRows is Apply of whole rows, end to end, the i-th with number steps[i]. l is the layout of as many rows, as one tensor.
	ApplyRows(steps []uint32, l *trivium.Layout, p, g, out []float32, slots [][]float32)
}

var _ Gatherer = (*optim.Rule)(nil)

const (
	gatherCells = 4096 // of rows are gathered at a time, at most
	gatherRows  = 1024 // rows of them: what is kept of each has cache lines of its own, and those of all are to stay in the second-level cache
	gatherShort = 256  // cells of a row, at most
	fetchAt     = 64   // rows are asked for at a time, a power of two
)

// A gather is the rows of a round that are stepped together, and room for what is gathered of them: a lane has one for all shards of a table.
type gather struct {
	opt    Gatherer
	wide   *trivium.Layout
	cols   int
	segs   []int32
	sums   []float32 // of the gradients, row by row
	steps  []uint32  // their numbers
	keys   []uint64  // of steps: the number and, below it, the place of the row
	sorted []uint64
	rows   []int32 // segments, in the order of their steps
	p, g   []float32
	slots  [][]float32
	chains []chain
}

// newGather returns that of t; nil: its rows are not gathered.
func newGather(t *table) *gather {
	opt, ok := t.opt.(Gatherer)
	if !ok || !opt.Gathers() || t.cut.bounds == nil || !t.cut.wholeRows() || t.spec.Cell != Float32 || t.spec.Cols > gatherShort || t.spec.Keep.Kind != KeepNone || t.layout.Tensors() != 1 {
		return nil
	}
	g := &gather{opt: opt, cols: int(t.spec.Cols)}
	cells := min(gatherCells/g.cols, gatherRows) * g.cols
	spec := t.layout.Spec(0)
	spec.Shape = []int{cells}
	var err error
	if g.wide, err = trivium.NewLayout(spec); err != nil {
		return nil
	}
	return g
}

// room makes room for a round, unless it is there.
func (g *gather) room() {
	if g.sums != nil {
		return
	}
	cells := g.wide.Len()
	g.sums, g.p, g.g = make([]float32, cells), make([]float32, cells), make([]float32, cells)
	for range g.opt.Slots() {
		g.slots = append(g.slots, make([]float32, cells))
	}
	n := cells / g.cols
	g.segs, g.rows, g.steps = make([]int32, 0, n), make([]int32, n), make([]uint32, n)
	g.keys, g.sorted = make([]uint64, n), make([]uint64, n)
}

// gathers reports whether a round's rows may be gathered: all are whole, and nobody has an older state of them to be stepped too.
func (s *shard[T]) gathers(p *roundPart) bool {
	return s.t.gather != nil && s.fork == nil && !slices.ContainsFunc(p.secs, func(c *section) bool { return c.form != formRows || c.part != 0 })
}

// A chain is sections with ascending rows, of one client mostly.
type chain struct {
	row   int64 // the next; beyond all: there is none
	rows  []int64
	cells []float32
	more  []*section
}

// next goes on by a row.
func (c *chain) next() {
	for len(c.rows) == 0 {
		if len(c.more) == 0 {
			c.row = math.MaxInt64
			return
		}
		c.rows, c.cells, c.more = c.more[0].rows, raw.Of[float32](c.more[0].cells), c.more[1:]
	}
	c.row, c.rows = c.rows[0], c.rows[1:]
}

// take returns the cells of the row at hand.
func (c *chain) take(cols int) []float32 {
	x := c.cells[:cols]
	c.cells = c.cells[cols:]
	return x
}

// begin makes the chains of a round's sections, in their order.
func (g *gather) begin(secs []*section) {
	g.chains = g.chains[:0]
	for at := 0; at < len(secs); {
		n := 1
		for at+n < len(secs) {
			a, b := secs[at+n-1].rows, secs[at+n].rows
			if len(a) == 0 || len(b) == 0 || b[0] <= a[len(a)-1] {
				break
			}
			n++
		}
		c := chain{more: secs[at : at+n]}
		c.next()
		g.chains = append(g.chains, c)
		at += n
	}
}

// stepShort is step of a round of short rows.
func (s *shard[T]) stepShort(p *roundPart) {
	g := s.t.gather
	g.room()
	g.begin(p.secs)
	for {
		row := int64(math.MaxInt64)
		for i := range g.chains {
			row = min(row, g.chains[i].row)
		}
		if row == math.MaxInt64 {
			break
		}
		at, first := len(g.segs)*g.cols, true
		sum := g.sums[at : at+g.cols]
		for i := range g.chains {
			c := &g.chains[i]
			if c.row != row {
				continue
			}
			x := c.take(g.cols)
			c.next()
			if first {
				copy(sum, x)
				first = false
				continue
			}
			for k := range sum {
				sum[k] += x[k]
			}
		}
		g.segs = append(g.segs, int32(row-s.first))
		if n := len(g.segs); n%fetchAt == 0 {
			s.fetch(g.segs[n-fetchAt:])
		}
		if at+2*g.cols > len(g.sums) {
			s.stepGathered(p)
		}
	}
	s.stepGathered(p)
	clear(g.chains)
}

// inOrder puts steps, and sums as g.g, in the order of the steps' numbers, which are from least to most, and returns the rows' segments so. Rows of
// as many steps stay in theirs: digit by digit, from the last one on (Knuth, The Art of Computer Programming 3, 5.2.5).
func (g *gather) inOrder(least, most uint32) []int32 {
	const digit = 8
	n := len(g.segs)
	keys, sorted := g.keys[:n], g.sorted[:n]
	for i, k := range g.steps[:n] {
		keys[i] = uint64(k-least)<<32 | uint64(i)
	}
	for shift := 32; (uint64(most-least)<<32)>>shift > 0; shift += digit {
		var at [1 << digit]int32
		for _, key := range keys {
			at[uint8(key>>shift)]++
		}
		sum := int32(0)
		for i, count := range at {
			at[i], sum = sum, sum+count
		}
		for _, key := range keys {
			to := &at[uint8(key>>shift)]
			sorted[*to] = key
			*to++
		}
		keys, sorted = sorted, keys
	}
	rows := g.rows[:n]
	for i, key := range keys {
		rows[i], g.steps[i] = int32(uint32(key)), least+uint32(key>>32)
	}
	kernel.GatherRows(g.g, g.sums, rows, g.cols)
	for i, k := range rows {
		rows[i] = g.segs[k]
	}
	return rows
}

// fetch has what is kept of these rows come from memory, while others are summed.
func (s *shard[T]) fetch(rows []int32) {
	kernel.FetchRows(s.live.steps, rows, 1)
	kernel.FetchRows(s.live.cells, rows, s.t.gather.cols)
	for _, v := range s.live.slots {
		kernel.FetchRows(v, rows, s.t.gather.cols)
	}
}

// stepGathered steps the rows of g.
func (s *shard[T]) stepGathered(p *roundPart) {
	g, live := s.t.gather, s.live
	n := len(g.segs)
	if n == 0 {
		return
	}
	cells := any(live.cells).([]float32)
	rows, m := g.segs, n*g.cols
	x, d, slots := g.p[:m], g.sums[:m], s.views[:0]
	s.fetch(rows[n&^(fetchAt-1):])
	least, most := uint32(math.MaxUint32), uint32(0)
	for i, seg := range rows {
		k := live.steps[seg]
		if k < math.MaxUint32 {
			k++
		}
		live.steps[seg], g.steps[i] = k, k
		least, most = min(least, k), max(most, k)
	}
	if s.told {
		for _, seg := range rows {
			s.changes(seg)
		}
	}
	if least != most && g.opt.Counting() {
		rows, d = g.inOrder(least, most), g.g[:m]
	}
	kernel.GatherRows(x, cells, rows, g.cols)
	for j, v := range live.slots {
		slots = append(slots, g.slots[j][:m])
		kernel.GatherRows(slots[j], v, rows, g.cols)
	}
	if p.divide {
		kernel.ScaleInto(s.t.isa, d, d, float32(p.sum))
	}
	g.opt.ApplyRows(g.steps[:n], g.wide, x, d, d, slots)
	kernel.AddInto(s.t.isa, x, d)
	kernel.ScatterRows(cells, x, rows, g.cols)
	for j, v := range slots {
		kernel.ScatterRows(live.slots[j], v, rows, g.cols)
	}
	g.segs = g.segs[:0]
}
