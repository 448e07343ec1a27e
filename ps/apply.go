package ps

import (
	"math"
	"slices"

	"github.com/trivium-ml/trivium/internal/raw"
)

// A round is what is applied to one shard at once: the sections of one client, or in a BSP table those of all, in client order.
type roundPart struct {
	secs   []*section
	sum    float64 // of the weights
	divide bool
	cut    cutState
}

// An entry is a run of cells of one segment in one section.
type entry[T Number] struct {
	seg   int32
	from  int32 // in the segment
	part  uint32
	order int32 // in the round
	cells []T
	cols  []int64 // of sparse rows
}

// apply applies a round.
func (s *shard[T]) apply(p *roundPart) {
	s.writable(p.cut)
	if s.t.opt == nil && !p.divide && !parts(p.secs) {
		for _, c := range p.secs {
			s.add(c, p.cut)
		}
		s.keepAdded(p.cut)
		return
	}
	s.step(p)
}

func parts(secs []*section) bool {
	for _, c := range secs {
		if c.part != 0 {
			return true
		}
	}
	return false
}

// add adds one section's cells where they belong: the path of tables without an optimizer.
func (s *shard[T]) add(c *section, cut cutState) {
	d := raw.Of[T](c.cells)
	plain := s.fork == nil && s.forks == nil && cut != cutAfter && s.t.spec.Keep.Kind == KeepNone && s.live != nil
	switch c.form {
	case formRange:
		live, fork := s.touchAdded(s.findOrMake(c.row, c.from), cut)
		for _, t := range []target[T]{live, fork} {
			if t.cells != nil {
				at := c.from - t.from
				addInto(s.t.isa, t.cells[at:at+int64(c.n)], d)
			}
		}
	case formRows:
		n := int(s.t.spec.Cols)
		if plain { // rows of equal length, one after the other
			cells := s.live.cells
			for i, r := range c.rows {
				k := int(r - s.first)
				s.changes(int32(k))
				addInto(s.t.isa, cells[k*n:k*n+n], d[i*n:i*n+n])
			}
			return
		}
		for i, r := range c.rows {
			live, fork := s.touchAdded(s.findOrMake(r, 0), cut)
			addInto(s.t.isa, live.cells, d[i*n:i*n+n])
			if fork.cells != nil {
				addInto(s.t.isa, fork.cells, d[i*n:i*n+n])
			}
		}
	case formCells:
		start := int64(0)
		for i, r := range c.rows {
			cols, x := c.cols[start:c.ends[i]], d[start:c.ends[i]]
			start = c.ends[i]
			live, fork := s.touchAdded(s.findOrMake(r, cols[0]), cut)
			s.addCells(live, cols, x)
			if fork.r != nil || fork.cells != nil {
				s.addCells(fork, cols, x)
			}
		}
	}
}

func (s *shard[T]) addCells(t target[T], cols []int64, d []T) {
	if !s.t.spec.Sparse {
		for k, c := range cols {
			t.cells[c-t.from] += d[k]
		}
		return
	}
	if !s.places(t.r, cols) {
		s.ensure(t.r, cols)
		s.places(t.r, cols)
	}
	for k, at := range s.at {
		t.r.cells[at] += d[k]
	}
}

// places finds where a sparse row has these columns, and reports whether it has all.
func (s *shard[T]) places(r *row[T], cols []int64) bool {
	s.at = s.at[:0]
	at := 0
	for _, c := range cols {
		if at == len(r.cols) {
			return false
		}
		if at += search(r.cols[at:], c); r.cols[at] != c {
			return false
		}
		s.at = append(s.at, int32(at))
	}
	return true
}

// search is the index of the first of a that is x or more, or of the last, found from the front: columns come in clusters.
func search(a []int64, x int64) int {
	step := 1
	for step < len(a) && a[step] < x {
		step *= 2
	}
	lo, hi := step/2, min(step, len(a)-1)
	for lo < hi {
		if m := (lo + hi) / 2; a[m] < x {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// ensure makes the columns cells of a sparse row.
func (s *shard[T]) ensure(r *row[T], cols []int64) {
	missing, at := 0, 0
	for _, c := range cols {
		k, found := slices.BinarySearch(r.cols[at:], c)
		at += k
		if !found {
			missing++
		}
	}
	if missing == 0 {
		return
	}
	n := len(r.cols)
	r.cols = slices.Grow(r.cols, missing)[:n+missing]
	r.cells = slices.Grow(r.cells, missing)[:n+missing]
	for k := range r.slots {
		r.slots[k] = slices.Grow(r.slots[k], missing)[:n+missing]
	}
	// From the back, so that nothing is overwritten that is still to be moved.
	i, j, w := n-1, len(cols)-1, n+missing-1
	for w >= 0 && j >= 0 {
		switch {
		case i >= 0 && r.cols[i] >= cols[j]:
			if r.cols[i] == cols[j] {
				j--
			}
			r.cols[w], r.cells[w] = r.cols[i], r.cells[i]
			for _, v := range r.slots {
				v[w] = v[i]
			}
			i--
		default:
			r.cols[w], r.cells[w] = cols[j], T(s.t.spec.Init.value(r.row, cols[j]))
			for _, v := range r.slots {
				v[w] = 0
			}
			j--
		}
		w--
	}
}

// touchAdded is touch of a segment whose constraint is to be restored.
func (s *shard[T]) touchAdded(i int32, c cutState) (live, fork target[T]) {
	if s.t.spec.Keep.Kind != KeepNone {
		s.added = append(s.added, i)
	}
	return s.touch(i, c)
}

// keepAdded restores the constraint of what a round's sections have added to, once all are: a long row comes in runs, and after each of them
// it is no row of any round.
func (s *shard[T]) keepAdded(c cutState) {
	slices.Sort(s.added)
	for _, i := range slices.Compact(s.added) {
		live, fork := s.touch(i, c)
		s.keep(live)
		s.keep(fork)
	}
	s.added = s.added[:0]
}

// keep restores the table's constraint.
func (s *shard[T]) keep(t target[T]) {
	cells := t.cells
	if t.r != nil {
		cells = t.r.cells
	}
	switch s.t.spec.Keep.Kind {
	case KeepNonNegative:
		for i, x := range cells {
			if x < 0 {
				cells[i] = 0
			}
		}
	case KeepRowNorm:
		var sum float64
		for _, x := range cells {
			sum += float64(x) * float64(x)
		}
		if norm := math.Sqrt(sum); norm > s.t.spec.Keep.Norm {
			f := s.t.spec.Keep.Norm / norm
			for i, x := range cells {
				cells[i] = T(float64(x) * f)
			}
		}
	}
}
