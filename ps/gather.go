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
)

// A gather is the rows of a round that are stepped together, and room for what is gathered of them: a lane has one for all shards of a table.
type gather struct {
	opt    Gatherer
	wide   *trivium.Layout
	cols   int
	segs   []int32   // of all, those at hand
	sums   []float32 // of the gradients, row by row
	steps  []uint32  // their numbers
	keys   []uint64  // of steps: the number and, below it, the place of the row
	sorted []uint64
	rows   []int32 // segments, in the order of their steps
	p, g   []float32
	slots  [][]float32
	all    []int32 // segments of a round
	lists  []int32 // those of each section
	left   []listed
	spare  []int32 // memory for all
	places []int32 // of a section's segments, among those at hand
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
	g.rows, g.steps = make([]int32, n), make([]uint32, n)
	g.keys, g.sorted = make([]uint64, n), make([]uint64, n)
}

// gathers reports whether a round's rows may be gathered: all are whole, and nobody has an older state of them to be stepped too.
func (s *shard[T]) gathers(p *roundPart) bool {
	return s.t.gather != nil && s.fork == nil && !slices.ContainsFunc(p.secs, func(c *section) bool { return c.form != formRows || c.part != 0 })
}

// A listed is what is left of a section, in the order of its rows.
type listed struct {
	segs  []int32
	cells []float32
}

// begin lists the segments of all sections, and those of each.
func (g *gather) begin(secs []*section, first int64) {
	g.all, g.left, g.lists = g.all[:0], g.left[:0], g.lists[:0]
	for _, c := range secs {
		from := len(g.lists)
		for _, r := range c.rows {
			g.lists = append(g.lists, int32(r-first))
		}
		segs := g.lists[from:]
		g.spare = kernel.Unite(g.spare, g.all, segs)
		g.all, g.spare = g.spare, g.all
		g.left = append(g.left, listed{segs, raw.Of[float32](c.cells)})
	}
}

// stepShort is step of a round of short rows: some at a time are summed, in the order of the sections, and stepped. What is kept of them comes from
// memory meanwhile.
func (s *shard[T]) stepShort(p *roundPart) {
	g := s.t.gather
	g.room()
	g.begin(p.secs, s.first)
	for all := g.all; len(all) > 0; {
		g.segs, all = all[:min(len(g.rows), len(all))], all[min(len(g.rows), len(all)):]
		s.fetch(g.segs)
		sums := g.sums[:len(g.segs)*g.cols]
		kernel.Fill(s.t.isa, sums, absent)
		for i := range g.left {
			x := &g.left[i]
			n := len(x.segs)
			if len(all) > 0 {
				n, _ = slices.BinarySearch(x.segs, all[0])
			}
			g.places = kernel.Places(g.places, g.segs, x.segs[:n])
			kernel.ScatterAddRows(s.t.isa, sums, g.places, x.cells, g.cols)
			x.segs, x.cells = x.segs[n:], x.cells[n*g.cols:]
		}
		s.stepGathered(p)
	}
	clear(g.left)
}

// absent is what a sum begins with: -0, since x + -0 is x for each x, and 0 + -0 is 0.
var absent = float32(math.Copysign(0, -1))

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
	cells := any(live.cells).([]float32)
	rows, m := g.segs, n*g.cols
	x, d, slots := g.p[:m], g.sums[:m], s.views[:0]
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
}
