package elementary_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/trivium-ml/trivium/internal/elementary"
)

// TestPow: f to the power k/4, to the power 4, is f to the power k.
func TestPow(t *testing.T) {
	power := func(x float64, n int) *big.Float {
		y := number(1)
		for range n {
			y.Mul(y, number(x))
		}
		return y
	}
	for _, f := range []float64{0, 1e-10, 0.1, 0.5, 0.9, 0.999, 1} {
		for k := range 40 {
			got := elementary.Pow(f, float64(k)/4)
			want := power(f, k)
			if k == 0 || k == 4 || f == 0 || f == 1 {
				if x := map[bool]float64{true: 1, false: f}[k == 0]; got != x {
					t.Errorf("%v to the power %v is %v", f, float64(k)/4, got)
				}
				continue
			}
			off := power(got, 4)
			off.Sub(off.Quo(off, want), number(1))
			if x, _ := off.Float64(); !(math.Abs(x) <= 4*0x1p-52*(1+float64(k)/8)) {
				t.Errorf("%v to the power %v is %v: %v of it off", f, float64(k)/4, got, x/4)
			}
		}
	}
	for _, c := range []struct {
		f, t float64
		bits uint64
	}{{0.999, 1.0 / 3, 0x3feffd44b7580664}, {0.99, 0.8, 0x3fefbe65f076345d}, {0.1, 7.3, 0x3e6ae843cfb8a8e4}} { // as TestSameBits
		if got := math.Float64bits(elementary.Pow(c.f, c.t)); got != c.bits {
			t.Errorf("%v to the power %v is %#x, want %#x", c.f, c.t, got, c.bits)
		}
	}
}
