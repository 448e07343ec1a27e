package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestCase18MaxPool(t *testing.T) {
	x := []float32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	for _, isa := range Available() {
		y, arg, dx := make([]float32, 4), make([]int32, 4), make([]float32, 9)
		s := Pool2D{H: 3, W: 3, C: 1, KH: 2, KW: 2, SH: 1, SW: 1, OH: 2, OW: 2}
		MaxPool(isa, y, arg, x, 1, s)
		wantSame(t, "MaxPool 2×2", y, []float32{5, 6, 8, 9})
		MaxPoolGrad(isa, dx, []float32{1, 2, 3, 4}, arg, 1, s)
		wantSame(t, "its gradient", dx, []float32{0, 0, 0, 0, 1, 2, 0, 3, 4})
	}
}

func TestMaxPoolFirstOfEqualAndNaN(t *testing.T) {
	nan := float32(math.NaN())
	s := Pool2D{H: 2, W: 2, C: 1, KH: 2, KW: 2, SH: 2, SW: 2, OH: 1, OW: 1}
	for _, isa := range Available() {
		for _, c := range []struct {
			x   []float32
			y   float32
			arg int32
		}{
			{[]float32{3, 3, 1, 3}, 3, 0},
			{[]float32{1, 3, 3, 3}, 3, 1},
			{[]float32{1, nan, 5, nan}, nan, 1},
			{[]float32{float32(math.Inf(-1)), -1, -1, -2}, -1, 1},
			{[]float32{0, float32(math.Copysign(0, -1)), 0, 0}, 0, 0},
		} {
			y, arg := make([]float32, 1), make([]int32, 1)
			if MaxPool(isa, y, arg, c.x, 1, s); !same(y[0], c.y) || arg[0] != c.arg {
				t.Errorf("MaxPool of %v on %v is %v at %d, want %v at %d", c.x, isa, y[0], arg[0], c.y, c.arg)
			}
		}
	}
}

func testMaxPool[T Float](t *testing.T) {
	r := rand.New(rand.NewPCG(13, 13))
	for _, s := range []Pool2D{
		{H: 28, W: 28, C: 6, KH: 2, KW: 2, SH: 2, SW: 2, OH: 14, OW: 14},
		{H: 14, W: 14, C: 32, KH: 2, KW: 2, SH: 2, SW: 2, OH: 7, OW: 7},
		{H: 7, W: 5, C: 17, KH: 3, KW: 3, SH: 2, SW: 2, PadTop: 1, PadLeft: 1, OH: 4, OW: 3},
		{H: 4, W: 6, C: 1, KH: 1, KW: 3, SH: 3, SW: 1, OH: 2, OW: 4},
	} {
		const n = 3
		in, out := s.H*s.W*s.C, s.OH*s.OW*s.C
		x := make([]T, n*in)
		for i := range x {
			x[i] = T(r.IntN(9)) - 4 // many are equal
		}
		want, wantArg := make([]T, n*out), make([]int32, n*out)
		for o := range want {
			i, c := o/out, o%s.C
			oh, ow := o%out/s.C/s.OW, o%out/s.C%s.OW
			want[o], wantArg[o] = T(math.Inf(-1)), -1
			for kh := range s.KH {
				for kw := range s.KW {
					h, w := oh*s.SH+kh-s.PadTop, ow*s.SW+kw-s.PadLeft
					if h < 0 || w < 0 || h >= s.H || w >= s.W {
						continue
					}
					if k := (h*s.W+w)*s.C + c; x[i*in+k] > want[o] {
						want[o], wantArg[o] = x[i*in+k], int32(k)
					}
				}
			}
		}
		dy := plain[T](r, n*out)
		wantDx := make([]T, n*in)
		for o, k := range wantArg {
			wantDx[o/out*in+int(k)] += dy[o]
		}
		for _, isa := range Available() {
			y, arg, dx := make([]T, n*out), make([]int32, n*out), plain[T](r, n*in)
			MaxPool(isa, y, arg, x, n, s)
			wantSame(t, "MaxPool", y, want)
			for o := range arg {
				if arg[o] != wantArg[o] {
					t.Fatalf("%+v on %v: result %d is from %d, want %d", s, isa, o, arg[o], wantArg[o])
				}
			}
			MaxPoolGrad(isa, dx, dy, arg, n, s)
			wantSame(t, "MaxPoolGrad", dx, wantDx)
		}
	}
}

func TestMaxPoolF32(t *testing.T) { testMaxPool[float32](t) }
func TestMaxPoolF64(t *testing.T) { testMaxPool[float64](t) }
