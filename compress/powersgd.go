package compress

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// PowerSGD sends a matrix M as the product of two thin ones, P·Qᵀ, found by one step of power iteration that starts from the last
// call's Q (Vogels et al. 2019).
//
// It treats a flat vector as one matrix: Rows × Cols, or nearly square where they are 0, as PyTorch's batched hook does. Each party finds
// its own factors; the paper's group finds those of the sum, by two sums of thin matrices, which is another exchange than a codec's.
type PowerSGD struct {
	Rank       int
	Rows, Cols int
	Seed       uint64 // of the first Q
}

const maxRank = 1 << 10

func (c PowerSGD) String() string {
	if c.Rows > 0 {
		return fmt.Sprintf("powersgd:%d of %d×%d", c.Rank, c.Rows, c.Cols)
	}
	return fmt.Sprintf("powersgd:%d", c.Rank)
}

// shape is that of the matrix for n values, of which the last may be missing.
func (c PowerSGD) shape(n int) (rows, cols int) {
	if c.Rows > 0 {
		return c.Rows, c.Cols
	}
	if n == 0 {
		return 0, 0
	}
	cols = int(math.Ceil(math.Sqrt(float64(n))))
	return (n + cols - 1) / cols, cols
}

func (c PowerSGD) MaxLen(n int) int {
	rows, cols := c.shape(n)
	return 4 * max(0, c.Rank) * (rows + cols)
}

func (c PowerSGD) fits(n int) error {
	rows, cols := c.shape(n)
	switch {
	case c.Rows < 0 || c.Cols < 0 || (c.Rows > 0) != (c.Cols > 0):
		return fmt.Errorf("a matrix of %d×%d has no values; want both sides above 0, or both 0", c.Rows, c.Cols)
	case c.Rank < 1 || c.Rank > maxRank:
		return fmt.Errorf("the rank must be from 1 to %d, found %d", maxRank, c.Rank)
	case n > 0 && c.Rank > min(rows, cols):
		return fmt.Errorf("the rank %d is above the smaller side of a matrix of %d×%d", c.Rank, rows, cols)
	case c.Rows > 0 && c.Rows*c.Cols != n:
		return fmt.Errorf("a matrix of %d×%d has not %d values", rows, cols, n)
	}
	return nil
}

func (c PowerSGD) Encode(dst []byte, src []float32, e *Residual) ([]byte, error) {
	x, err := e.add(c, src)
	if err != nil || len(x) == 0 {
		return dst, err
	}
	rows, cols := c.shape(len(x))
	var warm []float32
	if e != nil {
		warm = e.warm
	}
	q, w := c.start(warm, cols), newThin(cols, c.Rank)
	p := make([]float32, rows*c.Rank)
	w.multiply(p, x, q)
	orthonormalise(p, c.Rank)
	w.multiplyT(q, x, p)
	all, out := grow(dst, c.MaxLen(len(x)))
	for i, v := range p {
		binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(v))
	}
	for i, v := range q {
		binary.LittleEndian.PutUint32(out[4*(len(p)+i):], math.Float32bits(v))
	}
	if e != nil {
		e.warm = q
		w.product(x, p, q, keep)
	}
	return all, nil
}

func (c PowerSGD) DecodeAdd(dst []float32, src []byte) error {
	return c.decode(dst, src, func(dst, rows []float32) { kernel.Add(kernel.Best(), dst, dst, rows) })
}

func (c PowerSGD) Decode(dst []float32, src []byte) error {
	return c.decode(dst, src, write)
}

