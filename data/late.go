package data

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor"
)

// Late rows have their places in memory, and are made when a walk or a Read first wants them: who walks a part of a set then holds that
// part, since pages that nobody wrote to take no memory.
type late struct {
	g      *generated
	all    trivium.Batch
	pixels *pixels
	from   int64 // the id of the first row

	mu       sync.Mutex
	made     rowSet
	left     atomic.Int64
	expected rowSet // nil: none
}

// A rowSet has a bit for each row.
type rowSet []uint64

func newRowSet(rows int) rowSet { return make(rowSet, (rows+63)/64) }

func (s rowSet) has(row int64) bool { return s[row/64]&(1<<(row%64)) != 0 }

func (s rowSet) add(r rowRange) {
	for row := r.from; row < r.to; row++ {
		s[row/64] |= 1 << (row % 64)
	}
}

// lateRows is how many rows are made at a time by one thread.
const lateRows = 64

func newLate(g *generated, m *memory) *late {
	l := &late{g: g, all: m.all, pixels: m.pixels, from: m.firstID, made: newRowSet(m.all.Rows)}
	l.left.Store(int64(l.all.Rows))
	return l
}

// want makes those of the rows that are not made yet. A reader of the rows comes after it.
func (l *late) want(ctx context.Context, wanted iter.Seq[rowRange]) error {
	if l.left.Load() == 0 {
		return nil
	}
	l.mu.Lock() // who else wants rows may want these
	defer l.mu.Unlock()
	l.huge(wanted)
	pieces := l.missing(wanted)
	err := parallel(ctx, int64(len(pieces)), 1, func(i, _ int64) error {
		p := pieces[i]
		rows, x := l.all.Slice(int(p.from), int(p.to)), l.pixels
		if x != nil {
			x = x.slice(int(p.from), int(p.to))
		}
		return l.g.makeRows(ctx, &rows, x, l.from+p.from)
	})
	if err != nil { // those that were made are made again
		return err
	}
	for _, p := range pieces {
		l.mark(p)
	}
	return nil
}

// huge asks for huge pages beneath the runs of rows that are wanted. One beneath the rows between two runs would take memory for those too:
// of a walk in many short parts, for all rows.
func (l *late) huge(wanted iter.Seq[rowRange]) {
	ask := func(run rowRange) {
		from, to := run.from*int64(l.g.values), run.to*int64(l.g.values)
		if l.pixels != nil {
			tensor.Huge(l.pixels.of[from:to])
		} else {
			tensor.Huge(l.all.Inputs[0].Values[from:to])
		}
	}
	var run rowRange
	for w := range wanted {
		if w.from == run.to {
			run.to = w.to
			continue
		}
		ask(run)
		run = w
	}
	ask(run)
}

// mark notes that rows are made, which were not.
func (l *late) mark(r rowRange) {
	l.made.add(r)
	l.left.Add(r.from - r.to)
}

// missing are the rows of wanted, which has none twice, that are not made, in pieces for a thread each.
func (l *late) missing(wanted iter.Seq[rowRange]) (pieces []rowRange) {
	for w := range wanted {
		open := false
		for r := w.from; r < w.to; r++ {
			if l.made.has(r) {
				open = false
				continue
			}
			if !open || r-pieces[len(pieces)-1].from == lateRows {
				pieces, open = append(pieces, rowRange{r, r}), true
			}
			pieces[len(pieces)-1].to = r + 1
		}
	}
	return pieces
}

// look makes dst the rows [from, to), and keeps those that are expected, and all labels: it is for the look at all rows before anybody else
// reads them.
func (l *late) look(ctx context.Context, dst *trivium.Batch, from, to int64) error {
	if err := l.g.read(ctx, dst, l.from+from, l.from+to); err != nil {
		return err
	}
	copy(l.all.Labels.Class[from:to], dst.Labels.Class)
	if l.expected == nil {
		return nil
	}
	n := int64(l.g.values)
	for r := from; r < to; r++ {
		if !l.expected.has(r) || l.made.has(r) {
			continue
		}
		x := dst.Inputs[0].Values[(r-from)*n : (r-from+1)*n]
		if l.pixels != nil {
			l.pixels.keep(int(r), x)
		} else {
			copy(l.all.Inputs[0].Values[r*n:], x)
		}
		l.mark(rowRange{r, r + 1})
	}
	return nil
}

// expect has the look at all rows keep those of m that a walk of o finds, where they come late. It is a hint: what it lacks is made when it is
// wanted.
func (m *memory) expect(o BatchOptions) {
	if m.late == nil || o.validate(m.Rows()) != nil {
		return
	}
	l, at := m.late, m.firstID-m.late.from
	l.expected = newRowSet(l.all.Rows)
	walk := walkOf(o, m.Rows())
	wanted := shifted(walk.walked(), at)
	l.huge(wanted)
	for r := range wanted {
		l.expected.add(r)
	}
}

// want makes the rows of m that are wanted, where they come late.
func (m *memory) want(ctx context.Context, wanted iter.Seq[rowRange]) error {
	if m.late == nil {
		return nil
	}
	return m.late.want(ctx, shifted(wanted, m.firstID-m.late.from))
}

// shifted are the ranges, by so many rows on.
func shifted(ranges iter.Seq[rowRange], by int64) iter.Seq[rowRange] {
	return func(yield func(rowRange) bool) {
		for r := range ranges {
			if !yield(rowRange{by + r.from, by + r.to}) {
				return
			}
		}
	}
}

// look is Read for a single look at all rows: those that come late are not kept.
func (m *memory) look(ctx context.Context, dst *trivium.Batch, from, to int64) error {
	if m.late == nil {
		return m.Read(ctx, dst, from, to)
	}
	at := m.firstID - m.late.from
	return m.late.look(ctx, dst, at+from, at+to)
}

// Prepare makes the rows that a walk of o will find, where ds makes them late: a walk does so when it begins, and who times it wants
// them before.
func Prepare(ctx context.Context, ds Dataset, o BatchOptions) error {
	if m, ok := ds.(*memory); !ok || m.late == nil {
		return nil
	}
	return new(cursor).begin(ctx, ds, o) // of rows in memory it holds nothing
}
