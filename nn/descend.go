package nn

import (
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// Descend takes a step of plain gradient descent for each row of b, in their order, and returns the sums of loss and weight, each row's
// before its step; no gradient is written. The steps of a few dense rows, while these are in the cache, and the margins of the next, which
// come from memory meanwhile, are one pass over the weights.
func (m *linear) Descend(p trivium.Params, b trivium.Batch, rate float32) (lossSum, weightSum float64, err error) {
	if err := m.begin(p, b); err != nil {
		return 0, 0, err
	}
	m.rows.grow(b.Rows)
	m.rows.labels = b.Labels
	if err := m.loss.targets(m.rows.target, &m.rows.labels); err != nil {
		return 0, 0, err
	}
	x, w := m.call.x, m.call.w
	if x.Rows != nil { // blocks wants them one after the other
		near := trivium.Input{Values: slices.Grow(m.near[:0], b.Rows*len(w))}
		for _, row := range x.Rows {
			near.Values = append(near.Values, row...)
		}
		x, m.near = &near, near.Values
	}
	d := descent{m, b.Weights, p.Tensor(1), rate}
	at := 0
	if m.in.Form == trivium.Dense {
		at = d.blocks(x.Values, w, b.Rows)
	}
	for r := at; r < b.Rows; r++ {
		if m.in.Form == trivium.CSR {
			lo, hi := x.Ptr[r], x.Ptr[r+1]
			row := x.Values[lo:hi]
			if step := d.step(r, kernel.SparseDot(x.Index[lo:hi], row, w)); step != 0 {
				for i, c := range x.Index[lo:hi] {
					w[c] += float32(step * row[i])
				}
			}
			continue
		}
		row := x.Values[r*len(w) : (r+1)*len(w)]
		if step := d.step(r, kernel.Dot(m.cpu.ISA, w, row)); step != 0 {
			kernel.Axpy(m.cpu.ISA, w, step, row)
		}
	}
	return sum64(m.rows.loss), b.WeightSum(), nil
}

// A descent is a call of Descend.
type descent struct {
	m       *linear
	weights []float32
	bias    []float32
	rate    float32
}

// blocks takes the steps of the first rows, in blocks of as many as a kernel takes, and returns how many.
func (d *descent) blocks(x, w []float32, rows int) (taken int) {
	const block = kernel.AxpyRows
	isa, size := d.m.cpu.ISA, block*len(w)
	var steps [block]float32 // of the block before
	for ; taken+block <= rows; taken += block {
		at := taken * len(w)
		dots := kernel.AxpyDots(isa, w, &steps, x[max(0, at-size):], x[at:])
		pair := 0
		for i := range block {
			steps[i] = d.step(taken+i, dots.Row[i])
			for j := i + 1; j < block; j++ { // the margin of row j after this step
				dots.Row[j] += steps[i] * dots.Pair[pair]
				pair++
			}
		}
	}
	if taken > 0 { // the last block's steps, for whatever products
		last := x[taken*len(w)-size:]
		kernel.AxpyDots(isa, w, &steps, last, last)
	}
	return taken
}

// step notes the loss of row r, at a margin of dot and the bias, takes the bias's step, and returns what the row is to be added to the weights by.
func (d *descent) step(r int, dot float32) float32 {
	loss, z := d.m.rows.loss[r:r+1], d.m.rows.deriv[r:r+1]
	if d.weights != nil && d.weights[r] == 0 { // its mean gradient is none
		loss[0] = 0
		return 0
	}
	z[0] = dot + d.bias[0]
	d.m.loss.point(loss, z, z, d.m.rows.target[r:r+1], nil) // of one row the mean is not weighted
	if d.weights != nil {
		loss[0] *= d.weights[r]
	}
	step := -d.rate * z[0]
	d.bias[0] += step
	return step
}
