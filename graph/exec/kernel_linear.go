package exec

import (
	"fmt"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// gemmRate is how many flops of a product take the time of one scalar operation or byte.
const gemmRate = 8

// longProduct is the flops of a thread's share, some 100 µs, from which it is cut in two: then a thread that lost its processor for a
// while does not keep the others waiting as long.
const longProduct = 1 << 24

var kernelActivations = map[string]kernel.Activation{"": kernel.ActNone, "relu": kernel.ActReLU, "tanh": kernel.ActTanh, "sigmoid": kernel.ActSigmoid}

// bindMatMul is MatMul and Dense: a product cut into rows × columns of the result.
func bindMatMul[T float](b *bound) {
	act := kernelActivations[b.n.act]
	ta, tb := b.n.ta, b.n.tb
	data := !tb && isFed(b.n.in[0].n) // which often has many zeros, what is computed seldom
	var m, n, k, lda, ldb, rows, cols, across int
	b.size = func() {
		m, n = b.out[0].dims[0], b.out[0].dims[1]
		lda, ldb = b.in[0].dims[1], b.in[1].dims[1]
		k = lda
		if ta {
			k = b.in[0].dims[0]
		}
		b.cost = 2 * float64(m) * float64(n) * float64(k) / gemmRate
		rows, cols = m, n
		if threads := b.x.threads; threads > 1 && b.cost > float64(b.x.p.o.Grain) {
			pieces := threads
			if b.cost*gemmRate > float64(threads)*longProduct {
				pieces *= 2
			}
			rows, cols = kernel.GemmTiles(m, n, k, pieces)
			if ta && pieces > threads && rows > 64 && rows < m {
				rows = (rows + 16) / 32 * 32 // whole vectors of A's columns; what is left is small, and comes last
			}
		}
		rows, cols = max(rows, 1), max(cols, 1)
		across = max(1, (n+cols-1)/cols)
		b.tiles = max(1, (m+rows-1)/rows) * across
	}
	b.run = func(tile int, w *worker) {
		i, j := tile/across*rows, tile%across*cols
		mm, nn := min(rows, m-i), min(cols, n-j)
		if mm <= 0 || nn <= 0 {
			return
		}
		x, y, c := flat[T](b.in[0]), flat[T](b.in[1]), flat[T](b.out[0])
		ep := kernel.Epilogue[T]{Act: act}
		if len(b.in) == 3 {
			ep.Bias = flat[T](b.in[2])[j : j+nn]
		}
		zeros := data && kernel.MostlyZeros(x, n)
		if k > 0 {
			if ta {
				x = x[i:]
			} else {
				x = x[i*lda:]
			}
			if tb {
				y = y[j*ldb:]
			} else {
				y = y[j:]
			}
		}
		if zeros {
			kernel.GemmZeros(b.isa, ta, mm, nn, k, x, lda, y, ldb, c[i*n+j:], n, ep, workspace[T](w))
			return
		}
		kernel.Gemm(b.isa, ta, tb, mm, nn, k, x, max(lda, 1), y, max(ldb, 1), c[i*n+j:], n, ep, workspace[T](w))
	}
}

// isFed says whether a value is a feed, perhaps in another shape.
func isFed(n *node) bool {
	for n.op == "Reshape" {
		n = n.in[0].n
	}
	return n.op == opFeed
}

// indices32 are the numbers of an integer slot as int32, in scratch where they have another type. Numbers that no int32 holds become
// -1, which is outside of every table.
func indices32(s *slot, scratch *[]int32) []int32 {
	if s.dt == graph.I32 {
		return flat[int32](s)
	}
	if cap(*scratch) < s.n {
		*scratch = make([]int32, s.n+s.n/4)
	}
	out := (*scratch)[:s.n]
	if s.dt == graph.U8 {
		for i, v := range flat[uint8](s) {
			out[i] = int32(v)
		}
		return out
	}
	for i, v := range flat[int64](s) {
		if int64(int32(v)) != v {
			v = -1
		}
		out[i] = int32(v)
	}
	return out
}

// whole is number i of an integer slot.
func (s *slot) whole(i int) int64 {
	switch s.dt {
	case graph.I64:
		return flat[int64](s)[i]
	case graph.I32:
		return int64(flat[int32](s)[i])
	default:
		return int64(flat[uint8](s)[i])
	}
}

// indices64 is indices32 for row pointers.
func indices64(s *slot, scratch *[]int64) []int64 {
	if s.dt == graph.I64 {
		return flat[int64](s)
	}
	if cap(*scratch) < s.n {
		*scratch = make([]int64, s.n+s.n/4)
	}
	out := (*scratch)[:s.n]
	switch s.dt {
	case graph.I32:
		for i, v := range flat[int32](s) {
			out[i] = int64(v)
		}
	default:
		for i, v := range flat[uint8](s) {
			out[i] = int64(v)
		}
	}
	return out
}

// A userError is a mistake in fed data that only a kernel sees; it is thrown as a panic inside of kernels and caught by the step.
type userError struct{ msg string }

func (e userError) Error() string { return e.msg }

func badIndex(what string, i int, v int64, n int) {
	panic(userError{fmt.Sprintf("%s %d is %d, want 0 to %d", what, i, v, n-1)})
}

// A csr is the sparse operand of a node: indices as kernels want them, checked once a step by prepare.
type csr struct {
	ptr     []int64
	idx     []int32
	ptrBuf  []int64
	idxBuf  []int32
	ptrSlot *slot
	idxSlot *slot
}

// check reads row pointers and, where there are some, indices that must be below columns.
func (c *csr) check(values, columns int) {
	c.ptr = indices64(c.ptrSlot, &c.ptrBuf)
	if len(c.ptr) == 0 {
		panic(userError{"indptr is empty, want one entry more than rows"})
	}
	prev := int64(0)
	for i, p := range c.ptr {
		if p < prev || p > int64(values) {
			panic(userError{fmt.Sprintf("indptr %d is %d, want %d to %d, the number of values", i, p, prev, values)})
		}
		prev = p
	}
	if c.idxSlot == nil {
		return
	}
	c.idx = indices32(c.idxSlot, &c.idxBuf)
	for i, v := range c.idx {
		if v < 0 || int(v) >= columns {
			badIndex("index", i, c.idxSlot.whole(i), columns)
		}
	}
}

// Nodes on sparse matrices check and convert their indices in tile 0 of a node of one tile, or each tile checks for itself: the check
// reads 12 bytes an entry, the product 4·n.
func bindSparseMatMul[T float](b *bound) {
	var n int
	b.size = func() {
		n = b.out[0].dims[1]
		rows := b.out[0].dims[0]
		per := float64(b.in[2].n) / float64(max(rows, 1))
		b.cut(rows, 1, per*float64(2*n+8)+float64(4*n))
	}
	b.run = func(tile int, w *worker) {
		from, to := b.span(tile)
		if from >= to {
			return
		}
		c := &w.sparse
		c.ptrSlot, c.idxSlot = b.in[0], b.in[1]
		c.check(b.in[2].n, b.in[3].dims[0])
		a := kernel.CSR[T]{Indptr: c.ptr[from : to+1], Indices: c.idx, Values: flat[T](b.in[2])}
		kernel.SparseMatMul(b.isa, flat[T](b.out[0])[from*n:], n, a, flat[T](b.in[3]), n, n)
	}
}

func bindSparseGradRows[T float](b *bound) {
	b.run = func(tile int, w *worker) {
		n := b.out[0].dims[1]
		c := &w.sparse
		c.ptrSlot, c.idxSlot = b.in[0], nil
		c.check(b.in[1].n, 0)
		values, dy, out := flat[T](b.in[1]), flat[T](b.in[2]), flat[T](b.out[0])
		if first, last := int(c.ptr[0]), int(c.ptr[len(c.ptr)-1]); first > 0 || last < len(values) {
			clear(out) // entries of no row
		}
		for r := range len(c.ptr) - 1 {
			for k := int(c.ptr[r]); k < int(c.ptr[r+1]); k++ {
				kernel.Scale(b.isa, out[k*n:(k+1)*n], dy[r*n:(r+1)*n], values[k])
			}
		}
	}
	b.size = func() { b.whole(float64(b.out[0].n) * 12) }
}

func bindSparseGradWeights[T float](b *bound) {
	b.size = func() {
		rows, n := b.out[0].dims[0], b.out[0].dims[1]
		b.cutForThreads(rows, 1, float64(4*n)+float64(b.in[2].n)*float64(4*n)/float64(max(rows, 1))) // each looks at every index
	}
	b.run = func(tile int, w *worker) {
		from, to := b.span(tile)
		rows, n := b.out[0].dims[0], b.out[0].dims[1]
		c := &w.sparse
		c.ptrSlot, c.idxSlot = b.in[0], b.in[1]
		c.check(b.in[2].n, rows)
		out := flat[T](b.out[0])
		clear(out[from*n : to*n])
		a := kernel.CSR[T]{Indptr: c.ptr, Indices: c.idx, Values: flat[T](b.in[2])}
		kernel.SparseMatMulT(b.isa, out, n, a, flat[T](b.in[3]), n, n, from, to)
	}
}

func bindSparseGradValues[T float](b *bound) {
	b.size = func() { b.whole(float64(b.out[0].n) * float64(4*b.in[3].dims[1]+8)) }
	b.run = func(tile int, w *worker) {
		n := b.in[3].dims[1]
		c := &w.sparse
		c.ptrSlot, c.idxSlot = b.in[0], b.in[1]
		c.check(b.in[1].n, b.in[2].dims[0])
		weights, dy, out := flat[T](b.in[2]), flat[T](b.in[3]), flat[T](b.out[0])
		clear(out)
		for r := range len(c.ptr) - 1 {
			for k := int(c.ptr[r]); k < int(c.ptr[r+1]); k++ {
				at := int(c.idx[k]) * n
				out[k] = kernel.Dot(b.isa, weights[at:at+n], dy[r*n:(r+1)*n])
			}
		}
	}
}
