package data

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// An element is the type of the numbers in an array file.
type element struct {
	name string
	size int
	get  func(p []byte) float64 // reads one; p has at least size bytes
}

// elements makes the table of types for a byte order.
func elements(order binary.ByteOrder) map[string]element {
	return map[string]element{
		"u1": {"u1", 1, func(p []byte) float64 { return float64(p[0]) }},
		"i1": {"i1", 1, func(p []byte) float64 { return float64(int8(p[0])) }},
		"b1": {"b1", 1, func(p []byte) float64 { return float64(p[0]) }},
		"u2": {"u2", 2, func(p []byte) float64 { return float64(order.Uint16(p)) }},
		"i2": {"i2", 2, func(p []byte) float64 { return float64(int16(order.Uint16(p))) }},
		"u4": {"u4", 4, func(p []byte) float64 { return float64(order.Uint32(p)) }},
		"i4": {"i4", 4, func(p []byte) float64 { return float64(int32(order.Uint32(p))) }},
		"u8": {"u8", 8, func(p []byte) float64 { return float64(order.Uint64(p)) }},
		"i8": {"i8", 8, func(p []byte) float64 { return float64(int64(order.Uint64(p))) }},
		"f2": {"f2", 2, func(p []byte) float64 { return float64(tensor.Float16(order.Uint16(p)).Float32()) }},
		"f4": {"f4", 4, func(p []byte) float64 { return float64(math.Float32frombits(order.Uint32(p))) }},
		"f8": {"f8", 8, func(p []byte) float64 { return math.Float64frombits(order.Uint64(p)) }},
	}
}

// An array is a file that holds one array of numbers, row after row, or in Fortran order, in which the first index moves fastest: of a matrix,
// column after column.
type array struct {
	f       *file
	offset  int64 // of the first number
	rows    int64
	shape   []int // of one row; empty: a number
	elem    element
	fortran bool
	raw     sync.Pool // of *[]byte: what was read
}

func (a *array) rowLen() int {
	n := 1
	for _, d := range a.shape {
		n *= d
	}
	return n
}

// maxRow bounds the numbers of a row.
const maxRow = 1 << 28

// check compares the size that the header promises with the file's. what names the rows, as in "images of 28 × 28".
func (a *array) check(what string) error {
	n := 1
	for _, d := range a.shape {
		if d <= 0 || n > maxRow/d {
			return faultAt(a.f.name, 0, "rows of shape %v are empty or larger than %d numbers", a.shape, maxRow)
		}
		n *= d
	}
	if a.rows <= 0 {
		return fault(a.f.name, "there are no rows in it")
	}
	row := int64(n) * int64(a.elem.size)
	if a.rows > (math.MaxInt64-a.offset)/row {
		return faultAt(a.f.name, 0, "%d rows of %d bytes are more than a file can hold", a.rows, row)
	}
	switch want := a.offset + a.rows*row; {
	case a.f.size < want:
		return faultAt(a.f.name, a.f.size, "the file ends here; %d %s take %d bytes", a.rows, what, want)
	case a.f.size > want:
		return faultAt(a.f.name, want, "%d bytes follow the last of %d %s", a.f.size-want, a.rows, what)
	}
	return nil
}

// bytesAreImages reports whether the numbers are pixels from 0 to 255.
func (a *array) bytesAreImages() bool { return a.elem.name == "u1" && len(a.shape) >= 2 }

// pieceBytes is how much of a file is read at a time: enough that a call costs nothing beside it, and little beside the data.
const pieceBytes = 1 << 20

// at is the place in the file of number i of a row, counted in the order in which rows are read.
func (a *array) at(row int64, i int) int64 {
	if !a.fortran {
		return a.offset + (row*int64(a.rowLen())+int64(i))*int64(a.elem.size)
	}
	before := int64(0) // numbers of the row
	for d := len(a.shape) - 1; d >= 0; d-- {
		n := a.shape[d]
		before, i = before*int64(n)+int64(i%n), i/n
	}
	return a.offset + (before*a.rows+row)*int64(a.elem.size)
}

