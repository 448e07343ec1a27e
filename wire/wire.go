// Package wire turns values into bytes and back, without reflection and without trusting what comes in.
//
// Writing appends to a slice; reading goes through a [Reader], which keeps the first error and answers zero from then on, so that a
// decoder reads field after field and asks once at the end:
//
//	p = wire.AppendUvarint(p, uint64(len(rows)))
//	p = wire.AppendFloat32s(p, scores)
//
//	r := wire.NewReader("scores", p)
//	rows := r.Uvarint("rows", limit)
//	scores := r.Float32s("scores", limit)
//	err := r.Done()
//
// All numbers are little-endian. Lengths are checked against what is left before anything is allocated: hostile bytes cost no more
// memory than they take up themselves.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"unsafe"

	"github.com/trivium-ml/trivium/internal/raw"
)

// AppendUvarint appends v in base 128, least significant group first: 1 to 10 bytes.
func AppendUvarint(p []byte, v uint64) []byte { return binary.AppendUvarint(p, v) }

// AppendUint32 appends v in 4 bytes.
func AppendUint32(p []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(p, v) }

// AppendUint64 appends v in 8 bytes.
func AppendUint64(p []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(p, v) }

// AppendFloat64 appends the bits of v in 8 bytes.
func AppendFloat64(p []byte, v float64) []byte { return AppendUint64(p, math.Float64bits(v)) }

// AppendBools appends up to 7 truths in a byte, the first in its lowest bit.
func AppendBools(p []byte, v ...bool) []byte {
	b := byte(0)
	for i, x := range v {
		if x {
			b |= 1 << i
		}
	}
	return append(p, b)
}

// AppendBytes appends the length of v and v.
func AppendBytes(p, v []byte) []byte { return append(AppendUvarint(p, uint64(len(v))), v...) }

// AppendString appends the length of v and v.
func AppendString(p []byte, v string) []byte { return append(AppendUvarint(p, uint64(len(v))), v...) }

// AppendFloat32s appends the length of v and its values.
func AppendFloat32s(p []byte, v []float32) []byte {
	return append(AppendUvarint(p, uint64(len(v))), raw.Bytes(v)...)
}

// AppendInt32s appends the length of v and its values.
func AppendInt32s(p []byte, v []int32) []byte {
	return append(AppendUvarint(p, uint64(len(v))), raw.Bytes(v)...)
}

// AppendFloat64s appends the length of v and its values.
func AppendFloat64s(p []byte, v []float64) []byte {
	return append(AppendUvarint(p, uint64(len(v))), raw.Bytes(v)...)
}

// AppendUint64s appends the length of v and its values.
func AppendUint64s(p []byte, v []uint64) []byte {
	return append(AppendUvarint(p, uint64(len(v))), raw.Bytes(v)...)
}

// A Reader reads what the Append functions wrote. Its first error stays: later reads return zero and change nothing.
type Reader struct {
	what string // named in errors
	p    []byte
	at   int
	err  error
}

// NewReader returns a Reader of p; errors begin with what is read.
func NewReader(what string, p []byte) *Reader { return &Reader{what: what, p: p} }

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// Rest returns the bytes that are not read yet, a view.
func (r *Reader) Rest() []byte { return r.p[r.at:] }

// Done returns the first error, or one that says how many bytes follow the last field.
func (r *Reader) Done() error {
	if r.err == nil && r.at < len(r.p) {
		r.fail("end", fmt.Errorf("%d bytes follow", len(r.p)-r.at))
	}
	return r.err
}

// Fail makes err, about the field just read, the Reader's error, unless it has one: for checks that only the caller can make.
func (r *Reader) Fail(field string, err error) { r.fail(field, err) }

func (r *Reader) fail(field string, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("wire: %s: byte %d: %s: %w", r.what, r.at, field, err)
	}
}

// Uvarint reads a number of at most limit.
func (r *Reader) Uvarint(field string, limit uint64) uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.p[r.at:])
	switch {
	case n == 0:
		r.fail(field, io.ErrUnexpectedEOF)
	case n < 0:
		r.fail(field, errors.New("the number does not fit 64 bits"))
	case v > limit:
		r.fail(field, fmt.Errorf("want at most %d, found %d", limit, v))
	default:
		r.at += n
		return v
	}
	return 0
}

// Uint32 reads 4 bytes.
func (r *Reader) Uint32(field string) uint32 {
	if p := r.take(field, 4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

// Uint64 reads 8 bytes.
func (r *Reader) Uint64(field string) uint64 {
	if p := r.take(field, 8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

// Float64 reads 8 bytes.
func (r *Reader) Float64(field string) float64 { return math.Float64frombits(r.Uint64(field)) }

// Bools reads as many truths as there are places for them, which it sets; all other bits must be 0.
func (r *Reader) Bools(field string, v ...*bool) {
	b := r.Uvarint(field, 1<<len(v)-1)
	for i := range v {
		*v[i] = b>>i&1 == 1
	}
}

// Bytes reads a length of at most limit and so many bytes, a view.
func (r *Reader) Bytes(field string, limit int) []byte { return r.counted(field, limit, 1) }

// String reads a length of at most limit and so many bytes.
func (r *Reader) String(field string, limit int) string { return string(r.counted(field, limit, 1)) }

// Float32s reads a length of at most limit and so many values.
func (r *Reader) Float32s(field string, limit int) []float32 {
	return numbers[float32](r, field, limit)
}

// Int32s reads a length of at most limit and so many values.
func (r *Reader) Int32s(field string, limit int) []int32 { return numbers[int32](r, field, limit) }

// Float64s reads a length of at most limit and so many values.
func (r *Reader) Float64s(field string, limit int) []float64 {
	return numbers[float64](r, field, limit)
}

// Uint64s reads a length of at most limit and so many values.
func (r *Reader) Uint64s(field string, limit int) []uint64 { return numbers[uint64](r, field, limit) }

func numbers[T raw.Number](r *Reader, field string, limit int) []T {
	var x T
	size := int(unsafe.Sizeof(x))
	p := r.counted(field, limit, size)
	v := make([]T, len(p)/size)
	raw.Copy(v, p)
	return v
}

// counted reads a length of at most limit and so many elements of size bytes, a view. The length is first compared with what is left.
func (r *Reader) counted(field string, limit, size int) []byte {
	n := r.Uvarint(field, uint64(limit))
	if r.err != nil {
		return nil
	}
	if left := len(r.p) - r.at; n > uint64(left/size) {
		r.fail(field, fmt.Errorf("%d elements of %d bytes are announced, %d bytes are left: %w", n, size, left, io.ErrUnexpectedEOF))
		return nil
	}
	return r.take(field, int(n)*size)
}

func (r *Reader) take(field string, n int) []byte {
	if r.err != nil {
		return nil
	}
	if len(r.p)-r.at < n {
		r.fail(field, fmt.Errorf("want %d bytes, %d are left: %w", n, len(r.p)-r.at, io.ErrUnexpectedEOF))
		return nil
	}
	p := r.p[r.at : r.at+n : r.at+n]
	r.at += n
	return p
}
