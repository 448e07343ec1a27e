package compress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/wire"
)

// A Residual is what encoding dropped so far of one vector: e ← g + e − C(g + e) (Seide et al. 2014; Karimireddy et al. 2019). It is
// training state: a run that resumes without it loses gradient. It belongs to one goroutine.
//
// Invariant: the sum of all gradients is the sum of all that was sent, plus the residual, up to rounding.
type Residual struct {
	cells []float32
	rate  float64   // the learning rate that cells are measured in; 0: not told
	calls uint64    // encodings so far: codecs that draw at random draw anew in each
	warm  []float32 // PowerSGD's right factor of the last call
	parts []part    // by from, then to

	whole *Residual // whose cells [from, from+len(cells)) these are; nil: it is no part
	from  int

	released bool    // since a value of these was last encoded
	largest  largest // TopK's memory
}

// A part is a range of a residual that is encoded on its own.
type part struct {
	from, to int
	e        *Residual
}

// NewResidual returns the residual, zero, of a vector of n values.
func NewResidual(n int) *Residual { return &Residual{cells: make([]float32, n)} }

// Len is the length of the vector.
func (e *Residual) Len() int { return len(e.cells) }

// Cells are the values, a view: who moves training state reads and writes them, in any cut.
func (e *Residual) Cells() []float32 { return e.cells }

// Range returns the residual of cells [from, to), which shares them, for a vector that is encoded in pieces. The same range gives the
// same Residual each time.
func (e *Residual) Range(from, to int) *Residual {
	if from == 0 && to == len(e.cells) {
		return e
	}
	if e.whole != nil { // which saves all of its parts
		return e.whole.Range(e.from+from, e.from+to)
	}
	i, found := slices.BinarySearchFunc(e.parts, part{from: from, to: to}, func(a, b part) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return a.to - b.to
	})
	if !found {
		e.parts = slices.Insert(e.parts, i, part{from, to, &Residual{cells: e.cells[from:to:to], whole: e, from: from}})
	}
	return e.parts[i].e
}

// SetRate says that the values are gradients that will be multiplied by this learning rate. When it changes, the residual is
// rescaled, so that what was dropped counts as much as when it was dropped (BytePS; Zheng et al. 2019). A rate of 0 changes nothing.
func (e *Residual) SetRate(rate float64) {
	if rate == 0 || !finite.Is(rate) {
		return
	}
	if e.rate != 0 && e.rate != rate {
		kernel.Scale(kernel.Best(), e.cells, e.cells, float32(e.rate/rate))
		dropAll(e.cells)
	}
	e.rate = rate
}

// Release adds what is kept to dst, and keeps nothing. Who sums a range adds its own values as they are, and never encodes them: what it
// keeps of them is of another cut, or of a checkpoint. Only the first call after an encoding of some of these values looks.
func (e *Residual) Release(dst []float32) {
	if e == nil || e.released {
		return
	}
	kernel.Add(kernel.Best(), dst[:len(e.cells)], dst, e.cells)
	clear(e.cells)
	e.released = true
}

// Take adds x, of e's length, to what is kept: what another had dropped.
func (e *Residual) Take(x []float32) {
	kernel.Add(kernel.Best(), e.cells, e.cells, x)
	e.unrelease()
}

// Norm is the Euclidean norm: what would be lost with the residual.
func (e *Residual) Norm() float64 {
	var s float64
	for _, v := range e.cells {
		s += float64(v) * float64(v)
	}
	return math.Sqrt(s)
}

// add adds src to e and returns e's cells, for c to encode, if c takes as many; without a residual it returns src.
func (e *Residual) add(c Codec, src []float32) ([]float32, error) {
	if err := Fits(c, len(src)); err != nil {
		return nil, err
	}
	if e == nil {
		return src, nil
	}
	if err := e.begin(c, len(src)); err != nil {
		return nil, err
	}
	kernel.Add(kernel.Best(), e.cells, e.cells, src)
	return e.cells, nil
}

// begin notes an encoding of n values.
func (e *Residual) begin(c Codec, n int) error {
	if len(e.cells) != n {
		return fmt.Errorf("compress: %s: %d values come with a residual of %d", c, n, len(e.cells))
	}
	e.calls++
	e.unrelease()
	return nil
}

// Snapshot copies the values to cells, which are as many, and returns what makes e as it is now, as if nothing had been encoded since. It is
// for a step that may not count: also the number of encodings goes back, which parties that draw alike have in common.
func (e *Residual) Snapshot(cells []float32) (restore func()) {
	copy(cells, e.cells)
	calls, warm := e.calls, e.warm // an encoding makes another factor, and writes to none
	return func() {
		copy(e.cells, cells)
		e.calls, e.warm = calls, warm
		e.unrelease()
	}
}

// unrelease notes that some of the values may be other than 0.
func (e *Residual) unrelease() {
	whole := e
	if e.whole != nil {
		whole = e.whole
	}
	whole.released = false
	for _, q := range whole.parts { // of other cuts too: they share cells
		if q.from < e.from+len(e.cells) && e.from < q.to {
			q.e.released = false
		}
	}
	e.released = false
}

// AppendState appends e as bytes.
func (e *Residual) AppendState(p []byte) []byte {
	p = wire.AppendUvarint(p, stateVersion)
	p = e.appendCells(p)
	p = e.appendOwn(p)
	p = wire.AppendUvarint(p, uint64(len(e.parts)))
	for _, q := range e.parts {
		p = wire.AppendUvarint(p, uint64(q.from))
		p = wire.AppendUvarint(p, uint64(q.to))
		p = q.e.appendOwn(p)
	}
	return p
}

