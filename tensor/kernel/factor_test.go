package kernel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFactors: sums and gradients are those of the formula, to the bit, however rows and columns are cut.
func TestFactors(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	const rows, cols = 9, 7
	for _, k := range []int{1, 3, 7, 8, 9, 15, 16, 17, 40} {
		a, _ := sparse[float32](r, rows, cols)
		a.Indices, a.Values = slices.Insert(a.Indices, 0, 99, 99), slices.Insert(a.Values, 0, 1, 1) // not of these rows
		for i := range a.Indptr {
			a.Indptr[i] += 2
		}
		v, gv, deriv := plain[float32](r, cols*k), plain[float32](r, cols*k), plain[float32](r, rows)
		start := slices.Clone(gv)
		sums := make([]float32, 2*rows*k)
		for i := range rows {
			s := sums[2*k*i:]
			for e := a.Indptr[i]; e < a.Indptr[i+1]; e++ {
				for f := range k {
					p := float32(v[int(a.Indices[e])*k+f] * a.Values[e])
					s[f] += p
					s[k+f] += float32(p * p)
				}
			}
			for e := a.Indptr[i]; e < a.Indptr[i+1]; e++ {
				x, dx := a.Values[e], float32(deriv[i]*a.Values[e])
				for f := range k {
					at := int(a.Indices[e])*k + f
					gv[at] += float32(dx * (s[f] - float32(v[at]*x)))
				}
			}
		}
		for _, isa := range Available() {
			name := fmt.Sprintf("%d factors on %v", k, isa)
			got := make([]float32, 2*rows*k+1)
			FactorSums(isa, got, CSR[float32]{a.Indptr[:5], a.Indices, a.Values}, v, k)
			FactorSums(isa, got[2*4*k:], CSR[float32]{a.Indptr[4:], a.Indices, a.Values}, v, k)
			wantSame(t, "sums, "+name, got, append(slices.Clone(sums), 0))
			grad := slices.Clone(start)
			for _, cut := range [][2]int{{3, cols}, {1, 3}, {0, 1}, {5, 5}} {
				FactorGrads(isa, grad, a, deriv, sums, v, k, cut[0], cut[1])
			}
			wantSame(t, "gradient, "+name, grad, gv)
		}
	}
}

// TestFactorsLongRow: a row longer than one call of assembly takes.
func TestFactorsLongRow(t *testing.T) {
	const terms, cols, k = shortCall/2 + 1, 3, 2
	a := CSR[float32]{Indptr: []int64{0, terms}}
	for e := range terms {
		a.Indices, a.Values = append(a.Indices, int32(e%cols)), append(a.Values, float32(e%5))
	}
	v := []float32{1, -2, 3, 0.5, 0.25, 7}
	want, wantGrad := make([]float32, 2*k), make([]float32, cols*k)
	FactorSums(Go, want, a, v, k)
	FactorGrads(Go, wantGrad, a, []float32{0.5}, want, v, k, 0, cols)
	for _, isa := range Available() {
		got, grad := make([]float32, 2*k), make([]float32, cols*k)
		FactorSums(isa, got, a, v, k)
		FactorGrads(isa, grad, a, []float32{0.5}, want, v, k, 0, cols)
		wantSame(t, fmt.Sprint("sums on ", isa), got, want)
		wantSame(t, fmt.Sprint("gradient on ", isa), grad, wantGrad)
	}
}

// TestFactorsColumnOutside: a column that v does not have is a mistake of the program, and of the gradient is in nobody's range.
func TestFactorsColumnOutside(t *testing.T) {
	for _, isa := range Available() {
		for _, column := range []int32{-1, 2} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("column %d on %v: no panic", column, isa)
					}
				}()
				FactorSums(isa, make([]float32, 6), CSR[float32]{[]int64{0, 1}, []int32{column}, []float32{1}}, make([]float32, 6), 3)
			}()
			grad := make([]float32, 6)
			FactorGrads(isa, grad, CSR[float32]{[]int64{0, 1}, []int32{column}, []float32{1}}, []float32{1}, make([]float32, 6), make([]float32, 6), 3, 0, 2)
			wantSame(t, "gradient", grad, make([]float32, 6))
		}
	}
}
