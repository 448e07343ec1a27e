package compress

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/trivium-ml/trivium/draw"
)

// PowerSGD sends a matrix M as the product of two thin ones, P·Qᵀ, found by one step of power iteration that starts from the last
// call's Q (Vogels et al. 2019).
//
// It has two forms. As a Codec it treats a flat vector as one matrix: Rows × Cols, or nearly square where they are 0, as PyTorch's
// batched hook does; each party finds its own factors. [PowerSGD.Factor] is the paper's form for a group: the factors are found for the
// sum of all matrices, by two sums of thin matrices, so it costs what its size says in any allreduce. It needs each matrix's shape.
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

func (PowerSGD) Linear() bool { return false }

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
	if err := Fits(c, len(src)); err != nil {
		return dst, err
	}
	x, err := e.add(c, src)
	if err != nil || len(x) == 0 {
		return dst, err
	}
	rows, cols := c.shape(len(x))
	var warm []float32
	if e != nil {
		warm = e.warm
	}
	q := c.start(warm, cols)
	p := make([]float32, rows*c.Rank)
	multiply(p, x, q, cols, c.Rank)
	orthonormalise(p, c.Rank)
	multiplyT(q, x, p, cols, c.Rank)
	all, out := grow(dst, c.MaxLen(len(x)))
	for i, v := range p {
		binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(v))
	}
	for i, v := range q {
		binary.LittleEndian.PutUint32(out[4*(len(p)+i):], math.Float32bits(v))
	}
	if e != nil {
		e.warm = q
		product(x, p, q, cols, c.Rank, func(at int, v float32) { x[at] = dropped(x[at] - v) })
	}
	return all, nil
}

func (c PowerSGD) DecodeAdd(dst []float32, src []byte) error {
	return c.decode(dst, src, func(at int, v float32) { dst[at] += v })
}

func (c PowerSGD) Decode(dst []float32, src []byte) error {
	return c.decode(dst, src, func(at int, v float32) { dst[at] = v })
}

func (c PowerSGD) decode(dst []float32, src []byte, apply func(at int, v float32)) error {
	if err := Fits(c, len(dst)); err != nil {
		return err
	}
	if want := c.MaxLen(len(dst)); len(src) != want {
		return badLen(c, len(dst), want, len(src))
	}
	rows, cols := c.shape(len(dst))
	f := make([]float32, len(src)/4)
	for i := range f {
		f[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
	product(dst, f[:rows*c.Rank], f[rows*c.Rank:], cols, c.Rank, apply)
	return nil
}

// start returns the Q to begin with, a copy: the last one, where a column of it that has died is drawn anew.
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
			continue
		}
		for i := j; i < len(q); i += c.Rank {
			q[i] = float32(draw.Normal(c.Seed, powerStream, uint64(i)))
		}
	}
	return q
}

// A Factor compresses the sum of a group's matrices of one shape. Each party calls, in a step:
//
//	left := f.Left(m)     // summed over the group, in place
//	right := f.Right()    // summed over the group, in place
//	f.Sum(dst)            // the sum of all matrices, nearly, and the same bits at every party
//
// Its Residual and its start are training state: State and SetState.
type Factor struct {
	c           PowerSGD
	rows, cols  int
	e           *Residual
	left, right []float32
	own         []float32 // right before it is summed
}

// Factor returns the state of one matrix, rows × cols and row-major.
func (c PowerSGD) Factor(rows, cols int) (*Factor, error) {
	c.Rows, c.Cols = rows, cols
	if rows < 1 || cols < 1 {
		return nil, fmt.Errorf("compress: %s: a matrix of %d×%d has no values", c, rows, cols)
	}
	if err := Fits(c, rows*cols); err != nil {
		return nil, err
	}
	return &Factor{c: c, rows: rows, cols: cols, e: NewResidual(rows * cols), left: make([]float32, rows*c.Rank)}, nil
}

// Saves says whether the factors are smaller than the matrix.
func (f *Factor) Saves() bool { return 2*f.c.Rank*(f.rows+f.cols) < f.rows*f.cols }