const stateVersion = 2

// appendCells appends the cells, and of long runs of zeros their length: who sums a range keeps nothing of its own values there, and of the
// sums nothing elsewhere.
func (e *Residual) appendCells(p []byte) []byte {
	const long = 16 // cells: what ends a run takes a few bytes
	p = wire.AppendUvarint(p, uint64(len(e.cells)))
	for rest := e.cells; len(rest) > 0; {
		zeros := leadingZeros(rest)
		p = wire.AppendUvarint(p, uint64(zeros))
		rest = rest[zeros:]
		n := 0
		for n < len(rest) {
			z := leadingZeros(rest[n:min(n+long, len(rest))])
			if z == long {
				break
			}
			n = min(n+z+1, len(rest))
		}
		p = wire.AppendFloat32s(p, rest[:n])
		rest = rest[n:]
	}
	return p
}

func leadingZeros(x []float32) int {
	for i, v := range x {
		if math.Float32bits(v) != 0 { // so −0 stays what it is
			return i
		}
	}
	return len(x)
}

// readCells reads n cells.
func readCells(r *wire.Reader, n int) []float32 {
	if found := r.Uvarint("cells", math.MaxInt32); r.Err() == nil && found != uint64(n) {
		r.Fail("cells", fmt.Errorf("want %d, found %d", n, found))
	}
	if r.Err() != nil {
		return nil
	}
	cells := make([]float32, n)
	for rest := cells; len(rest) > 0 && r.Err() == nil; {
		zeros := int(r.Uvarint("zeros", uint64(len(rest))))
		v := r.Float32s("cells", len(rest)-zeros)
		if r.Err() == nil && zeros+len(v) == 0 {
			r.Fail("cells", fmt.Errorf("%d are missing", len(rest)))
			break
		}
		if i := finite.FirstNot(v); i >= 0 {
			r.Fail("cells", fmt.Errorf("%v is not finite", v[i]))
		}
		copy(rest[zeros:], v)
		rest = rest[zeros+len(v):]
	}
	return cells
}

func (e *Residual) appendOwn(p []byte) []byte {
	p = wire.AppendFloat64(p, e.rate)
	p = wire.AppendUvarint(p, e.calls)
	return wire.AppendFloat32s(p, e.warm)
}

// SetState makes e what AppendState wrote. e keeps its length: state of another is refused, and an error leaves e as it was.
func (e *Residual) SetState(p []byte) error {
	n := len(e.cells)
	r := wire.NewReader("residual", p)
	if v := r.Uvarint("version", math.MaxUint64); r.Err() == nil && v != stateVersion {
		r.Fail("version", fmt.Errorf("want %d, found %d", stateVersion, v))
	}
	cells := readCells(r, n)
	var now Residual
	now.readOwn(r)
	for range r.Uvarint("parts", uint64(len(p))) {
		from, to := int(r.Uvarint("from", uint64(n))), int(r.Uvarint("to", uint64(n)))
		if r.Err() != nil {
			break
		}
		if from > to || len(now.parts) > 0 && !now.parts[len(now.parts)-1].before(from, to) {
			r.Fail("parts", fmt.Errorf("[%d, %d) is no range, or out of order", from, to))
			break
		}
		q := part{from, to, &Residual{}}
		q.e.readOwn(r)
		now.parts = append(now.parts, q)
	}
	if err := r.Done(); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	copy(e.cells, cells)
	e.rate, e.calls, e.warm, e.parts, e.released = now.rate, now.calls, now.warm, now.parts, false
	for _, q := range e.parts {
		q.e.cells, q.e.whole, q.e.from = e.cells[q.from:q.to:q.to], e, q.from
	}
	return nil
}

// AppendStates appends the states of several residuals.
func AppendStates(p []byte, list []*Residual) []byte {
	for _, e := range list {
		state := e.AppendState(nil)
		p = append(binary.LittleEndian.AppendUint64(p, uint64(len(state))), state...)
	}
	return p
}

// SetStates makes all of list what AppendStates wrote. An error, which says that those were others, leaves all as they were.
func SetStates(list []*Residual, p []byte) error {
	var states [][]byte
	for len(p) >= 8 {
		n := binary.LittleEndian.Uint64(p)
		if p = p[8:]; n > uint64(len(p)) {
			return errors.New("compress: the states of residuals end in the middle")
		}
		states, p = append(states, p[:n]), p[n:]
	}
	if len(p) > 0 || len(states) != len(list) {
		return fmt.Errorf("compress: the states of %d residuals and %d bytes, want %d", len(states), len(p), len(list))
	}
	for i, e := range list { // all or none
		if err := NewResidual(e.Len()).SetState(states[i]); err != nil {
			return err
		}
	}
	for i, e := range list {
		if err := e.SetState(states[i]); err != nil {
			return err
		}
	}
	return nil
}

func (q part) before(from, to int) bool { return q.from < from || q.from == from && q.to < to }

func (e *Residual) readOwn(r *wire.Reader) {
	e.rate = r.Float64("rate")
	if !finite.Is(e.rate) {
		r.Fail("rate", fmt.Errorf("%v is not finite", e.rate))
	}
	e.calls = r.Uvarint("calls", math.MaxUint64)
	if w := r.Float32s("warm", math.MaxInt32); len(w) > 0 {
		e.warm = w
	}
}
