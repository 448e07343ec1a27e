package server

import (
	"context"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// touched finds the rows of row-sparse tensors that a batch needs, and reads them.
type touched struct {
	t     *tables
	lists []columnList
	of    []int // the list of each of t.sparse; -1: the model alone knows its rows
	seen  *kernel.Seen
}

// A columnList is the columns of a sparse input in a batch: the rows of all tensors that have as many, one for each column.
type columnList struct {
	input string
	width int
	rows  []int32 // ascending, each once; nil: the batch has no such input
	room  []int32
}

func newTouched(t *tables) touched {
	x := touched{t: t}
	widest := 0
	for _, s := range t.sparse {
		if s.columns == "" {
			x.of = append(x.of, -1)
			continue
		}
		k := 0
		for k < len(x.lists) && (x.lists[k].input != s.columns || x.lists[k].width != s.rows) {
			k++
		}
		if k == len(x.lists) {
			x.lists, widest = append(x.lists, columnList{input: s.columns, width: s.rows, room: []int32{}}), max(widest, s.rows)
		}
		x.of = append(x.of, k)
	}
	if widest > 0 {
		x.seen = kernel.NewSeen(widest)
	}
	return x
}

// pull reads the rows that b needs: of a tensor of which only the model knows which these are, all.
func (x *touched) pull(ctx context.Context, b *trivium.Batch, flat []float32) error {
	for k := range x.lists {
		x.find(b, &x.lists[k])
	}
	var want []*rowTensor
	for i, s := range x.t.sparse {
		rows := x.rows(i)
		if rows == nil {
			if err := x.t.getRows(ctx, s, flat); err != nil {
				return err
			}
		} else if len(rows) > 0 {
			s.want(rows)
			want = append(want, s)
		}
	}
	return x.t.get(ctx, want, flat)
}

// rows are those of t.sparse[i] that the batch of the last pull needs, until the next; nil: it may be all.
func (x *touched) rows(i int) []int32 {
	if x.of[i] < 0 {
		return nil
	}
	return x.lists[x.of[i]].rows
}

func (x *touched) find(b *trivium.Batch, l *columnList) {
	l.rows = nil
	in := b.Input(l.input)
	if in == nil || in.Form != trivium.CSR || in.RowLen() > l.width || len(in.Ptr) == 0 {
		return
	}
	l.room = kernel.Touched(l.room[:0], in.Index[in.Ptr[0]:in.Ptr[len(in.Ptr)-1]], x.seen)
	l.rows = l.room
}