func (c PowerSGD) decode(dst []float32, src []byte, apply func(dst, rows []float32)) error {
	if err := Fits(c, len(dst)); err != nil {
		return err
	}
	if want := c.MaxLen(len(dst)); len(src) != want {
		return badLen(c, len(dst), want, len(src))
	}
	if len(dst) == 0 {
		return nil
	}
	rows, cols := c.shape(len(dst))
	f := make([]float32, len(src)/4)
	for i := range f {
		f[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
	newThin(cols, c.Rank).product(dst, f[:rows*c.Rank], f[rows*c.Rank:], apply)
	return nil
}

// start returns the Q to begin with, a copy: the last one, where a column of it that has died is drawn anew. A column is as long as the values of
// the last matrix are large, and what they are multiplied by is kept near 1, for a product of two such would overflow from 1e19 on: by a power
// of two, which changes no other bits of what comes of it.
func (c PowerSGD) start(warm []float32, cols int) []float32 {
	q := make([]float32, cols*c.Rank)
	if len(warm) == len(q) {
		copy(q, warm)
	}
	for j := range c.Rank {
		var s float64
		for i := j; i < len(q); i += c.Rank {
			s += float64(q[i]) * float64(q[i])
		}
		if s > 0 && !math.IsInf(s, 0) {
			_, exp := math.Frexp(s)
			scale := math.Ldexp(1, -exp/2)
			for i := j; i < len(q); i += c.Rank {
				q[i] = float32(float64(q[i]) * scale)
			}
			continue
		}
		for i := j; i < len(q); i += c.Rank {
			q[i] = float32(draw.Normal(c.Seed, powerStream, uint64(i)))
		}
	}
	return q
}

// A thin multiplies matrices of so many columns, whose last row may be short, by thin ones. The functions of package kernel that it
// calls round each product before they add it, in an order that follows from the shape alone, so the bits are the same on every machine.
type thin struct {
	cols, rank int
	q          []float32 // a right factor by its columns: rank × cols
}

func newThin(cols, rank int) *thin {
	return &thin{cols, rank, make([]float32, cols*rank)}
}

// load takes the right factor q, cols × rank.
func (w *thin) load(q []float32) {
	for j := range w.cols {
		for k, v := range q[j*w.rank : (j+1)*w.rank] {
			w.q[k*w.cols+j] = v
		}
	}
}

// rows visits the rows of m.
func (w *thin) rows(m []float32, visit func(i int, row []float32)) {
	for i := 0; len(m) > 0; i++ {
		n := min(len(m), w.cols)
		visit(i, m[:n])
		m = m[n:]
	}
}

// multiply is p = m·q.
func (w *thin) multiply(p, m, q []float32) {
	isa := kernel.Best()
	w.load(q)
	w.rows(m, func(i int, row []float32) {
		kernel.Gemv(isa, w.rank, len(row), w.q, w.cols, row, p[i*w.rank:(i+1)*w.rank])
	})
}

// multiplyT is q = mᵀ·p.
func (w *thin) multiplyT(q, m, p []float32) {
	isa := kernel.Best()
	clear(w.q)
	w.rows(m, func(i int, row []float32) {
		for k, v := range p[i*w.rank : (i+1)*w.rank] {
			kernel.Axpy(isa, w.q[k*w.cols:][:len(row)], v, row)
		}
	})
	for j := range w.cols {
		for k := range w.rank {
			q[j*w.rank+k] = w.q[k*w.cols+j]
		}
	}
}

// product applies the rows of p·qᵀ to those of m, of short ones many at a time.
func (w *thin) product(m, p, q []float32, apply func(m, rows []float32)) {
	const piece = 1024 // values: they stay in the first-level cache
	isa := kernel.Best()
	w.load(q)
	block := make([]float32, min(len(m), max(1, piece/w.cols)*w.cols))
	for len(m) > 0 {
		n := min(len(m), len(block))
		w.rows(block[:n], func(i int, row []float32) {
			kernel.Scale(isa, row, w.q[:len(row)], p[i*w.rank])
			for k := 1; k < w.rank; k++ {
				kernel.Axpy(isa, row, p[i*w.rank+k], w.q[k*w.cols:][:len(row)])
			}
		})
		apply(m[:n], block[:n])
		m, p = m[n:], p[(n+w.cols-1)/w.cols*w.rank:]
	}
}

func write(dst, rows []float32) { copy(dst, rows) }

// keep subtracts what was sent, and leaves nothing that is not finite.
func keep(x, rows []float32) {
	kernel.Sub(kernel.Best(), x, x, rows)
	dropAll(x)
}

// orthonormalise makes p's columns orthogonal and of length 1, by the modified Gram-Schmidt process in float64. Once is enough: what cancels
// leaves 1e-6 of a column or more, and so products of 1e-10 where rounding to float32 leaves 4e-8. A column that depends on those before it becomes 0, and one that is not finite NaN, so that a run that diverges is seen.
func orthonormalise(p []float32, rank int) {
	isa := kernel.Best()
	rows := len(p) / rank
	columns := make([]float64, len(p))
	for i, v := range p {
		columns[i%rank*rows+i/rank] = float64(v)
	}
	for j := range rank {
		x := columns[j*rows : (j+1)*rows]
		before := math.Sqrt(kernel.SumSquares(isa, x))
		for k := range j {
			y := columns[k*rows : (k+1)*rows]
			kernel.Axpy(isa, x, -kernel.Dot(isa, x, y), y)
		}
		// 1e-6 of its length is what the rounding of p to float32 leaves of a dependent column.
		switch norm := math.Sqrt(kernel.SumSquares(isa, x)); {
		case before-before != 0:
			kernel.Fill(isa, x, math.NaN())
		case norm <= 1e-6*before:
			clear(x)
		default:
			kernel.DivScalar(isa, x, x, norm)
		}
	}
	for i := range p {
		p[i] = float32(columns[i%rank*rows+i/rank])
	}
}
