package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/ps"
)

// A told is the state of rows that follow one another, or of a part of one, on its way to rank 0.
type told struct {
	table string
	row   uint32 // the first
	rows  int
	from  int      // their first column
	cols  int      // so many cells of each
	steps []uint32 // that one optimizer would have made, in all
	slots [][]float32
}

// toldCells is how many cells are told at a time, at most.
const toldCells = 1 << 16

// appendState writes the state that a process's lanes have.
func appendState(p []byte, h *ps.Host) ([]byte, error) {
	err := h.EachKept(func(x ps.Kept) error {
		if u, ok := x.Optimizer.(*updater); ok {
			p = u.appendState(p, x)
		}
		return nil
	})
	return p, err
}

// appendState writes x as one optimizer has it.
func (u *updater) appendState(p []byte, x ps.Kept) []byte {
	rows, cols := max(1, toldCells/x.Cols), min(x.Cols, toldCells)
	runs := (x.Rows+rows-1)/rows + x.Cols/cols
	p = slices.Grow(p, runs*(toldHead+len(x.Table))+4*x.Rows+4*x.Rows*x.Cols*u.rule.Slots())
	for at := 0; at < x.Rows; at += rows {
		for from := 0; from < x.Cols; from += cols { // several of a long row alone
			n, m := min(rows, x.Rows-at), min(cols, x.Cols-from)
			y := x
			y.Row, y.From, y.Rows, y.Cols, y.Steps, y.Slots = x.Row+int64(at), x.From+int64(from), n, m, x.Steps[at:at+n], nil
			for _, v := range x.Slots {
				y.Slots = append(y.Slots, v[at*x.Cols+from:][:n*m])
			}
			p = u.appendRows(p, y)
		}
	}
	return p
}

// toldHead is what goes before the steps and cells of a told, without the table's name.
const toldHead = 2 + 4 + 4 + 8 + 4 + 1

func (u *updater) appendRows(p []byte, x ps.Kept) []byte {
	p = binary.LittleEndian.AppendUint16(p, uint16(len(x.Table)))
	p = append(p, x.Table...)
	p = binary.LittleEndian.AppendUint32(p, uint32(x.Row))
	p = binary.LittleEndian.AppendUint32(p, uint32(x.Rows))
	p = binary.LittleEndian.AppendUint64(p, uint64(x.From))
	p = binary.LittleEndian.AppendUint32(p, uint32(x.Cols))
	p = append(p, byte(u.rule.Slots()))
	steps, state := slices.Clone(x.Steps), slices.Clone(u.state(x.Slots))
	for i, k := range steps {
		steps[i] = k - min(k, uint32(u.loads))
	}
	var squares, product []float32
	if u.products() {
		_, product = u.kept(x.Slots)
		squares = slices.Clone(state[u.part.squares])
		state[u.part.squares] = squares
	}
	m := merger{&u.part, u.apart, u.n, u.most.Load()}
	m.merge(ofRows(x.Table), steps, squares, product)
	for i, k := range steps {
		p = binary.LittleEndian.AppendUint32(p, u.base(x.Slots, i*x.Cols)+k)
	}
	for _, v := range state {
		p = append(p, raw.Bytes(v)...)
	}
	return p
}

// eachState calls f with what appendState wrote. What f gets is valid until it returns.
func eachState(r io.Reader, f func(t *told) error) error {
	in := bufio.NewReaderSize(r, 1<<16)
	var t told
	var body []byte
	var cells []float32
	read := func(n int) ([]byte, error) {
		body = slices.Grow(body[:0], n)[:n]
		_, err := io.ReadFull(in, body)
		return body, err
	}
	for {
		p, err := read(2)
		if err == io.EOF {
			return nil
		}
		n := 0
		if err == nil {
			n = int(binary.LittleEndian.Uint16(p))
			p, err = read(n + toldHead - 2)
		}
		if err != nil {
			return stateError(err)
		}
		t.table, p = string(p[:n]), p[n:]
		rows, from, cols := binary.LittleEndian.Uint32(p[4:]), binary.LittleEndian.Uint64(p[8:]), binary.LittleEndian.Uint32(p[16:])
		slots := int(p[20])
		if rows == 0 || cols == 0 || uint64(rows)*uint64(cols) > toldCells || from > math.MaxInt32 {
			return fmt.Errorf("server: the optimizer's state of %q is of %d rows of %d cells, from column %d on", t.table, rows, cols, from)
		}
		t.row, t.rows, t.from, t.cols = binary.LittleEndian.Uint32(p), int(rows), int(from), int(cols)
		size := t.rows * t.cols
		if p, err = read(4*t.rows + 4*size*slots); err != nil {
			return stateError(err)
		}
		t.steps = slices.Grow(t.steps[:0], t.rows)[:t.rows]
		for i := range t.steps {
			t.steps[i] = binary.LittleEndian.Uint32(p[4*i:])
		}
		cells = slices.Grow(cells[:0], size*slots)[:size*slots]
		raw.Copy(cells, p[4*t.rows:])
		t.slots = t.slots[:0]
		for k := range slots {
			t.slots = append(t.slots, cells[k*size:(k+1)*size])
		}
		if err := f(&t); err != nil {
			return err
		}
	}
}

// stateError is what a state that ends too early means.
func stateError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("server: the optimizer's state ends in the middle")
	}
	return err
}

// stateKey is the object's name, and that of the one which says that it was read.
const (
	stateKey     = "state"
	stateDoneKey = "state-done"
)

// readOnly is all of a blob.Store but Get, of a state that a member tells.
type readOnly struct{}

var errReadOnly = errors.New("server: a state that is told is not to be written")

// Put implements blob.Store.
func (readOnly) Put(context.Context, string, io.Reader) error { return errReadOnly }

// PutIfAbsent implements blob.Store.
func (readOnly) PutIfAbsent(context.Context, string, io.Reader) error { return errReadOnly }

// List implements blob.Store.
func (readOnly) List(context.Context, string) ([]blob.Object, error) { return nil, nil }

// Delete implements blob.Store.
func (readOnly) Delete(context.Context, string) error { return errReadOnly }

var _ blob.Store = (*cutStore)(nil)