// read returns the rows [from, to), row after row, in buf's memory if that suffices.
func (a *array) read(buf []byte, from, to int64) ([]byte, error) {
	if !a.fortran {
		return a.f.read(buf, a.at(from, 0), a.at(to, 0))
	}
	n, rows, size := a.rowLen(), int(to-from), a.elem.size
	all := rows * n * size
	buf = slices.Grow(buf[:0], all+rows*size) // a column's part lies behind the rows
	raw := buf[:all]
	for i := range n {
		at := a.at(from, i)
		column, err := a.f.read(buf[all:all], at, at+int64(rows*size))
		if err != nil {
			return nil, err
		}
		for row := range rows {
			copy(raw[(row*n+i)*size:], column[row*size:(row+1)*size])
		}
	}
	return raw, nil
}

// pieces reads the rows [from, to), some at a time, into memory that is used again after f.
func (a *array) pieces(from, to int64, f func(raw []byte, from, to int64) error) error {
	row := int64(a.rowLen()) * int64(a.elem.size)
	rows := max(1, pieceBytes/row)
	buf, ok := a.raw.Get().(*[]byte)
	if !ok {
		buf = new([]byte)
	}
	defer a.raw.Put(buf)
	for ; from < to; from += rows {
		end := min(from+rows, to)
		raw, err := a.read(*buf, from, end)
		if err != nil {
			return err
		}
		*buf = raw
		if err := f(raw, from, end); err != nil {
			return err
		}
	}
	return nil
}

// readInto writes the rows [from, to), each number divided by divisor, to dst.
func (a *array) readInto(dst []float32, from, to int64, divisor float32, bad func(*Error) error) error {
	n := a.rowLen()
	first := from
	return a.pieces(from, to, func(raw []byte, from, to int64) error {
		return a.convert(dst[(from-first)*int64(n):(to-first)*int64(n)], raw, from, divisor, bad)
	})
}

// convert writes the numbers of raw, which are rows from first on, to dst.
func (a *array) convert(dst []float32, raw []byte, first int64, divisor float32, bad func(*Error) error) error {
	if a.elem.name == "u1" && divisor == 255 {
		kernel.Pixels(kernel.Best(), dst, raw)
		return nil
	}
	n := a.rowLen()
	for i := range dst {
		v := a.elem.get(raw[i*a.elem.size:])
		if !finite32(v) {
			r := first + int64(i/n)
			e := faultAt(a.f.name, a.at(r, i%n), "%v is not a finite number of 32 bits", v)
			e.Row, e.Field = r, fmt.Sprintf("element %d", i%n)
			if err := bad(e); err != nil {
				return err
			}
		}
		dst[i] = float32(v) / divisor
	}
	return nil
}

// An arrayFile is a pair of files: rows of a fixed shape, and their labels.
type arrayFile struct {
	x      *array
	y      *array    // nil: unlabelled
	labels []float32 // of all rows
	crc    uint32
}

// chunk is how many rows are converted at a time, by one thread: a piece of numbers, and one row of those that are larger.
func (a *array) chunk() int64 {
	return max(1, min(256, pieceBytes/(4*int64(a.rowLen()))))
}

func newArrayFile(x, y *array) (*arrayFile, error) {
	a := &arrayFile{x: x, y: y}
	var err error
	if a.crc, err = x.f.checksum(); err != nil {
		return nil, err
	}
	if y == nil {
		return a, nil
	}
	if y.rows != x.rows {
		return nil, fault(y.f.name, "there are %d labels, and %d rows in %s", y.rows, x.rows, x.f.name)
	}
	more, err := y.f.checksum()
	if err != nil {
		return nil, err
	}
	a.crc ^= more*2 + 1
	a.labels = make([]float32, y.rows)
	return a, y.readInto(a.labels, 0, y.rows, 1, stop)
}

func (a *arrayFile) fileName() string { return a.x.f.name }
func (a *arrayFile) numRows() int64   { return a.x.rows }
func (a *arrayFile) sum() uint32      { return a.crc }

func (a *arrayFile) close() error {
	err := a.x.f.close()
	if a.y != nil {
		if err2 := a.y.f.close(); err == nil {
			err = err2
		}
	}
	return err
}

func (a *arrayFile) fit(_ context.Context, f fitting) (*Transform, error) {
	t := &Transform{Version: TransformVersion, Kind: KindArray, Divisor: 1}
	if a.x.bytesAreImages() {
		t.Divisor = 255
	}
	t.Schema.Inputs = []trivium.InputSpec{{Name: "x", Form: trivium.Dense, Shape: inputShape(a.x.shape)}}
	if a.y == nil {
		return t, nil
	}
	var set labelSet
	for i, v := range a.labels {
		set.add(v, int64(i))
	}
	spec, bad, err := set.spec(f.labels, f.desc.Classes)
	if err != nil {
		return nil, a.labelError(err, bad)
	}
	t.Schema.Labels = spec
	return t, nil
}

