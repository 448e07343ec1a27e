package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// TestAxpyDot: the weights have the bits of Axpy, and the sum is that of float64 but for what rounding makes of it.
func TestAxpyDot(t *testing.T) {
	for isa := Go; isa <= Best(); isa++ {
		for _, n := range []int{0, 1, 63, 64, 65, 128, 700, 10_000} {
			t.Run(fmt.Sprintf("%v/%d", isa, n), func(t *testing.T) {
				r := rand.New(rand.NewPCG(1, uint64(n)))
				y, x, z := make([]float32, n+1), make([]float32, n), make([]float32, n)
				for i := range n {
					y[i], x[i], z[i] = r.Float32()-0.5, r.Float32()-0.5, r.Float32()-0.5
				}
				y[n] = 7
				want, sum, most := append([]float32(nil), y...), 0.0, 0.0
				Axpy(isa, want[:n], 0.3, x)
				for i := range n {
					sum += float64(want[i]) * float64(z[i])
					most += math.Abs(float64(want[i]) * float64(z[i]))
				}
				got := float64(AxpyDot(isa, y[:n], 0.3, x, z))
				if math.Abs(got-sum) > 1e-5*most {
					t.Errorf("the sum is %v, want %v", got, sum)
				}
				for i := range y {
					if y[i] != want[i] {
						t.Fatalf("cell %d is %v, want %v", i, y[i], want[i])
					}
				}
			})
		}
	}
}
