package server

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"strings"

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

// toldRows is how many rows are told at a time.
const toldRows = 1 << 12

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
	for at := 0; at < x.Rows; at += toldRows {
		n := min(toldRows, x.Rows-at)
		y := x
		y.Row, y.Rows, y.Steps, y.Slots = x.Row+int64(at), n, x.Steps[at:at+n], nil
		for _, v := range x.Slots {
			y.Slots = append(y.Slots, v[at*x.Cols:(at+n)*x.Cols])
		}
		p = u.appendRows(p, y)
	}
	return p
}

func (u *updater) appendRows(p []byte, x ps.Kept) []byte {
	rows, most := strings.HasPrefix(x.Table, rowPrefix), u.most.Load()
	p = binary.LittleEndian.AppendUint16(p, uint16(len(x.Table)))
	p = append(p, x.Table...)
	p = binary.LittleEndian.AppendUint32(p, uint32(x.Row))
	p = binary.LittleEndian.AppendUint32(p, uint32(x.Rows))
	p = binary.LittleEndian.AppendUint64(p, uint64(x.From))
	p = binary.LittleEndian.AppendUint32(p, uint32(x.Cols))
	p = append(p, byte(u.rule.Slots()))
	made := make([]int64, x.Rows) // in this run
	for i, k := range x.Steps {
		made[i] = max(0, int64(k)-int64(u.loads))
		steps := made[i]
		if u.apart && rows {
			steps = updatesOf(steps, most, u.n)
		}
		p = binary.LittleEndian.AppendUint32(p, uint32(int64(u.base(x.Slots, i*x.Cols))+steps))
	}
	for k, v := range u.state(x.Slots) {
		if k == u.part.squares && u.products() {
			_, product := u.kept(x.Slots)
			v = slices.Clone(v)
			for i, steps := range made {
				by := float64(u.n)
				if rows {
					by = together(float64(steps)/float64(max(1, most)), u.n)
				}
				a, b := i*x.Cols, (i+1)*x.Cols
				u.part.neutral(v[a:b], product[a:b], u.n, by)
			}
		}
		p = append(p, raw.Bytes(v)...)
	}
	return p
}

var errShort = errors.New("server: the optimizer's state ends in the middle")

// eachState calls f with what appendState wrote. What f gets is valid until it returns.
func eachState(p []byte, f func(t told) error) error {
	var cells []float32
	var t told
	for len(p) > 0 {
		if len(p) < 2 {
			return errShort
		}
		n := int(binary.LittleEndian.Uint16(p))
		if len(p) < 2+n+21 {
			return errShort
		}
		t.table, p = string(p[2:2+n]), p[2+n:]
		t.row, t.rows = binary.LittleEndian.Uint32(p), int(binary.LittleEndian.Uint32(p[4:]))
		from, cols, slots := binary.LittleEndian.Uint64(p[8:]), int(binary.LittleEndian.Uint32(p[16:])), int(p[20])
		p = p[21:]
		left := len(p) / 4
		if from > math.MaxInt32 || t.rows > left || slots > 0 && cols > 0 && t.rows > left/cols/slots {
			return errShort
		}
		t.from, t.cols = int(from), cols
		size := t.rows * cols
		if left < t.rows+size*slots {
			return errShort
		}
		t.steps = slices.Grow(t.steps[:0], t.rows)[:t.rows]
		for i := range t.steps {
			t.steps[i] = binary.LittleEndian.Uint32(p[4*i:])
		}
		p = p[4*t.rows:]
		cells = slices.Grow(cells[:0], size*slots)[:size*slots]
		raw.Copy(cells, p)
		p = p[4*len(cells):]
		t.slots = t.slots[:0]
		for k := range slots {
			t.slots = append(t.slots, cells[k*size:(k+1)*size])
		}
		if err := f(t); err != nil {
			return err
		}
	}
	return nil
}

// stateKey is the object's name.
const stateKey = "state"

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
