package allreduce

import (
	"context"
	"fmt"
	"math/bits"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// rowLists are the touched rows of all workers, with their numbers: every worker gets every other's, and adds them up by itself, in the order of
// the ranks. That takes one round of messages, and says nothing of rows that nobody has touched, of which models of many columns have
// the most.
//
// All send equally much, so that nobody has to be told how much comes: what a section is padded to follows from the sections of the update
// before. Where one does not fit, all see that by its counts, and send again.
type rowLists struct {
	layout  *trivium.Layout
	tensors []int
	ranks   int

	part     int // elements that each worker sends
	need     int // elements of the longest section
	own, all []int32
	before   []int32   // all of a trade in which not everything fitted: until the update is settled it may still be on its way to others
	counts   [][]int32 // touched rows of each tensor, by rank
	lists    []list    // of the tensor at hand, by rank
	spare    []int32
	places   []int32   // where the rows of a list are among those of all
	sums     []float32 // of the cells of these
}

// newRowLists returns those of these tensors. They need part to hold the counts at least.
func newRowLists(l *trivium.Layout, tensors []int, ranks int) *rowLists {
	return &rowLists{layout: l, tensors: tensors, ranks: ranks, part: len(tensors), counts: make([][]int32, ranks), lists: make([]list, ranks)}
}

// A section is, of all its worker has touched: the counts of rows, by tensor, and then for each tensor the rows' numbers, ascending, and their cells. Where
// there are many, a bit for each row there is stands for the numbers.

// numbers is the elements that tell k rows' numbers of so many.
func numbers(k, rows int) int { return min(k, (rows+31)/32) }

// size is the elements of a section with these counts.
func (s *rowLists) size(counts []int32) int {
	n := len(s.tensors)
	for t, i := range s.tensors {
		n += numbers(int(counts[t]), s.layout.Rows(i)) + int(counts[t])*s.layout.Cols(i)
	}
	return n
}

// pack makes s.own the section of g.
func (s *rowLists) pack(g trivium.Gradient) {
	own := s.own[:0]
	for _, i := range s.tensors {
		own = append(own, int32(len(g.Rows[i])))
	}
	for _, i := range s.tensors {
		rows, n, cols, cells := g.Rows[i], s.layout.Rows(i), s.layout.Cols(i), g.Tensor(i)
		if numbers(len(rows), n) == len(rows) {
			own = append(own, rows...)
		} else {
			from := len(own)
			for range (n + 31) / 32 {
				own = append(own, 0)
			}
			for _, r := range rows {
				own[from+int(r)/32] |= 1 << (r % 32)
			}
		}
		from := len(own)
		own = room(own, from+len(rows)*cols)
		kernel.GatherRows(raw.Floats(own[from:]), cells, rows, cols)
	}
	s.own = own
}

// room returns x with n elements; those that it did not have are anything.
func room[T any](x []T, n int) []T {
	if cap(x) < n {
		x = append(make([]T, 0, n+n/4), x...)
	}
	return x[:n]
}

// trade gets the sections of all workers, or, if one does not fit, its first part: the counts are always there.
func (s *rowLists) trade(ctx context.Context, g *collective.Group, tag uint32) (fits bool, err error) {
	s.own, s.all = room(s.own, max(len(s.own), s.part)), room(s.all, s.ranks*s.part)
	op := collective.Op{Kind: collective.AllGather, Label: "rows"}
	if err := g.Start(op, tag, collective.Of(s.all), collective.Of(s.own[:s.part])).Wait(ctx); err != nil {
		return false, err
	}
	if err := s.hear(); err != nil {
		return false, err
	}
	if fits = s.need <= s.part; !fits || 2*s.need < s.part {
		s.part = padded(s.need)
	}
	return fits, nil
}

// hear takes the counts from where all sections are.
func (s *rowLists) hear() error {
	part := len(s.all) / s.ranks
	s.need = 0
	for r := range s.ranks {
		s.counts[r] = s.all[r*part:][:len(s.tensors)]
		for t, k := range s.counts[r] {
			if rows := s.layout.Rows(s.tensors[t]); k < 0 || int(k) > rows {
				return fmt.Errorf("rank %d says that it has touched %d of %d rows of %s", r, k, rows, s.layout.Spec(s.tensors[t]).Name)
			}
		}
		s.need = max(s.need, s.size(s.counts[r]))
	}
	return nil
}

// padded is n and up to a quarter more: batches differ, and what has the same size as before is planned already.
func padded(n int) int {
	unit := max(1<<bits.Len(uint(n))/16, 1)
	return (n/unit + 2) * unit
}

// cheap says whether lists send less than a bit for each row and the sum of those that any worker has touched, which are all different at worst. Of
// two workers it is so. Among more, sums are in the order of a plan then: it follows from this update alone, so that a run that is resumed has them
// in the same.
func (s *rowLists) cheap() bool {
	if s.ranks == 2 {
		return true
	}
	lists, sums := (s.ranks-1)*s.need, 0
	for t, i := range s.tensors {
		k, rows := 0, s.layout.Rows(i)
		for _, c := range s.counts {
			k += int(c[t])
		}
		sums += 2 * (rows/32 + min(k, rows)*s.layout.Cols(i)) * (s.ranks - 1) / s.ranks
	}
	return lists <= sums
}

// A list is what a worker has touched of a tensor.
type list struct {
	rows   []int32
	values []float32
	told   []int32 // scratch: the rows of a list that tells them by bits
	rest   []int32 // of the section: the tensors that follow
}

// read takes a list of k rows out of the section, of n rows with cols cells each, and reports whether it is one: of as many rows as was said,
// ascending, and there.
func (l *list) read(k, n, cols int) bool {
	m := numbers(k, n)
	l.rows = l.rest[:m]
	l.values = raw.Floats(l.rest[m : m+k*cols])
	l.rest = l.rest[m+k*cols:]
	if m < k {
		told := l.told[:0]
		for i, w := range l.rows {
			for w := uint32(w); w != 0; w &= w - 1 {
				told = append(told, int32(32*i+bits.TrailingZeros32(w)))
			}
		}
		l.rows, l.told = told, told
	}
	before := int32(-1)
	for _, r := range l.rows {
		if r <= before {
			return false
		}
		before = r
	}
	return len(l.rows) == k && int(before) < n
}

// sum makes the rows of all sections those of g, and their sums its cells.
func (s *rowLists) sum(g trivium.Gradient) error {
	part := len(s.all) / s.ranks
	for r := range s.lists {
		s.lists[r].rest = s.all[r*part+len(s.tensors) : (r+1)*part]
	}
	for t, i := range s.tensors {
		n, cols, cells := s.layout.Rows(i), s.layout.Cols(i), g.Tensor(i)
		for r := range s.lists {
			if !s.lists[r].read(int(s.counts[r][t]), n, cols) {
				return fmt.Errorf("rank %d has sent a list of rows of %s that is none", r, s.layout.Spec(i).Name)
			}
		}
		rows := append(g.Rows[i][:0], s.lists[0].rows...)
		for _, l := range s.lists[1:] {
			s.spare = kernel.Unite(s.spare, rows, l.rows)
			rows, s.spare = s.spare, rows
		}
		g.Rows[i] = rows
		// Added up row by row in the order of rows, they are in the nearest cache, and not all over the tensor.
		isa := kernel.Best()
		s.sums = room(s.sums, len(rows)*cols)
		kernel.Fill(isa, s.sums, absent) // to which all can be added then, without a look who was the first
		for _, l := range s.lists {
			s.places = kernel.Places(s.places, rows, l.rows)
			kernel.ScatterAddRows(isa, s.sums, s.places, l.values, cols)
		}
		kernel.ScatterRows(cells, s.sums, rows, cols)
	}
	return nil
}
