package data

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"math"

	"github.com/trivium-ml/trivium"
)

// checksum is the CRC-32C of the rows of data sets that have no file: shapes, numbers, labels and weights, little-endian. Of rows that are
// generated when they are read it takes the number and the first block, which tell generators apart: all might take hours.
func checksum(ctx context.Context, sets ...Dataset) (string, error) {
	s := summer{h: crc32.New(crcTable)}
	for _, ds := range sets {
		if ds == nil {
			continue
		}
		s.int64s(ds.Rows())
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
			s.batch(&b)
		}
	}
	return fmt.Sprintf("crc32c:%08x", s.h.Sum32()), nil
}

type summer struct {
	h   hash.Hash32
	buf []byte
}

func (s *summer) batch(b *trivium.Batch) {
	for i := range b.Inputs {
		in := &b.Inputs[i]
		values, index, n := in.Values, in.Index, 1
		if in.Form == trivium.Ragged {
			n = in.RowLen()
		}
		if in.Ptr != nil {
			from, to := in.Ptr[0], in.Ptr[b.Rows]
			for _, p := range in.Ptr {
				s.int64s(p - from)
			}
			if index != nil {
				index = index[from:to]
			}
			if values != nil {
				values = values[from*int64(n) : to*int64(n)]
			}
		}
		s.float32s(values)
		s.int32s(index)
	}
	s.int32s(b.Labels.Class)
	s.float32s(b.Labels.Real)
	if ptr := b.Labels.Ptr; ptr != nil {
		for _, p := range ptr {
			s.int64s(p - ptr[0])
		}
		s.int32s(b.Labels.Index[ptr[0]:ptr[b.Rows]])
	}
	s.float32s(b.Weights)
}

func (s *summer) int64s(v ...int64) {
	for _, x := range v {
		s.buf = binary.LittleEndian.AppendUint64(s.buf[:0], uint64(x))
		s.h.Write(s.buf)
	}
}

// piece is how many numbers are put into bytes at a time.
const piece = 4096

func (s *summer) float32s(v []float32) {
	s.buf = extend(s.buf[:0], 4*piece)
	for len(v) > 0 {
		n := min(piece, len(v))
		for i, x := range v[:n] {
			binary.LittleEndian.PutUint32(s.buf[4*i:], math.Float32bits(x))
		}
		s.h.Write(s.buf[:4*n])
		v = v[n:]
	}
}

func (s *summer) int32s(v []int32) {
	s.buf = extend(s.buf[:0], 4*piece)
	for len(v) > 0 {
		n := min(piece, len(v))
		for i, x := range v[:n] {
			binary.LittleEndian.PutUint32(s.buf[4*i:], uint32(x))
		}
		s.h.Write(s.buf[:4*n])
		v = v[n:]
	}
}
