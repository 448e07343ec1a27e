package ps

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A table is what a member knows of one.
type table struct {
	id     uint32
	spec   Spec
	cut    *cut
	owners []uint16 // the lane of each shard

	opt    trivium.Optimizer // at servers
	layout *trivium.Layout   // of a row's cells, for opt
	gather *gather           // nil: rows are stepped one by one
	isa    kernel.ISA
}

func newTable(d *Definition, p *Placement) *table {
	t := &table{id: d.ID, spec: d.Spec, owners: d.Owners, isa: kernel.Best()}
	t.cut = newCut(&t.spec, p)
	if t.owners == nil {
		t.owners = p.owners(t.id, t.cut.shards)
	}
	return t
}

// equip gives t its optimizer.
func (t *table) equip(updaters map[string]trivium.Optimizer) (err error) {
	isa := t.isa
	if isa == kernel.Go {
		isa = kernel.GoExact // an update has the same bits at every server
	}
	if t.opt, err = optimizerOf(&t.spec, updaters, isa); err != nil || t.opt == nil {
		return err
	}
	tensors := t.spec.Tensors
	if tensors == nil {
		tensors = []trivium.Spec{{Name: "row", Shape: []int{int(t.spec.Cols)}}}
	}
	if t.layout, err = trivium.NewLayout(tensors...); err != nil {
		return err
	}
	t.gather = newGather(t)
	return nil
}

// bytes is about what t takes of each server from the start, with the optimizer's state: dense rows whose number is known. Others take memory
// when they are touched.
func (t *table) bytes(servers int) int64 {
	if t.cut.bounds == nil {
		return 0
	}
	return atMost(math.Ceil(t.bytesFor(float64(t.spec.Rows)*float64(t.spec.Cols), float64(t.spec.Rows)) / float64(servers)))
}

// bytesOf is exactly that of one server, of so many lanes.
func (t *table) bytesOf(server, lanes int) int64 {
	if t.cut.bounds == nil {
		return 0
	}
	var cells, segments int64
	for k, o := range t.owners {
		if lo, hi := t.cut.bounds[k], t.cut.bounds[k+1]; int(o)/lanes == server && lo < hi {
			cells += hi - lo
			segments += (hi-1)/t.spec.Cols - lo/t.spec.Cols + 1
		}
	}
	return atMost(t.bytesFor(float64(cells), float64(segments)))
}

// bytesFor is what so many cells in so many segments take: a product that might not fit an integer.
func (t *table) bytesFor(cells, segments float64) float64 {
	cell := t.spec.Cell.Size()
	if t.opt != nil {
		cell += 4 * t.opt.Slots()
	}
	return cells*float64(cell) + segments*float64(unsafe.Sizeof(segment{}))
}

func atMost(bytes float64) int64 { return int64(min(bytes, 1<<62)) }

// data are the cells of a Range shard: segments end to end.
type data[T Number] struct {
	cells []T
	slots [][]float32 // the optimizer's
	steps []uint32    // of each segment; nil without an optimizer
	hold  *hold       // who reads cells besides
}

func (d *data[T]) clone() *data[T] {
	c := &data[T]{cells: slices.Clone(d.cells), steps: slices.Clone(d.steps), hold: new(hold)}
	for _, s := range d.slots {
		c.slots = append(c.slots, slices.Clone(s))
	}
	return c
}

// A row is a segment of a Hash shard. Sparse ones have columns; both keep what a row of a Range shard does.
type row[T Number] struct {
	row, from int64   // its first column
	cols      []int64 // sparse: ascending
	cells     []T
	slots     [][]float32
	steps     uint32
	frozen    uint32 // the shard's freeze when it was made: an older row belongs to an image too
}

func (r *row[T]) clone(frozen uint32) *row[T] {
	c := *r
	c.cols, c.cells, c.frozen = slices.Clone(r.cols), slices.Clone(r.cells), frozen
	c.slots = nil
	for _, s := range r.slots {
		c.slots = append(c.slots, slices.Clone(s))
	}
	return &c
}

// A shard is a part of a table at its server.
type shard[T Number] struct {
	t     *table
	index int
	tick  uint64    // rounds that changed it
	told  bool      // a reader was told a version: before, nobody asks what changed
	segs  []segment // of a Range shard once told
	dirty []int32   // segments, in the order of their change

	// Range: cells lo to hi of all rows laid end to end. The fork, while a cut is under way and someone is beyond it, has what belongs to
	// the cut.
	lo, hi int64
	first  int64 // the row of segment 0
	live   *data[T]
	fork   *data[T]
	spare  *data[T] // memory of the last copy

	// Hash: rows by key, in the order of first touch.
	keys   keyIndex
	rows   []*row[T]
	forks  map[int32]*row[T] // of the segment: what the cut has of rows that went on
	freeze uint32
	slab   []T

	views   [8][]float32
	sums    [][]T
	entries []entry[T]
	order   []entryKey
	merged  []entryKey
	ends    []int
	group   []entry[T]
	at      []int32
	added   []int32 // segments of a table with a constraint, in the round at hand

	warmed      T // what warm has read: it is of no use, but the compiler does not know
	warmedSlots float32
	warmedSteps uint32
}

