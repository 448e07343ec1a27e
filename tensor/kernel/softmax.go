package kernel

import "math"

// Softmax writes e^x / Σ e^x of each row of cols columns. dst may be x.
func Softmax[T Float](isa ISA, dst, x []T, cols int) {
	for ; len(dst) > 0; dst, x = dst[cols:], x[cols:] {
		_, sum := softmaxRow(isa, dst[:cols], x[:cols])
		DivScalar(isa, dst[:cols], dst[:cols], sum)
	}
}

// softmaxRow writes e^(x-max) and returns max and the sum.
func softmaxRow[T Float](isa ISA, e, x []T) (largest, sum T) {
	largest = MaxOf(isa, x)
	AddScalar(isa, e, x, -largest)
	Exp(isa, e, e)
	return largest, Sum(isa, e)
}

// SoftmaxGrad is y · (dy - Σ dy·y) of each row; y is Softmax's output.
func SoftmaxGrad[T Float](isa ISA, dst, dy, y []T, cols int) {
	for ; len(dst) > 0; dst, dy, y = dst[cols:], dy[cols:], y[cols:] {
		s := Dot(isa, dy[:cols], y[:cols])
		for i := range cols {
			dst[i] = y[i] * (dy[i] - s)
		}
	}
}

// SoftmaxCrossEntropy is the loss of each row of logits x against its class, and its gradient:
//
//	loss[r] = w[r] · (log Σ e^x[r,:] - x[r, label[r]])
//	dx[r,c] = w[r] · (softmax(x[r,:])[c] - (c == label[r]))
//
// There are len(labels) rows of cols columns. A nil w is all ones; dx may be nil, and may be x. A label outside [0, cols) is a
// mistake of the program, and panics: readers of data check labels.
func SoftmaxCrossEntropy[T Float](isa ISA, loss, dx, x []T, labels []int32, w []T, cols int) {
	for r, label := range labels {
		row, e := x[r*cols:(r+1)*cols], dx[r*cols:(r+1)*cols]
		at := row[label]
		largest, sum := softmaxRow(isa, e, row)
		wr := T(1)
		if w != nil {
			wr = w[r]
		}
		loss[r] = wr * (T(math.Log(float64(sum))) - (at - largest))
		_ = wr
		for i := range e {
			e[i] = e[i] / sum
		}
		e[label]--
		Scale(isa, e, e, wr)
	}
}

// SigmoidCrossEntropy is, for each element, the loss of logit x against the target y in [0, 1], and its gradient:
//
//	loss[i] = w[i] · (max(x, 0) - x·y + log(1 + e^-|x|))
//	dx[i]   = w[i] · (sigmoid(x) - y)
//
// A nil w is all ones; dx may be nil, and may be x.
func SigmoidCrossEntropy[T Float](isa ISA, loss, dx, x, y, w []T) {
	for i := range loss {
		v, wi := float64(x[i]), T(1)
		if w != nil {
			wi = w[i]
		}
		loss[i] = wi * T(math.Max(v, 0)-v*float64(y[i])+math.Log1p(math.Exp(-math.Abs(v))))
		if dx != nil {
			dx[i] = wi * (T(1/(1+math.Exp(-v))) - y[i])
		}
	}
}
