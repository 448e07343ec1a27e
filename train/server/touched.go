package server

import (
	"context"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// touched finds the rows of row-sparse tensors that a batch needs, and reads them.
type touched struct {
	t    *tables
	all  []int32 // of the entries
	rows []int32 // of these, each once
	seen *kernel.Seen
}

func newTouched(t *tables) touched { return touched{t: t} }

// pull reads the rows that b needs: where a tensor has a row for each column of a sparse input, those columns; else all.
func (x *touched) pull(ctx context.Context, b *trivium.Batch, flat []float32) error {
	var want []*rowTensor
	for _, s := range x.t.sparse {
		rows := x.of(b, s.rows)
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

// of returns the columns of the batch's sparse inputs that are so many wide, ascending, or nil if there is no such input or more than
// one kind of input could be meant.
func (x *touched) of(b *trivium.Batch, width int) []int32 {
	found := false
	x.all = x.all[:0]
	for i := range b.Inputs {
		in := &b.Inputs[i]
		if in.Form != trivium.CSR || in.RowLen() != width || len(in.Ptr) == 0 {
			return nil
		}
		found = true
		x.all = append(x.all, in.Index[in.Ptr[0]:in.Ptr[len(in.Ptr)-1]]...)
	}
	if !found {
		return nil
	}
	if x.seen == nil || x.seen.Columns() < width {
		x.seen = kernel.NewSeen(width)
	}
	if x.rows = x.rows[:0]; x.rows == nil {
		x.rows = []int32{}
	}
	x.rows = kernel.Touched(x.rows, x.all, x.seen)
	return x.rows
}
