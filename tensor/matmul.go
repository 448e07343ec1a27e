package tensor

import (
	"fmt"
	"sync"

	"github.com/trivium-ml/trivium/tensor/kernel"
)

// An Epilogue is what is done to a product before it is stored: dst = Act(product + Bias), or, with Accumulate, dst + product where the
// product alone stands. Its zero value stores the product.
type Epilogue struct {
	Bias       *Tensor // one value for each column; nil: none
	Act        kernel.Activation
	Accumulate bool
}

// MatMulTo writes op(a)·op(b) to dst; op transposes where ta or tb is set. All are matrices of F32, or all of F64. dst must not share
// memory with a, b or the bias. The cut into tiles does not change the bits.
func (c *CPU) MatMulTo(dst, a, b *Tensor, ta, tb bool, ep Epilogue) error {
	for _, t := range []*Tensor{dst, a, b} {
		if t.Rank() != 2 || !t.dt.Float() || t.dt != dst.dt {
			return fmt.Errorf("tensor: matmul of %v%v and %v%v to %v%v: want three matrices of f32, or of f64", a.dt, a.shape, b.dt, b.shape, dst.dt, dst.shape)
		}
	}
	m, k := a.shape[0], a.shape[1]
	if ta {
		m, k = k, m
	}
	kb, n := b.shape[0], b.shape[1]
	if tb {
		kb, n = n, kb
	}
	if k != kb || dst.shape[0] != m || dst.shape[1] != n {
		return fmt.Errorf("tensor: matmul of %v (transposed: %v) and %v (transposed: %v) to %v: want m×k, k×n and m×n", a.shape, ta, b.shape, tb, dst.shape)
	}
	if ep.Bias != nil && (ep.Bias.dt != dst.dt || ep.Bias.Len() != n) {
		return fmt.Errorf("tensor: matmul to %v%v: the bias is %v%v, want one %v for each column", dst.dt, dst.shape, ep.Bias.dt, ep.Bias.shape, dst.dt)
	}
	if dst.dt == F32 {
		matMul[float32](c, m, n, k, dst, a, b, ta, tb, ep)
	} else {
		matMul[float64](c, m, n, k, dst, a, b, ta, tb, ep)
	}
	return nil
}

func matMul[T kernel.Float](c *CPU, m, n, k int, dst, a, b *Tensor, ta, tb bool, ep Epilogue) {
	if m == 0 || n == 0 {
		return
	}
	x, y, z := Flat[T](a), Flat[T](b), Flat[T](dst)
	lda, ldb := a.shape[1], b.shape[1]
	var bias []T
	if ep.Bias != nil {
		bias = Flat[T](ep.Bias)
	}
	isa, pool := c.parts()
	rows, cols := kernel.GemmTiles(m, n, k, pool.Threads())
	across := (n + cols - 1) / cols
	spaces := new(sync.Pool) // workspaces, which keep their packing buffers
	if c != nil {
		spaces = &c.spaces[dst.dt-F32]
	}
	pool.Run((m+rows-1)/rows*across, func(tile, _ int) {
		w, _ := spaces.Get().(*kernel.Workspace[T])
		if w == nil {
			w = new(kernel.Workspace[T])
		}
		defer spaces.Put(w)
		i, j := tile/across*rows, tile%across*cols
		mi, nj := min(rows, m-i), min(cols, n-j)
		e := kernel.Epilogue[T]{Act: ep.Act, Accumulate: ep.Accumulate}
		if bias != nil {
			e.Bias = bias[j : j+nj]
		}
		at, bt := i*lda, j
		if ta {
			at = i
		}
		if tb {
			bt = j * ldb
		}
		if k == 0 {
			at, bt = 0, 0
		}
		kernel.Gemm(isa, ta, tb, mi, nj, k, x[at:], lda, y[bt:], ldb, z[i*n+j:], n, e, w)
	})
}
