package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// sumOracle adds as reduce.go says, recursively.
func sumOracle[T Float](x []T) T {
	if len(x) <= BlockLen {
		var lane [64]T
		for i, v := range x {
			lane[i%64] += v
		}
		for half := 32; half > 0; half /= 2 {
			for i := range half {
				lane[i] += lane[i+half]
			}
		}
		return lane[0]
	}
	half := BlockLen
	for half*2 < len(x) {
		half *= 2
	}
	return sumOracle(x[:half]) + sumOracle(x[half:])
}

func testReductions[T Float](t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	for _, n := range append(lengths(), 2*BlockLen, 3*BlockLen+5, 7*BlockLen-1) {
		off := r.IntN(17)
		x, y := plain[T](r, n+off)[off:], plain[T](r, n+off)[off:]
		products, exact, size := make([]T, n), 0.0, 0.0
		for i := range x {
			products[i] = x[i] * y[i]
			exact += float64(products[i])
			size += math.Abs(float64(products[i]))
		}
		largest, at := T(math.Inf(-1)), -1
		for i, v := range x {
			if v > largest {
				largest, at = v, i
			}
		}
		for _, isa := range Available() {
			name := fmt.Sprintf("%d elements of %T on %v", n, T(0), isa)
			wantSame(t, "Sum of "+name, []T{Sum(isa, x)}, []T{sumOracle(x)})
			dot := Dot(isa, x, y)
			wantSame(t, "Dot of "+name, []T{dot}, []T{sumOracle(products)})
			if unit := math.Abs(float64(math.Nextafter32(1, 2) - 1)); !(math.Abs(float64(dot)-exact) <= 8*unit*size) {
				t.Errorf("Dot of %s is %v, want %v", name, dot, exact)
			}
			wantSame(t, "SumSquares of "+name, []T{SumSquares(isa, x)}, []T{Dot(isa, x, x)})
			wantSame(t, "MaxOf "+name, []T{MaxOf(isa, x)}, []T{largest})
			if got := ArgMax(isa, x); got != at {
				t.Fatalf("ArgMax of %s is %d, want %d", name, got, at)
			}
			parts := make([]T, (n+BlockLen-1)/BlockLen)
			SumBlocks(isa, parts, x)
			wantSame(t, "FoldSums of "+name, []T{FoldSums(parts)}, []T{Sum(isa, x)})
			if n > 0 {
				z := append([]T(nil), x...)
				k := r.IntN(n)
				z[k] = T(math.NaN())
				if m := MaxOf(isa, z); m == m || ArgMax(isa, z) != k {
					t.Fatalf("of %s with a NaN at %d: MaxOf %v, ArgMax %d", name, k, m, ArgMax(isa, z))
				}
				z[k] = T(math.Inf(1))
				z[n-1] = z[k]
				if m := MaxOf(isa, z); !math.IsInf(float64(m), 1) || ArgMax(isa, z) != k {
					t.Fatalf("of %s with Inf at %d and the end: MaxOf %v, ArgMax %d", name, k, m, ArgMax(isa, z))
				}
				Fill(isa, z, T(math.Copysign(0, -1)))
				if m := MaxOf(isa, z); !same(m, 0) {
					t.Fatalf("of %s, all -0: MaxOf %v, want +0", name, m)
				}
				Fill(isa, z, T(math.Inf(-1)))
				if m := MaxOf(isa, z); !math.IsInf(float64(m), -1) || ArgMax(isa, z) != 0 {
					t.Fatalf("of %s, all -Inf: MaxOf %v", name, m)
				}
			}
		}
	}
}

func TestReductionsF32(t *testing.T) { testReductions[float32](t) }
func TestReductionsF64(t *testing.T) { testReductions[float64](t) }

func TestFoldSumsOfSubtrees(t *testing.T) { // partial sums of 2^k parts fold to the same bits
	r := rand.New(rand.NewPCG(7, 7))
	for n := range 70 {
		parts := plain[float32](r, n)
		want := FoldSums(parts)
		for _, group := range []int{2, 4, 16} {
			var sums []float32
			for i := 0; i < n; i += group {
				sums = append(sums, FoldSums(parts[i:min(n, i+group)]))
			}
			if got := FoldSums(sums); !same(got, want) {
				t.Errorf("%d parts in groups of %d: %v, want %v", n, group, got, want)
			}
		}
	}
}

func TestRowReductions(t *testing.T) {
	x := []float32{1, 2, 3, 9, 5, 5, -1, -1, -2}
	for _, isa := range Available() {
		sums, largest, at := make([]float32, 3), make([]float32, 3), make([]int64, 3)
		RowSums(isa, sums, x, 3)
		RowMax(isa, largest, x, 3)
		RowArgMax(isa, at, x, 3)
		wantSame(t, "RowSums", sums, []float32{6, 19, -4})
		wantSame(t, "RowMax", largest, []float32{3, 9, -1})
		if at[0] != 2 || at[1] != 0 || at[2] != 0 {
			t.Errorf("RowArgMax: %v", at)
		}
	}
}
