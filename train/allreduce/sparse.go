package allreduce

import (
	"context"
	"math"
	"math/bits"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// sparseRows are the row-sparse tensors of a gradient. They travel as lists of rows, or, where that is less, the workers first learn which rows any
// of them has touched, by one bit a row, and then add those rows up, one after the other.
type sparseRows struct {
	lists   *rowLists // nil: a bit a row is so little that it is not worth asking which is less; or in exact mode, where all cells of a vector travel
	layout  *trivium.Layout
	tensors []int
	from    []int // byte of touched at which each tensor begins
	touched []uint8
	any     []uint8 // by all workers
	src     []float32
	dst     []float32
}

func newSparseRows(l *trivium.Layout, ranks int, lists bool) *sparseRows {
	s := &sparseRows{layout: l}
	n := 0
	for i := range l.Tensors() {
		if spec := l.Spec(i); spec.RowSparse && spec.Tie == "" {
			s.tensors, s.from = append(s.tensors, i), append(s.from, n)
			n += (l.Rows(i) + 7) / 8
		}
	}
	if lists && (ranks == 2 || n > fewBits) {
		s.lists = newRowLists(l, s.tensors, ranks)
	}
	s.touched, s.any = make([]uint8, n), make([]uint8, n)
	return s
}

// fewBits is how many bytes of bits take no longer than the message that asks.
const fewBits = 4 << 10

// absent is what a worker adds to a row that it has not touched: -0, since x + -0 is x for each x, and 0 + -0 is 0.
var absent = float32(math.Copysign(0, -1))

// fill makes the rows of g absent that it has not touched: then g can be added whole.
func (s *sparseRows) fill(g trivium.Gradient) {
	for _, i := range s.tensors {
		cells, cols, next := g.Tensor(i), s.layout.Cols(i), 0
		wipe := func(from, to int) {
			for k := from * cols; k < to*cols; k++ {
				cells[k] = absent
			}
		}
		for _, r := range g.Rows[i] {
			wipe(next, int(r))
			next = int(r) + 1
		}
		wipe(next, s.layout.Rows(i))
	}
}

// mark notes the rows that g touches.
func (s *sparseRows) mark(g trivium.Gradient) {
	for k, i := range s.tensors {
		for _, r := range g.Rows[i] {
			s.touched[s.from[k]+int(r)/8] |= 1 << (r % 8)
		}
	}
}

// union makes the rows that any worker has touched those of x.total. It returns how many cells they have.
func (s *sparseRows) union(ctx context.Context, x *exchange) (cells int, err error) {
	clear(s.touched)
	if x.exact != nil {
		for _, g := range x.exact.sums {
			s.mark(g)
		}
	} else {
		s.mark(x.own)
	}
	op := collective.Op{Reduce: collective.Or, Label: "touched rows"}
	if err := x.g.Start(op, x.base+x.tag+1, collective.Of(s.any), collective.Of(s.touched)).Wait(ctx); err != nil {
		return 0, err
	}
	for k, i := range s.tensors {
		rows := x.total.Rows[i][:0]
		for at, b := range s.any[s.from[k] : s.from[k]+(s.layout.Rows(i)+7)/8] {
			for ; b != 0; b &= b - 1 {
				rows = append(rows, int32(8*at+bits.TrailingZeros8(b)))
			}
		}
		x.total.Rows[i] = rows
		cells += len(rows) * s.layout.Cols(i)
	}
	return cells, nil
}

// travel adds the row-sparse tensors over all workers.
func (s *sparseRows) travel(ctx context.Context, x *exchange) error {
	if s.lists != nil {
		if done, err := s.travelAsLists(ctx, x); done || err != nil {
			return err
		}
	}
	return s.travelAsSums(ctx, x)
}

// travelAsLists adds them as lists, or reports false where that is not cheap.
func (s *sparseRows) travelAsLists(ctx context.Context, x *exchange) (done bool, err error) {
	lists := s.lists
	lists.pack(x.own)
	fits, err := lists.trade(ctx, x.g, x.base+x.tag+3)
	if err != nil {
		return false, err
	}
	if !lists.cheap() {
		lists.part = len(s.tensors) // it will be so next time
		return false, nil
	}
	if !fits {
		lists.all, lists.before = lists.before, lists.all
		if _, err := lists.trade(ctx, x.g, x.base+x.tag+4); err != nil {
			return false, err
		}
	}
	return true, lists.sum(x.total)
}

func (s *sparseRows) travelAsSums(ctx context.Context, x *exchange) error {
	n, err := s.union(ctx, x)
	if err != nil || n == 0 || x.exact != nil { // there, they are part of the whole vector
		return err
	}
	if len(s.src) < n {
		s.src, s.dst = make([]float32, n+n/4), make([]float32, n+n/4)
	}
	at := 0
	for _, i := range s.tensors {
		cells, cols, own := x.own.Tensor(i), s.layout.Cols(i), x.own.Rows[i]
		for _, r := range x.total.Rows[i] {
			if row := s.src[at : at+cols]; len(own) > 0 && own[0] == r {
				copy(row, cells[int(r)*cols:])
				own = own[1:]
			} else {
				for k := range row {
					row[k] = absent
				}
			}
			at += cols
		}
	}
	op := collective.Op{Label: "rows"}
	if err := x.g.Start(op, x.base+x.tag+2, collective.Of(s.dst[:n]), collective.Of(s.src[:n])).Wait(ctx); err != nil {
		return err
	}
	at = 0
	for _, i := range s.tensors {
		rows, cols := x.total.Rows[i], s.layout.Cols(i)
		kernel.ScatterRows(x.total.Tensor(i), s.dst[at:], rows, cols)
		at += len(rows) * cols
	}
	return nil
}
