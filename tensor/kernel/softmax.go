package kernel

import (
	"unsafe"

	"github.com/trivium-ml/trivium/internal/elementary"
)

// Softmax writes e^x / Σ e^x of each row of cols columns. The largest x of a row is subtracted first, so nothing overflows. dst may
// be x.
func Softmax[T Float](isa ISA, dst, x []T, cols int) {
	if cols == 0 {
		return
	}
	if isNarrow[T](isa, cols) {
		softmaxNarrow(isa, nil, as32(dst), as32(x), nil, nil, len(dst)/cols, cols)
		return
	}
	var largest, sum [rowGroup]T
	for len(dst) > 0 {
		n := min(groupRows(cols), len(dst)/cols)
		expRows(isa, dst[:n*cols], x, largest[:n], sum[:n], cols)
		ScalarDiv(isa, sum[:n], sum[:n], 1)
		scaleRows(isa, dst[:n*cols], dst, sum[:n], cols)
		dst, x = dst[n*cols:], x[n*cols:]
	}
}

// SoftmaxGrad is y · (dy - Σ dy·y) of each row; y is Softmax's output.
func SoftmaxGrad[T Float](isa ISA, dst, dy, y []T, cols int) {
	for ; len(dst) > 0; dst, dy, y = dst[cols:], dy[cols:], y[cols:] {
		s := Dot(isa, dy[:cols], y[:cols])
		if isa >= AVX2 {
			if single[T]() {
				softmaxGradF32(isa, as32(dst[:cols]), as32(dy), as32(y), float32(s))
			} else {
				softmaxGradF64(isa, as64(dst[:cols]), as64(dy), as64(y), float64(s))
			}
			continue
		}
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
	if len(labels) == 0 { // nor need there be columns
		return
	}
	whole := len(labels) * cols
	if isNarrow[T](isa, cols) {
		if dx != nil {
			dx = dx[:whole]
		}
		softmaxNarrow(isa, as32(loss), as32(dx), as32(x), labels, as32(w), len(labels), cols)
		return
	}
	if dx == nil {
		var scratch [BlockLen]T
		softmaxLoss(isa, loss, nil, x, labels, w, cols, scratch[:])
		return
	}
	if single[T]() && isa >= AVX2 && cols >= 256 && cols <= BlockLen && streams(2*whole, 4) {
		entropyStream(isa, as32(loss), as32(dx), as32(x), labels, as32(w), cols)
		return
	}
	softmaxLoss(isa, loss, dx[:whole], x, labels, w, cols, nil)
}

// softmaxLoss keeps the exponentials in dx until they are scaled, or in scratch if there is no dx.
func softmaxLoss[T Float](isa ISA, loss, dx, x []T, labels []int32, w []T, cols int, scratch []T) {
	var largest, sum, at [rowGroup]T
	for len(labels) > 0 {
		n := min(groupRows(cols), len(labels))
		pick(at[:n], x, labels, cols) // dx may be x
		if dx == nil {
			sumExpRows(isa, scratch, x, largest[:n], sum[:n], cols)
		} else {
			expRows(isa, dx[:n*cols], x, largest[:n], sum[:n], cols)
		}
		rowLosses(isa, loss[:n], sum[:n], at[:n], largest[:n], w)
		if dx != nil {
			scales(isa, sum[:n], w)
			scaleRows(isa, dx[:n*cols], dx, sum[:n], cols)
			for r, label := range labels[:n] {
				i, hit := r*cols+int(label), T(1)
				if w != nil {
					hit = w[r]
				}
				dx[i] -= hit
			}
			dx = dx[n*cols:]
		}
		if w != nil {
			w = w[n:]
		}
		loss, x, labels = loss[n:], x[n*cols:], labels[n:]
	}
}

// rowLosses is the loss of rows from the logits at their labels, the largest, and the sums of exponentials.
func rowLosses[T Float](isa ISA, loss, sum, at, largest, w []T) {
	Log(isa, loss, sum)
	Sub(isa, at, at, largest)
	Sub(isa, loss, loss, at)
	if w != nil {
		Mul(isa, loss, loss, w)
	}
}

// expScale is what the assembly of that name takes: a row of cols elements, the largest of which is in largest; the sum of its
// exponentials is found, and in later the largest of the row at next. Meanwhile the row before is multiplied by k, the 1 at its label is
// subtracted (or its weight), and the result is written past the cache: whole vectors, in turns of 64 elements, and the rest. What is left
// is in carry, and begins the first vector of the row after it.
type expScale struct {
	cols          int
	carried       int // elements in carry, of the row before that
	before, after int // turns but that with the label, or some turn if there is none; after < 0: no turn at all
	rest          int // elements after the turns
	next          unsafe.Pointer
	carry         unsafe.Pointer

	first, turn, tail unsafe.Pointer // what is subtracted in the first vector, the turn, and the rest

	k, largest, sum, later float32
}

// A hit is a row of zeros, but for what is subtracted at the label.
type hit [hitAt + 80]float32

const hitAt = 80 // as much as is read at once, so that it may be before, at and after that

// from is what to subtract from elements that begin at i, if the label is among them, and else zeros.
func (h *hit) from(i, label int) unsafe.Pointer {
	if d := i - label; -hitAt < d && d <= 0 {
		return unsafe.Pointer(&h[hitAt+d])
	}
	return unsafe.Pointer(&h[0])
}

// place sets the turns for a row of results with that label, of which the first elements are written apart.
func (s *expScale) place(h *hit, first, label, lanes int) {
	turns := (s.cols - first) / 64
	s.rest = s.cols - first - 64*turns
	s.before = max(0, min(label-first, 64*turns-1)) / 64
	s.after = turns - 1 - s.before
	s.first = h.from(first-lanes, label)
	s.turn = h.from(first+64*s.before, label)
	s.tail = h.from(first+64*turns, label)
}

// entropyStream is SoftmaxCrossEntropy with a gradient too large for cache. Exponentials are kept in scratch, of this row and the one
// before, which is scaled meanwhile. The largest elements are found two rows ahead, so that the processor need not wait for them. Every
// line of dx but the first and the last is written once, and as a whole: a store to a line that is not in cache would wait for memory,
// and all stores after it would.
func entropyStream(isa ISA, loss, dx, x []float32, labels []int32, w []float32, cols int) {
	if len(labels) == 0 {
		return
	}
	lanes := 16
	if isa != AVX512 {
		lanes = 8
	}
	const row = BlockLen + 32 // elements of scratch: whole vectors are read, before the first element and past the last
	var memory [2*row + 48]float32
	var hot hit
	scratch := memory[misaligned(memory[:])+16:]
	carry := scratch[2*row:][:16]
	var at, largest, sum [rowGroup]float32
	last := len(labels) - 1
	s := expScale{cols: cols, carry: unsafe.Pointer(&carry[0]), after: -1}
	s.first, s.turn, s.tail = hot.from(0, 0), hot.from(0, 0), hot.from(0, 0)
	s.later, _ = blockMaxF32(isa, &x[0], cols) // a NaN makes the sum one
	later, _ := blockMaxF32(isa, &x[min(1, last)*cols], cols)
	prev, begin := dx[:cols], 0          // the row before, and where its first vector begins that has not been written
	for base := 0; base < len(labels); { // groups of rows whose losses are computed at once
		n := min(rowGroup, len(labels)-base)
		for r := range n {
			i, cur, before := base+r, scratch[(base+r)%2*row:][:cols], scratch[(base+r+1)%2*row:]
			from := x[i*cols : (i+1)*cols]
			label := int(labels[i])
			s.largest = s.later
			at[r], largest[r] = from[label], s.largest
			s.next = unsafe.Pointer(&x[min(i+2, last)*cols])
			expScaleF32(isa, &cur[0], &from[0], &prev[begin], &before[begin], &s)
			s.later, later = later, s.later
			hot[hitAt] = 1
			if w != nil {
				hot[hitAt] = w[i]
			}
			sum[r], s.k = s.sum, hot[hitAt]/s.sum
			prev = dx[i*cols : (i+1)*cols]
			first := misaligned(prev) % lanes
			s.carried, begin = (lanes-first)%lanes, 0
			if i == 0 { // what precedes dx in its vector is not ours
				s.carried, begin = 0, first
				for c, e := range cur[:first] {
					prev[c] = float32(e * s.k)
				}
				if label < first {
					prev[label] -= hot[hitAt]
				}
			}
			s.place(&hot, first, label, lanes)
		}
		var weights []float32
		if w != nil {
			weights = w[base : base+n]
		}
		rowLosses(isa, loss[base:base+n], sum[:n], at[:n], largest[:n], weights)
		base += n
	}
	copy(dx[last*cols-s.carried:], carry[:s.carried])
	Scale(isa, prev, scratch[last%2*row:][:cols], s.k)
	prev[labels[last]] -= hot[hitAt]
	fence()
}

// pick is at[r] = x[r, labels[r]].
func pick[T Float](at, x []T, labels []int32, cols int) {
	for r := range at {
		at[r] = x[r*cols : (r+1)*cols][labels[r]]
	}
}

// Rows are taken in groups that stay in first-level cache between the passes over them.
const rowGroup = 64

func groupRows(cols int) int { return max(1, min(rowGroup, BlockLen/cols)) }

// scales turns the sums of rows into what their exponentials are multiplied by: w / sum.
func scales[T Float](isa ISA, sum, w []T) {
	if w == nil {
		ScalarDiv(isa, sum, sum, 1)
	} else {
		Div(isa, sum, w, sum)
	}
}

// expRows writes e^(x-max) of each row, the largest x and Sum of what it wrote. If there is a NaN, the sum is NaN.
func expRows[T Float](isa ISA, e, x, largest, sum []T, cols int) {
	x = x[:len(e)]
	if isa >= AVX2 && single[T]() && cols <= BlockLen {
		expRowsF32(isa, &as32(e)[0], &as32(x)[0], &as32(largest)[0], &as32(sum)[0], len(sum), cols)
		return
	}
	for r := range sum {
		row, out := x[r*cols:(r+1)*cols], e[r*cols:(r+1)*cols]
		largest[r] = MaxOf(isa, row)
		AddScalar(isa, out, row, -largest[r])
		Exp(isa, out, out)
		sum[r] = Sum(isa, out)
	}
}

// sumExpRows is expRows that does not keep what it sums. scratch has BlockLen elements.
func sumExpRows[T Float](isa ISA, scratch, x, largest, sum []T, cols int) {
	if n := len(sum) * cols; n <= len(scratch) {
		expRows(isa, scratch[:n], x, largest, sum, cols)
		return
	}
	for r := range sum {
		row := x[r*cols : (r+1)*cols]
		largest[r] = MaxOf(isa, row)
		var t tree[T]
		for ; len(row) > 0; row = row[min(BlockLen, len(row)):] {
			e := scratch[:min(BlockLen, len(row))]
			AddScalar(isa, e, row[:len(e)], -largest[r])
			Exp(isa, e, e)
			t.add(blockSum(isa, e))
		}
		sum[r] = t.sum()
	}
}

// scaleRows multiplies each row by its k.
func scaleRows[T Float](isa ISA, dst, e, k []T, cols int) {
	e = e[:len(dst)]
	if isa >= AVX2 && single[T]() && cols <= BlockLen {
		scaleRowsF32(isa, &as32(dst)[0], &as32(e)[0], &as32(k)[0], len(k), cols)
		return
	}
	for r, s := range k {
		Scale(isa, dst[r*cols:(r+1)*cols], e[r*cols:(r+1)*cols], s)
	}
}

// SigmoidCrossEntropy is, for each element, the loss of logit x against the target y in [0, 1], and its gradient:
//
//	loss[i] = w[i] · (max(x, 0) - x·y + log(1 + e^-|x|))
//	dx[i]   = w[i] · (sigmoid(x) - y)
//
// A nil w is all ones; dx may be nil, and may be x.
func SigmoidCrossEntropy[T Float](isa ISA, loss, dx, x, y, w []T) {
	const group = 256
	var scratch [group]T
	for len(loss) > 0 {
		n := min(group, len(loss))
		d := scratch[:n]
		if dx != nil {
			d, dx = dx[:n], dx[n:]
		}
		sigmoidLoss(isa, loss[:n], d, x[:n], y[:n])
		if w != nil {
			Mul(isa, loss[:n], loss[:n], w)
			Mul(isa, d, d, w)
			w = w[n:]
		}
		loss, x, y = loss[n:], x[n:], y[n:]
	}
}

func sigmoidLoss[T Float](isa ISA, loss, dx, x, y []T) {
	if single[T]() {
		loss, dx, x, y := as32(loss), as32(dx), as32(x), as32(y)
		if isa >= AVX2 {
			sigmoidLossF32(isa, loss, dx, x, y)
			return
		}
		for i, v := range x {
			s, e := sigmoid32(v)
			loss[i] = larger(0, v) - float32(v*y[i]) + log1p32(e)
			dx[i] = s - y[i]
		}
		return
	}
	l, d, t := as64(loss), as64(dx), as64(y)
	for i, v := range as64(x) {
		s, e := sigmoid64(v)
		l[i] = larger(0, v) - float64(v*t[i]) + elementary.Log1p(e)
		d[i] = s - t[i]
	}
}