// inputShape gives images without channels a channel: models of images want height, width, channels.
func inputShape(shape []int) []int {
	switch len(shape) {
	case 0:
		return []int{1}
	case 2:
		return []int{shape[0], shape[1], 1}
	}
	return shape
}

func (a *arrayFile) labelError(err error, row int64) error {
	if e, ok := errors.AsType[*Error](err); ok && row >= 0 {
		e.File, e.Row, e.Offset = a.y.f.name, row, a.y.at(row, 0)
	}
	return err
}

func (a *arrayFile) dataset(ctx context.Context, t *Transform, budget int64) (Dataset, func(int64) int64, error) {
	if t.Kind == KindTable && t.Numbered > 0 && len(a.x.shape) == 1 { // the model's labels were a column among the others
		return (&tableFile{tableReader: &matrixFile{array: a.x, crc: a.crc, labels: a.labels}}).dataset(ctx, t, budget)
	}
	if t.Kind != KindArray {
		return nil, nil, fault(a.x.f.name, "it holds arrays, and the model was trained on %s", t.rows())
	}
	schema := t.Schema
	n := a.x.rowLen()
	if got, want := inputShape(a.x.shape), schema.Inputs[0].Shape; fmt.Sprint(got) != fmt.Sprint(want) {
		return nil, nil, fault(a.x.f.name, "its rows have the shape %v; the model was made for %v", got, want)
	}
	if a.y == nil {
		schema.Labels = trivium.LabelSpec{}
	}
	labels := newLabelWriter(&schema.Labels)
	isPixels := a.x.elem.name == "u1" && t.Divisor == 255
	need := a.x.rows * int64(n)
	if !isPixels {
		need *= 4
	}
	if need > budget {
		// Labels are checked now, so that no mistake waits until training reaches it.
		var all trivium.Labels
		if bad := labels.append(&all, a.labels); bad >= 0 {
			return nil, nil, a.labelError(labels.refuse("", a.labels[bad]), int64(bad))
		}
		if err := a.verify(ctx); err != nil {
			return nil, nil, err
		}
		return &stream{
			schema: schema, rows: a.x.rows, rowBytes: int64(n) * 4, held: need, budget: budget,
			read: func(_ context.Context, dst *trivium.Batch, from, to int64) error {
				in := &dst.Inputs[0]
				in.Values = extend(in.Values[:0], int(to-from)*n)
				if err := a.x.readInto(in.Values, from, to, t.Divisor, stop); err != nil {
					return err
				}
				dst.Rows = int(to - from)
				if a.y != nil {
					labels.append(&dst.Labels, a.labels[from:to])
				}
				return nil
			},
		}, nil, nil
	}
	m := newMemory(schema, trivium.Batch{Rows: int(a.x.rows)})
	var read func(from, to int64) error
	if isPixels {
		of := tensor.AlignedBytes(int(a.x.rows) * n)
		m.pixels = newPixels(&schema, of, budget)
		read = func(from, to int64) error {
			return a.x.pieces(from, to, func(raw []byte, from, _ int64) error {
				copy(of[from*int64(n):], raw)
				return nil
			})
		}
	} else {
		x := tensor.Aligned[float32](int(a.x.rows) * n)
		m.all.Inputs = []trivium.Input{{Name: "x", Form: trivium.Dense, Shape: schema.Inputs[0].Shape, Values: x}}
		read = func(from, to int64) error {
			return a.x.readInto(x[from*int64(n):to*int64(n)], from, to, t.Divisor, stop)
		}
	}
	if err := parallel(ctx, a.x.rows, a.x.chunk(), read); err != nil {
		return nil, nil, err
	}
	if a.y != nil {
		if bad := labels.append(&m.all.Labels, a.labels); bad >= 0 {
			return nil, nil, a.labelError(labels.refuse("", a.labels[bad]), int64(bad))
		}
	}
	return m, nil, nil
}

// verify reads all rows once, where some may not be finite.
func (a *arrayFile) verify(ctx context.Context) error {
	if a.x.elem.name[0] != 'f' {
		return nil
	}
	return parallel(ctx, a.x.rows, a.x.chunk(), func(from, to int64) error {
		return a.x.readInto(make([]float32, (to-from)*int64(a.x.rowLen())), from, to, 1, stop)
	})
}