// newShard returns a shard with what Init says. Its cells are in r; nil: wherever.
func newShard[T Number](t *table, index int, r *room) *shard[T] {
	s := &shard[T]{t: t, index: index}
	if t.cut.bounds == nil {
		return s
	}
	s.lo, s.hi = t.cut.bounds[index], t.cut.bounds[index+1]
	s.first = s.lo / t.spec.Cols
	cells, segments := t.cut.sizes(index)
	d := &data[T]{cells: take[T](r, int(cells)), hold: new(hold)}
	if t.opt != nil {
		d.steps = take[uint32](r, segments)
		for range t.opt.Slots() {
			d.slots = append(d.slots, take[float32](r, len(d.cells)))
		}
	}
	if t.spec.Init.Kind != Zero {
		for i := range segments {
			a, b, from := s.span(int32(i))
			s.fill(s.first+int64(i), from, d.cells[a:b])
		}
	}
	s.live = d
	return s
}

// fill writes the values of untouched cells of a row from column from on. A norm is that of the whole row; what Init gives to rows of other
// constraints satisfies them.
func (s *shard[T]) fill(rowID, from int64, dst []T) {
	if s.t.spec.Keep.Kind != KeepRowNorm {
		fill(&s.t.spec.Init, rowID, from, dst)
		return
	}
	whole := dst
	if int64(len(dst)) < s.t.spec.Cols {
		whole = make([]T, s.t.spec.Cols)
	}
	fill(&s.t.spec.Init, rowID, 0, whole)
	s.keep(target[T]{cells: whole})
	copy(dst, whole[from:])
}

// span is where segment i of a Range shard lies in its data, and the segment's first column.
func (s *shard[T]) span(i int32) (a, b int, from int64) {
	start := (s.first + int64(i)) * s.t.spec.Cols
	lo, hi := max(start, s.lo), min(start+s.t.spec.Cols, s.hi)
	return int(lo - s.lo), int(hi - s.lo), lo - start
}

// find returns the segment of a cell, -1 where a Hash shard has none yet.
func (s *shard[T]) find(rowID, col int64) int32 {
	if s.live != nil {
		return int32(rowID - s.first)
	}
	return s.keys.find(rowID, col/s.t.cut.block)
}

// findOrMake returns the segment of a cell, made if it is not there.
func (s *shard[T]) findOrMake(rowID, col int64) int32 {
	i := s.find(rowID, col)
	if i >= 0 {
		return i
	}
	block := col / s.t.cut.block
	r := &row[T]{row: rowID, from: block * s.t.cut.block, frozen: s.freeze}
	n := 0
	if !s.t.spec.Sparse {
		n = int(min(s.t.cut.block, s.t.spec.Cols-r.from))
		if len(s.slab) < n {
			s.slab = make([]T, max(n, min(1<<14, n*(len(s.rows)+1))))
		}
		r.cells, s.slab = s.slab[:n:n], s.slab[n:]
		s.fill(rowID, r.from, r.cells)
	}
	if s.t.opt != nil {
		for range s.t.opt.Slots() {
			r.slots = append(r.slots, make([]float32, n))
		}
	}
	i = int32(len(s.rows))
	s.rows = append(s.rows, r)
	s.segs = append(s.segs, segment{})
	s.keys.put(rowID, block, i)
	return i
}

// A target is a segment's memory, to be changed.
type target[T Number] struct {
	cells []T
	slots [][]float32
	at    int // in slots, of the first of cells
	steps *uint32
	from  int64
	r     *row[T] // Hash
}

// count counts a step, up to the largest number that there is: begun anew at 0 a rule would take it for the first, which the correction of Adam's
// means divides by nothing.
func (t *target[T]) count() {
	if t.steps != nil && *t.steps < math.MaxUint32 {
		*t.steps++
	}
}

// touch returns the memory of segment i that an update changes: the live one, and the fork's where the update belongs to the cut.
func (s *shard[T]) touch(i int32, c cutState) (live, forked target[T]) {
	s.changes(i)
	if s.live != nil {
		live = s.targetOf(s.live, i)
		if c == cutBefore && s.fork != nil {
			forked = s.targetOf(s.fork, i)
		}
		return live, forked
	}
	r := s.rows[i]
	if c == cutAfter {
		if _, there := s.forks[i]; !there {
			if s.forks == nil {
				s.forks = map[int32]*row[T]{}
			}
			s.forks[i] = r.clone(s.freeze)
		}
	}
	if r.frozen != s.freeze {
		r = r.clone(s.freeze)
		s.rows[i] = r
	}
	live = rowTarget(r)
	if c == cutBefore {
		if f := s.forks[i]; f != nil {
			forked = rowTarget(f)
		}
	}
	return live, forked
}

