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
