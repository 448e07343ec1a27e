package kernel

// FactorSums is what a row of a has of the factors of its columns (Rendle, "Factorization Machines", ICDM 2010, lemma 3.1): dst has 2k cells a
// row, Σ Values[e] · v[Indices[e],f] for each of the k factors f, and after them Σ (Values[e] · v[Indices[e],f])², each in ascending e from zero.
// Any cut by rows gives the same bits.
func FactorSums(isa ISA, dst []float32, a CSR[float32], v []float32, k int) {
	for r := range a.Rows() {
		idx, val := a.Row(r)
		row := dst[2*k*r:][:2*k]
		if isa >= AVX2 && k > 0 && len(idx) > 0 && len(idx)*k <= shortCall {
			checkRows(idx, len(v)/k-1)
			factorRowF32(isa, &row[0], &v[0], &val[0], &idx[0], len(idx), k)
			continue
		}
		clear(row)
		sums, squares := row[:k], row[k:]
		for e, c := range idx {
			for f, v := range v[int(c)*k:][:k] {
				p := float32(v * val[e])
				sums[f] += p
				squares[f] += float32(p * p)
			}
		}
	}
}

// FactorGrads adds the gradient of v where the derivative of row r's score is deriv[r] and its sums are those of FactorSums: gv[c,f] +=
// deriv[r] · x · (sums[r,f] − v[c,f] · x) for each value x of column c, rows ascending. As SparseMatMulT it serves only columns in [from, to).
func FactorGrads(isa ISA, gv []float32, a CSR[float32], deriv, sums, v []float32, k, from, to int) {
	if k == 0 || from >= to {
		return
	}
	_, _ = gv[from*k:to*k], v[from*k:to*k]
	s := factorScatter{n: k, from: from, count: to - from}
	for r, d := range deriv {
		idx, val := a.Row(r)
		sums := sums[2*k*r:][:k]
		switch {
		case len(idx) == 0:
		case isa >= AVX2 && len(idx)*k <= shortCall:
			s.terms, s.deriv = len(idx), d
			factorScatterF32(isa, &gv[0], &sums[0], &v[0], &val[0], &idx[0], &s)
		default:
			for e, c := range idx {
				if from <= int(c) && int(c) < to {
					dx := float32(d * val[e])
					v, gv := v[int(c)*k:][:k], gv[int(c)*k:][:k]
					for f, sum := range sums {
						gv[f] += float32(dx * (sum - float32(v[f]*val[e])))
					}
				}
			}
		}
	}
}

// A factorScatter is one row's terms, and which columns are served. The assembly knows its layout.
type factorScatter struct {
	terms, n, from, count int
	deriv                 float32
}