func rowTarget[T Number](r *row[T]) target[T] {
	return target[T]{cells: r.cells, slots: r.slots, steps: &r.steps, from: r.from, r: r}
}

func (s *shard[T]) targetOf(d *data[T], i int32) target[T] {
	a, b, from := s.span(i)
	t := target[T]{cells: d.cells[a:b], slots: d.slots, at: a, from: from}
	if d.steps != nil {
		t.steps = &d.steps[i]
	}
	return t
}

// A cutState says what an update is to the snapshot under way.
type cutState uint8

const (
	cutNone   cutState = iota
	cutBefore          // it belongs to the cut
	cutAfter           // it does not
)

// writable makes the live cells the shard's own: where a message still refers to them they are copied, since what was sent is not
// changed.
func (s *shard[T]) writable(c cutState) {
	s.tick++
	if s.live == nil {
		return
	}
	if c == cutAfter && s.fork == nil {
		s.fork = s.live.clone()
	}
	if s.live.hold.free() {
		return
	}
	old := s.live
	if p := s.spare; p != nil && p.hold.free() {
		copy(p.cells, old.cells)
		s.live = p
	} else {
		s.live = &data[T]{cells: slices.Clone(old.cells), hold: new(hold)}
	}
	s.live.slots, s.live.steps = old.slots, old.steps // nobody but an image refers to these, and it has copies
	s.spare = old
}

// check refuses a section that does not fit the shard. What it lets through, apply and read need not look at again.
func (s *shard[T]) check(c *section, update bool) error {
	sp := &s.t.spec
	size := sp.Cell.Size()
	if update && !c.coded && len(c.cells) != c.n*size {
		return fmt.Errorf("%d cells in %d bytes", c.n, len(c.cells))
	}
	inRows := func(r int64) bool { return sp.Rows == 0 || r >= 0 && r < sp.Rows }
	switch c.form {
	case formRange:
		if !inRows(c.row) || c.n < 1 || c.from < 0 || c.from > sp.Cols-int64(c.n) {
			return fmt.Errorf("row %d, columns %d to %d", c.row, c.from, c.from+int64(c.n))
		}
		if update && sp.Sparse {
			return fmt.Errorf("a run of cells of a sparse row")
		}
		k, from, to := s.t.cut.segment(c.row, c.from)
		if k != s.index || c.from < from || c.from+int64(c.n) > to {
			return fmt.Errorf("row %d, columns %d to %d are not of shard %d", c.row, c.from, c.from+int64(c.n), s.index)
		}
	case formRows, formSame:
		if !s.t.cut.wholeRows() || update && sp.Sparse {
			return fmt.Errorf("whole rows of a table whose rows are split or sparse")
		}
		if !update && c.mark && !s.t.past() {
			return fmt.Errorf("rows past the cache, of a table whose rows are sparse, hashed, split or long")
		}
		if c.from != 0 {
			return fmt.Errorf("whole rows from column %d on", c.from)
		}
		if update && int64(c.n) != int64(len(c.rows))*sp.Cols {
			return fmt.Errorf("%d cells for %d rows of %d", c.n, len(c.rows), sp.Cols)
		}
		last := int64(math.MinInt64)
		for i, r := range c.rows {
			inside := s.live != nil && i > 0 && i < len(c.rows)-1 // between two of a Range shard
			if !inRows(r) || i > 0 && r <= last || !inside && s.t.cut.shardOf(r, 0) != s.index {
				return fmt.Errorf("row %d", r)
			}
			last = r
		}
	case formCells:
		if len(c.ends) != len(c.rows) || update && c.n != len(c.cols) {
			return fmt.Errorf("%d rows, %d ends, %d columns, %d cells", len(c.rows), len(c.ends), len(c.cols), c.n)
		}
		start := int64(0)
		for i, r := range c.rows {
			end := c.ends[i]
			if !inRows(r) || end <= start || end > int64(len(c.cols)) {
				return fmt.Errorf("row %d with columns %d to %d", r, start, end)
			}
			cols := c.cols[start:end]
			k, from, to := s.t.cut.segment(r, min(max(cols[0], 0), sp.Cols-1))
			for j, x := range cols {
				if x < from || x >= to || k != s.index || j > 0 && x <= cols[j-1] {
					return fmt.Errorf("row %d, column %d", r, x)
				}
			}
			start = end
		}
		if start != int64(len(c.cols)) {
			return fmt.Errorf("%d columns for rows that have %d", len(c.cols), start)
		}
	}
	return nil
}
