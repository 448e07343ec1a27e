package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestAxpyDots: the weights have the bits of as many calls of Axpy, the sums are those of float64 but for what rounding makes of them, and
// nothing beyond the rows is touched.
func TestAxpyDots(t *testing.T) {
	for isa := Go; isa <= Best(); isa++ {
		for _, cols := range []int{0, 1, 15, 16, 17, 48, 700, 10_000} {
			t.Run(fmt.Sprintf("%v/%d", isa, cols), func(t *testing.T) {
				r := rand.New(rand.NewPCG(1, uint64(cols)))
				random := func(n int) []float32 {
					x := make([]float32, n)
					for i := range x {
						x[i] = r.Float32() - 0.5
					}
					return x
				}
				y, rows := random(cols+1), random(2*AxpyRows*cols)
				x, z := rows[:AxpyRows*cols], rows[AxpyRows*cols:]
				alpha := [AxpyRows]float32{0.3, -2, 0, 1}
				want, kept := slices.Clone(y), slices.Clone(rows)
				for i, a := range alpha {
					Axpy(isa, want[:cols], a, x[i*cols:(i+1)*cols])
				}
				got := AxpyDots(isa, y[:cols], &alpha, x, z)
				if !slices.Equal(y, want) || !slices.Equal(rows, kept) {
					t.Error("the weights are not those of Axpy, or the rows have changed")
				}
				near := func(what string, got float32, a, b []float32) {
					t.Helper()
					var sum, most float64
					for i := range a {
						sum += float64(a[i]) * float64(b[i])
						most += math.Abs(float64(a[i]) * float64(b[i]))
					}
					if !(math.Abs(float64(got)-sum) <= 1e-5*most) {
						t.Errorf("%s is %v, want %v", what, got, sum)
					}
				}
				pair := 0
				for i := range AxpyRows {
					zi := z[i*cols : (i+1)*cols]
					near(fmt.Sprintf("row %d with the weights", i), got.Row[i], want[:cols], zi)
					for j := i + 1; j < AxpyRows; j++ {
						near(fmt.Sprintf("row %d with row %d", i, j), got.Pair[pair], zi, z[j*cols:(j+1)*cols])
						pair++
					}
				}
			})
		}
	}
}
