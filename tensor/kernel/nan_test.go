package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

func testOneNaN[T Float](t *testing.T, bits func(T) uint64, nans []T, one uint64) {
	r := rand.New(rand.NewPCG(9, 9))
	huge := T(math.Inf(1))
	for _, n := range append(lengths(), 2*BlockLen, 3*BlockLen+5) {
		for _, isa := range Available() {
			for _, many := range []int{0, 1, n} {
				x := plain[T](r, n)
				if n > 2 { // their sum is no number, and they are none to change
					x[0], x[n/2], x[n-1] = huge, -huge, T(math.Copysign(0, -1))
				}
				for range many {
					if n > 0 {
						x[r.IntN(n)] = nans[r.IntN(len(nans))]
					}
				}
				want := make([]uint64, n)
				for i, v := range x {
					if want[i] = bits(v); v != v {
						want[i] = one
					}
				}
				OneNaN(isa, x)
				for i, v := range x {
					if bits(v) != want[i] {
						t.Fatalf("element %d of %d %T on %v, %d NaNs: bits %x, want %x", i, n, v, isa, many, bits(v), want[i])
					}
				}
			}
		}
	}
}

func TestOneNaNF32(t *testing.T) {
	var nans []float32
	for _, b := range []uint32{0x7fc00000, 0xffc00000, 0x7fc00001, 0xffc12345, 0x7fffffff} {
		nans = append(nans, math.Float32frombits(b))
	}
	testOneNaN(t, func(x float32) uint64 { return uint64(math.Float32bits(x)) }, nans, 0x7fc00000)
}

func TestOneNaNF64(t *testing.T) {
	var nans []float64
	for _, b := range []uint64{0x7ff8000000000000, 0xfff8000000000000, 0x7ff8000000000001, 0xfff8000012345678, 0x7fffffffffffffff} {
		nans = append(nans, math.Float64frombits(b))
	}
	testOneNaN(t, math.Float64bits, nans, 0x7ff8000000000000)
}