// Residual is what was dropped so far at this party; its state holds the start of the next iteration, which is the same at all.
func (f *Factor) Residual() *Residual { return f.e }

// Left adds m to the residual and returns M·Q, rows × rank, to be summed.
func (f *Factor) Left(m []float32) ([]float32, error) {
	x, err := f.e.add(f.c, m)
	if err != nil {
		return nil, err
	}
	f.right = f.c.start(f.e.warm, f.cols)
	multiply(f.left, x, f.right, f.cols, f.c.Rank)
	return f.left, nil
}

// Right makes the columns of the summed left factor orthonormal and returns Mᵀ·P, cols × rank, to be summed.
func (f *Factor) Right() []float32 {
	orthonormalise(f.left, f.c.Rank)
	multiplyT(f.right, f.e.cells, f.left, f.cols, f.c.Rank)
	f.own = append(f.own[:0], f.right...)
	return f.right
}

// Sum writes P·Qᵀ to dst and keeps what this party's part of it lacks.
func (f *Factor) Sum(dst []float32) error {
	if len(dst) != f.rows*f.cols {
		return fmt.Errorf("compress: %s: the result has %d values", f.c, len(dst))
	}
	x := f.e.cells
	product(x, f.left, f.own, f.cols, f.c.Rank, func(at int, v float32) { x[at] = dropped(x[at] - v) })
	product(dst, f.left, f.right, f.cols, f.c.Rank, func(at int, v float32) { dst[at] = v })
	f.e.warm = slices.Clone(f.right)
	return nil
}

// multiply is p = m·q for a matrix m of cols columns, whose last row may be short.
func multiply(p, m, q []float32, cols, rank int) {
	clear(p)
	for i := 0; i*cols < len(m); i++ {
		out := p[i*rank : (i+1)*rank]
		for j, v := range m[i*cols : min((i+1)*cols, len(m))] {
			for k, w := range q[j*rank : (j+1)*rank] {
				out[k] += float32(v * w)
			}
		}
	}
}

// multiplyT is q = mᵀ·p.
func multiplyT(q, m, p []float32, cols, rank int) {
	clear(q)
	for i := 0; i*cols < len(m); i++ {
		in := p[i*rank : (i+1)*rank]
		for j, v := range m[i*cols : min((i+1)*cols, len(m))] {
			out := q[j*rank : (j+1)*rank]
			for k, w := range in {
				out[k] += float32(v * w)
			}
		}
	}
}

// product visits the values of p·qᵀ as far as m has them.
func product(m, p, q []float32, cols, rank int, visit func(at int, v float32)) {
	for at := range m {
		left, right := p[at/cols*rank:][:rank], q[at%cols*rank:][:rank]
		var s float32
		for k, v := range left {
			s += float32(v * right[k])
		}
		visit(at, s)
	}
}

// orthonormalise makes p's columns orthogonal and of length 1, by the modified Gram-Schmidt process, done twice (Giraud et al. 2005). A
// column that depends on those before it becomes 0.
func orthonormalise(p []float32, rank int) {
	for j := range rank {
		before := length(p, j, rank)
		for range 2 {
			for k := range j {
				var dot float64
				for i := 0; i < len(p); i += rank {
					dot += float64(float64(p[i+j]) * float64(p[i+k]))
				}
				for i := 0; i < len(p); i += rank {
					p[i+j] = float32(float64(p[i+j]) - float64(dot*float64(p[i+k])))
				}
			}
		}
		// 1e-6 of its length is what rounding leaves of a dependent column.
		norm := length(p, j, rank)
		for i := j; i < len(p); i += rank {
			if norm <= 1e-6*before {
				p[i] = 0
			} else {
				p[i] = float32(float64(p[i]) / norm)
			}
		}
	}
}

func length(p []float32, j, rank int) float64 {
	var s float64
	for i := j; i < len(p); i += rank {
		s += float64(float64(p[i]) * float64(p[i]))
	}
	return math.Sqrt(s)
}
