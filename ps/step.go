package ps

import (
	"cmp"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// stepCells are stepped at a time: what is summed, divided and added stays in the first-level cache.
const stepCells = 4096

// step sums a round's sections, divides the sum once, and adds it, or the update that the optimizer makes of it. A row that several
// sections have is stepped once.
func (s *shard[T]) step(p *roundPart) {
	if p.divide && p.sum == 0 && s.t.spec.Cell.float() { // there is no mean
		s.skip(p)
		return
	}
	if s.gathers(p) {
		s.stepShort(p)
		return
	}
	if len(p.secs) == 1 && p.secs[0].form == formRows {
		s.stepRows(p.secs[0], p)
		return
	}
	es := s.entries[:0]
	for k, c := range p.secs {
		d := raw.Of[T](c.cells)
		switch c.form {
		case formRange:
			i := s.findOrMake(c.row, c.from)
			from := c.from
			if s.live != nil {
				_, _, first := s.span(i)
				from -= first
			} else {
				from -= s.rows[i].from
			}
			es = append(es, entry[T]{i, int32(from), c.part, int32(k), d, nil})
		case formRows:
			n := int(s.t.spec.Cols)
			for i, r := range c.rows {
				es = append(es, entry[T]{s.findOrMake(r, 0), 0, c.part, int32(k), d[i*n : i*n+n], nil})
			}
		case formCells:
			start := int64(0)
			for i, r := range c.rows {
				es = append(es, entry[T]{s.findOrMake(r, c.cols[start]), 0, c.part, int32(k), d[start:c.ends[i]], c.cols[start:c.ends[i]]})
				start = c.ends[i]
			}
		}
	}
	s.entries = es
	order := s.inOrder(es)
	for at, warm := 0, 0; at < len(order); {
		if at >= warm {
			warm = min(at+warmRows, len(order))
			for _, k := range order[at:warm] {
				s.warm(k.segment())
			}
		}
		i, group := order[at].segment(), s.group[:0]
		sparse := false
		for ; at < len(order) && order[at].segment() == i; at++ {
			e := &es[order[at].place()]
			group = append(group, *e)
			sparse = sparse || e.cols != nil
		}
		s.group = group
		live, fork := s.touch(i, p.cut)
		for _, t := range []target[T]{live, fork} {
			if t.cells == nil && t.r == nil {
				continue
			}
			t.count()
			if sparse {
				s.stepColumns(t, group, p)
			} else {
				s.stepRuns(t, group, p)
			}
			s.keep(t)
		}
	}
	clear(s.entries)
	clear(s.group)
}

// An entryKey has an entry's segment and, below it, its place.
type entryKey uint64

func (k entryKey) segment() int32 { return int32(k >> 32) }
func (k entryKey) place() uint32  { return uint32(k) }

// inOrder returns the keys of es by segment, and of a segment by place. What a section names is ascending: such runs are merged, two by two.
func (s *shard[T]) inOrder(es []entry[T]) []entryKey {
	keys, ends := slices.Grow(s.order[:0], len(es))[:len(es)], s.ends[:0]
	for k := range es {
		if keys[k] = entryKey(es[k].seg)<<32 | entryKey(k); k > 0 && keys[k] < keys[k-1] {
			ends = append(ends, k)
		}
	}
	ends = append(ends, len(es))
	merged := slices.Grow(s.merged[:0], len(es))[:len(es)]
	for len(ends) > 1 {
		from, n := 0, 0
		for j := 0; j < len(ends); j += 2 {
			mid, to := ends[j], ends[min(j+1, len(ends)-1)]
			merge(merged[from:to], keys[from:mid], keys[mid:to], cmp.Compare[entryKey])
			ends[n], from = to, to
			n++
		}
		ends = ends[:n]
		keys, merged = merged, keys
	}
	s.order, s.merged, s.ends = keys, merged, ends
	return keys
}

// merge puts a and b, which are ascending, into dst.
func merge[E any](dst, a, b []E, compare func(a, b E) int) {
	for len(a) > 0 && len(b) > 0 {
		if compare(b[0], a[0]) < 0 {
			dst[0], b = b[0], b[1:]
		} else {
			dst[0], a = a[0], a[1:]
		}
		dst = dst[1:]
	}
	copy(dst[copy(dst, a):], b)
}

// A Counter is an updater that may count rounds whose weights add up to 0: such a round steps no cell, and the next step has the number
// after it.
type Counter interface {
	// CountsAll says so of the rows of l.
	CountsAll(l *trivium.Layout) bool
}

// skip counts a round without weight in the segments that it names, once in each, where their updater does.
func (s *shard[T]) skip(p *roundPart) {
	if c, ok := s.t.opt.(Counter); !ok || !c.CountsAll(s.t.layout) {
		return
	}
	seen := map[int32]bool{}
	count := func(seg int32) {
		if seen[seg] {
			return
		}
		seen[seg] = true
		live, fork := s.touch(seg, p.cut)
		for _, t := range []target[T]{live, fork} {
			t.count()
		}
	}
	for _, c := range p.secs {
		switch c.form {
		case formRange:
			count(s.findOrMake(c.row, c.from))
		case formRows:
			for _, r := range c.rows {
				count(s.findOrMake(r, 0))
			}
		case formCells:
			start := int64(0)
			for i, r := range c.rows {
				count(s.findOrMake(r, c.cols[start]))
				start = c.ends[i]
			}
		}
	}
}

// stepRows steps rows that one section has whole, which are ascending: none has anything to be summed with.
func (s *shard[T]) stepRows(c *section, p *roundPart) {
	d, n := raw.Of[T](c.cells), int(s.t.spec.Cols)
	for i, r := range c.rows {
		if i%warmRows == 0 && s.live != nil {
			for _, r := range c.rows[i:min(i+warmRows, len(c.rows))] {
				s.warm(int32(r - s.first))
			}
		}
		live, fork := s.touch(s.findOrMake(r, 0), p.cut)
		s.stepRow(&live, d[i*n:i*n+n], p)
		if fork.cells != nil {
			s.stepRow(&fork, d[i*n:i*n+n], p)
		}
	}
}

// warmRows are read ahead of their steps: their memory is waited for together, which for rows far apart is most of the time.
const warmRows = 32

// warm reads a cell of segment i of a Range shard, and what is kept beside it.
func (s *shard[T]) warm(i int32) {
	if s.live == nil || len(s.live.steps) == 0 {
		return
	}
	a := max((s.first+int64(i))*s.t.spec.Cols, s.lo) - s.lo
	s.warmed += s.live.cells[a]
	for _, v := range s.live.slots {
		s.warmedSlots += v[a]
	}
	s.warmedSteps += s.live.steps[i]
	if s.told {
		s.warmedSteps += uint32(s.segs[i].version)
	}
}

func (s *shard[T]) stepRow(t *target[T], d []T, p *roundPart) {
	t.count()
	for a := 0; a < len(d); a += stepCells {
		n := min(stepCells, len(d)-a)
		sum := s.buffer(0, n)
		copy(sum, d[a:a+n])
		s.update(t.cells[a:a+n], sum, t, a, n, p)
	}
	s.keep(*t)
}

// stepRuns steps runs of cells of one segment.
func (s *shard[T]) stepRuns(t target[T], es []entry[T], p *roundPart) {
	same := true
	for _, e := range es[1:] {
		same = same && e.from == es[0].from && len(e.cells) == len(es[0].cells)
	}
	if same {
		s.stepRun(t, es, int(es[0].from), int(es[0].from)+len(es[0].cells), p)
		return
	}
	var edges []int
	for _, e := range es {
		edges = append(edges, int(e.from), int(e.from)+len(e.cells))
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	over := make([]entry[T], 0, len(es))
	for k := 1; k < len(edges); k++ {
		a, b := edges[k-1], edges[k]
		over = over[:0]
		for _, e := range es {
			if int(e.from) <= a && b <= int(e.from)+len(e.cells) {
				over = append(over, e)
			}
		}
		if len(over) > 0 {
			s.stepRun(t, over, a, b, p)
		}
	}
}

// stepRun steps cells a to b of a segment, which all of es have.
func (s *shard[T]) stepRun(t target[T], es []entry[T], a, b int, p *roundPart) {
	for ; a < b; a += stepCells {
		n := min(stepCells, b-a)
		sum := s.sum(es, a, n)
		s.update(t.cells[a:a+n], sum, &t, a, n, p)
	}
}

// update adds sum, divided if need be, to cells, or what the optimizer makes of it. sum is the shard's to change.
func (s *shard[T]) update(cells, sum []T, t *target[T], at, n int, p *roundPart) {
	if p.divide {
		divide(s.t.isa, sum, p.sum)
	}
	if s.t.opt == nil {
		addInto(s.t.isa, cells, sum)
		return
	}
	x, g := any(cells).([]float32), any(sum).([]float32)
	slots := s.views[:0]
	for _, v := range t.slots {
		slots = append(slots, v[t.at+at:t.at+at+n])
	}
	s.t.opt.Apply(int64(*t.steps), s.t.layout, int(t.from)+at, x, g, g, slots)
	addInto(s.t.isa, x, g)
}

func divide[T Number](isa kernel.ISA, v []T, by float64) {
	switch v := any(v).(type) {
	case []float32:
		kernel.ScaleInto(isa, v, v, float32(by))
	case []float64:
		kernel.ScaleInto(isa, v, v, by)
	} // counts are not divided
}

// buffer returns the k-th scratch of n cells.
func (s *shard[T]) buffer(k, n int) []T {
	for len(s.sums) <= k {
		s.sums = append(s.sums, make([]T, stepCells))
	}
	return s.sums[k][:n]
}

// sum returns the sum of cells a to a+n of es, in scratch: one after the other, or along the tree of their parts.
func (s *shard[T]) sum(es []entry[T], a, n int) []T {
	cut := func(e *entry[T]) []T { i := a - int(e.from); return e.cells[i : i+n] }
	dst := s.buffer(0, n)
	if !inParts(es) {
		copy(dst, cut(&es[0]))
		for i := range es[1:] {
			addInto(s.t.isa, dst, cut(&es[i+1]))
		}
		return dst
	}
	next := 1
	v, _ := foldParts(len(es), func(i int) (uint32, []T) { return es[i].part, cut(&es[i]) }, func(x, y []T) []T {
		z := s.buffer(next, n)
		next++
		copy(z, x)
		addInto(s.t.isa, z, y)
		return z
	})
	copy(dst, v)
	oneNaN(s.t.isa, dst) // no delta is one, but infinite sums of both signs have one
	return dst
}

// inParts reports whether any of es is of a part of exact mode's tree.
func inParts[T Number](es []entry[T]) bool {
	return slices.ContainsFunc(es, func(e entry[T]) bool { return e.part != 0 })
}

// foldParts adds parts along the tree of virtual shards, in which node k has the children 2k and 2k+1: the neighbours first. Where a
// node has one child, it is that. Equal parts are added in their order.
func foldParts[V any](n int, at func(i int) (uint32, V), add func(x, y V) V) (V, bool) {
	type node struct {
		part uint32
		v    V
	}
	var zero V
	if n == 0 {
		return zero, false
	}
	nodes := make([]node, 0, n)
	for i := range n {
		part, v := at(i)
		nodes = append(nodes, node{max(part, 1), v})
	}
	slices.SortStableFunc(nodes, func(a, b node) int { return cmp.Compare(a.part, b.part) })
	kept := nodes[:1]
	for _, x := range nodes[1:] {
		if k := len(kept) - 1; kept[k].part == x.part {
			kept[k].v = add(kept[k].v, x.v)
		} else {
			kept = append(kept, x)
		}
	}
	nodes = kept
	for len(nodes) > 1 || nodes[0].part > 1 {
		last := nodes[len(nodes)-1]
		nodes = nodes[:len(nodes)-1]
		if k := len(nodes) - 1; last.part%2 == 1 && k >= 0 && nodes[k].part == last.part-1 {
			last.v = add(nodes[k].v, last.v)
			nodes = nodes[:k]
		}
		last.part /= 2
		// The parent's place: below all of its level that are left.
		k, found := slices.BinarySearchFunc(nodes, last.part, func(a node, part uint32) int { return cmp.Compare(a.part, part) })
		if found { // a node beside its own child: the whole is given, and more of it
			nodes[k].v = add(nodes[k].v, last.v)
			continue
		}
		nodes = slices.Insert(nodes, k, last)
	}
	return nodes[0].v, true
}

// stepColumns steps cells of a segment that sections name by column, or by column and by runs.
func (s *shard[T]) stepColumns(t target[T], es []entry[T], p *roundPart) {
	type term struct {
		col  int64
		part uint32
		x    T
	}
	var terms []term
	parts := inParts(es)
	for _, e := range es {
		for k, x := range e.cells {
			col := t.from + int64(e.from) + int64(k)
			if e.cols != nil {
				col = e.cols[k]
			}
			terms = append(terms, term{col, e.part, x})
		}
	}
	slices.SortStableFunc(terms, func(a, b term) int { return cmp.Compare(a.col, b.col) })
	cols, sum := make([]int64, 0, len(terms)), make([]T, 0, len(terms))
	for len(terms) > 0 {
		n, x := 1, terms[0].x
		for ; n < len(terms) && terms[n].col == terms[0].col; n++ {
			x += terms[n].x
		}
		if n > 1 && parts { // in exact mode, along the tree
			x, _ = foldParts(n, func(i int) (uint32, T) { return terms[i].part, terms[i].x }, func(a, b T) T { return a + b })
		}
		cols, sum = append(cols, terms[0].col), append(sum, x)
		terms = terms[n:]
	}
	if parts {
		oneNaN(s.t.isa, sum)
	}
	index := make([]int, len(cols))
	cells := t.cells
	if s.t.spec.Sparse {
		s.ensure(t.r, cols)
		cells, t.slots = t.r.cells, t.r.slots
		at := 0
		for k, c := range cols {
			at += search(t.r.cols[at:], c)
			index[k] = at
		}
	} else {
		for k, c := range cols {
			index[k] = int(c - t.from)
		}
	}
	if p.divide {
		divide(s.t.isa, sum, p.sum)
	}
	if s.t.opt == nil {
		for k, i := range index {
			cells[i] += sum[k]
		}
		return
	}
	// The cells are gathered, so that the optimizer sees a run. A sparse row is one tensor, where any cell stands for any.
	x, g := make([]float32, len(cols)), any(sum).([]float32)
	slots := make([][]float32, len(t.slots))
	all := any(cells).([]float32)
	for k, i := range index {
		x[k] = all[i]
	}
	for j, v := range t.slots {
		slots[j] = make([]float32, len(cols))
		for k, i := range index {
			slots[j][k] = v[t.at+i]
		}
	}
	s.t.opt.Apply(int64(*t.steps), s.t.layout, 0, x, g, g, slots)
	for k, i := range index {
		all[i] = x[k] + g[k]
	}
	for j, v := range t.slots {
		for k, i := range index {
			v[t.at+i] = slots[j][k]
		}
	}
}
