package data

import (
	"context"
	"fmt"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/wire"
)

// checksum is the CRC-32C of the rows of data sets that have no file: shapes, numbers, labels and weights, little-endian. Of rows that are
// generated when they are read it takes the number and the first block, which tell generators apart: all might take hours.
func checksum(ctx context.Context, sets ...Dataset) (string, error) {
	var s sum
	for _, ds := range sets {
		if ds == nil {
			continue
		}
		s = add(s, []int64{ds.Rows()})
		rows, read := ds.Rows(), ds.Read
		if isGenerated(ds) {
			rows = min(rows, blockRows)
		}
		if m, ok := ds.(*memory); ok {
			read = m.look
		}
		var b trivium.Batch
		for from := int64(0); from < rows; from += blockRows {
			if err := ctx.Err(); err != nil {
				return "", err
			}
			if err := read(ctx, &b, from, min(from+blockRows, rows)); err != nil {
				return "", err
			}
			s = s.batch(&b)
		}
	}
	return fmt.Sprintf("crc32c:%08x", uint32(s)), nil
}

// A sum is the CRC-32C of what was added so far.
type sum uint32

func (s sum) batch(b *trivium.Batch) sum {
	for i := range b.Inputs {
		in := &b.Inputs[i]
		values, index, n := in.Values, in.Index, 1
		if in.Form == trivium.Ragged {
			n = in.RowLen()
		}
		if in.Ptr != nil {
			from, to := in.Ptr[0], in.Ptr[b.Rows]
			s = add(s, fromZero(in.Ptr))
			if index != nil {
				index = index[from:to]
			}
			if values != nil {
				values = values[from*int64(n) : to*int64(n)]
			}
		}
		s = add(s, values)
		s = add(s, index)
	}
	s = add(s, b.Labels.Class)
	s = add(s, b.Labels.Real)
	if ptr := b.Labels.Ptr; ptr != nil {
		s = add(s, fromZero(ptr))
		s = add(s, b.Labels.Index[ptr[0]:ptr[b.Rows]])
	}
	return add(s, b.Weights)
}

// fromZero are ends of rows, counted from the first row's begin.
func fromZero(ptr []int64) []int64 {
	ends := make([]int64, len(ptr))
	for i, p := range ptr {
		ends[i] = p - ptr[0]
	}
	return ends
}

func add[T raw.Number](s sum, v []T) sum { return sum(wire.UpdateSum(uint32(s), raw.Bytes(v))) }
