package nn

import (
	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// Descend takes a step of plain gradient descent for each row of b, in their order, and returns the sums of loss and weight, each row's
// before its step. A row's step, while it is in the cache, and the margin of the next, which comes from memory meanwhile, are one pass over
// the weights; no gradient is written.
func (m *linear) Descend(p trivium.Params, b trivium.Batch, rate float32) (lossSum, weightSum float64, err error) {
	if err := m.begin(p, b); err != nil {
		return 0, 0, err
	}
	m.rows.grow(b.Rows)
	m.rows.labels = b.Labels
	if err := m.loss.targets(m.rows.target, &m.rows.labels); err != nil {
		return 0, 0, err
	}
	x, w, bias := m.call.x, m.call.w, p.Tensor(1)
	loss, deriv := m.rows.loss, m.rows.deriv
	next, ahead := -1, float32(0) // a row whose margin, but for the bias, is known
	for r := range b.Rows {
		if b.Weights != nil && b.Weights[r] == 0 { // its mean gradient is none
			loss[r] = 0
			continue
		}
		var row []float32
		var index []int32
		z := deriv[r : r+1]
		if m.in.Form == trivium.CSR {
			lo, hi := x.Ptr[r], x.Ptr[r+1]
			index, row = x.Index[lo:hi], x.Values[lo:hi]
			z[0] = kernel.SparseDot(index, row, w) + bias[0]
		} else {
			row = x.Values[r*len(w) : (r+1)*len(w)]
			if next != r {
				ahead = kernel.Dot(m.cpu.ISA, w, row)
			}
			z[0] = ahead + bias[0]
		}
		m.loss.point(loss[r:r+1], z, z, m.rows.target[r:r+1], nil) // of one row the mean is not weighted
		step := -rate * z[0]
		if b.Weights != nil {
			loss[r] *= b.Weights[r]
		}
		if step == 0 {
			continue
		}
		bias[0] += step
		if m.in.Form == trivium.CSR {
			for i, c := range index {
				w[c] += float32(step * row[i])
			}
			continue
		}
		if next = r + 1; next < b.Rows {
			ahead = kernel.AxpyDot(m.cpu.ISA, w, step, row, x.Values[next*len(w):(next+1)*len(w)])
		} else {
			kernel.Axpy(m.cpu.ISA, w, step, row)
		}
	}
	return sum64(loss), b.WeightSum(), nil
}
