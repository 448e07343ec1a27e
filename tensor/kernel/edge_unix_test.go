//go:build unix

package kernel

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"unsafe"
)

// fenced is memory for n float32s between pages that may not be touched: at the first byte after one, or at the last before the other.
func fenced(t *testing.T, n int, last bool) []float32 {
	t.Helper()
	page := syscall.Getpagesize()
	room := (4*n + page - 1) / page * page
	m, err := syscall.Mmap(-1, 0, room+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Skip("no memory of its own: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	for _, edge := range [][]byte{m[:page], m[page+room:]} {
		if err := syscall.Mprotect(edge, syscall.PROT_NONE); err != nil {
			t.Skip("no protected memory: ", err)
		}
	}
	at := page
	if last {
		at = page + room - 4*n
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&m[at])), n)
}

// TestSoftmaxNarrowEdges: rows are read ahead and out of step, and neither before the first nor past the last.
func TestSoftmaxNarrowEdges(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for _, isa := range Available() {
		for cols := 1; cols <= maxNarrow; cols++ {
			for _, rows := range []int{1, 8, 16, 32, 33, 48, 160} {
				want, loss := make([]float32, rows*cols), make([]float32, rows)
				labels := make([]int32, rows)
				for i := range labels {
					labels[i] = int32(r.IntN(cols))
				}
				for _, last := range []bool{false, true} {
					x, dx := fenced(t, rows*cols, last), fenced(t, rows*cols, last)
					for i := range x {
						x[i] = float32(r.NormFloat64())
					}
					SoftmaxCrossEntropy(GoExact, loss, want, x, labels, nil, cols)
					SoftmaxCrossEntropy(isa, loss, dx, x, labels, nil, cols)
					wantSame(t, "gradient", dx, want)
				}
			}
		}
	}
}

// TestProductEdges: no operand of a product or a convolution is read or written past its last element.
func TestProductEdges(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	const most = 80 * 80
	var mem [4][]float32 // of A, B, C and the bias
	for i := range mem {
		mem[i] = fenced(t, most, true)
		for j := range mem[i] {
			mem[i][j] = float32(r.NormFloat64())
		}
	}
	last := func(i, n int) []float32 { return mem[i][most-n:] }
	var w Workspace[float32]
	want := make([]float32, most)
	for _, isa := range Available() {
		if isa < AVX2 { // slices see to it
			continue
		}
		for _, m := range []int{1, 5, 14, 29, 64} {
			for n := 1; n <= 70; n++ {
				for form := range 4 {
					k := 1 + (n+m+form)%23
					ta, tb := form&1 != 0, form&2 != 0
					lda, ldb := k, n
					if ta {
						lda = m
					}
					if tb {
						ldb = k
					}
					a, b, c, ep := last(0, m*k), last(1, k*n), last(2, m*n), Epilogue[float32]{Bias: last(3, n)}
					Gemm(GoExact, ta, tb, m, n, k, a, lda, b, ldb, want, n, ep, &w)
					Gemm(isa, ta, tb, m, n, k, a, lda, b, ldb, c, n, ep, &w)
					wantSame(t, "product", c, want[:m*n])
					if !tb {
						GemmZeros(isa, ta, m, n, k, a, lda, b, ldb, c, n, ep, &w)
						wantSame(t, "product without zeros", c, want[:m*n])
					}
				}
			}
		}
		for f := 1; f <= 70; f++ {
			s := validConv(2, 6, 5, 2, 3, 3, f, 1, 1)
			x, filter, y := last(0, s.N*s.H*s.W*s.C), last(1, s.KH*s.KW*s.C*f), last(2, s.N*s.OH*s.OW*f)
			Conv2D(GoExact, &s, x, filter, want, 0, s.N*s.OH, Epilogue[float32]{}, &w)
			Conv2D(isa, &s, x, filter, y, 0, s.N*s.OH, Epilogue[float32]{}, &w)
			wantSame(t, "convolution", y, want[:len(y)])
			dfilter, rows := last(1, len(filter)), s.KH*s.KW*s.C
			Conv2DFilter(GoExact, &s, x, y, want, 0, rows, &w)
			Conv2DFilter(isa, &s, x, y, dfilter, 0, rows, &w)
			wantSame(t, "gradient of the filter", dfilter, want[:len(dfilter)])
		}
	}
}
