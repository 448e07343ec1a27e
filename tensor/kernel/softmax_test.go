package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func testSoftmax[T Float](t *testing.T, tolerance float64) {
	r := rand.New(rand.NewPCG(8, 8))
	for _, cols := range []int{1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 17, 63, 64, 65, 100, 1000, BlockLen, BlockLen + 70} {
		for _, rows := range []int{0, 1, 3, 8, 17, 65, 130, 177} {
			if rows*cols > 70_000 {
				continue
			}
			x, dy := plain[T](r, rows*cols), plain[T](r, rows*cols)
			Scale(Go, x, x, 5)
			labels, w := make([]int32, rows), plain[T](r, rows)
			for i := range labels {
				labels[i] = int32(r.IntN(cols))
			}
			var want [5][]T
			for _, isa := range Available() {
				name := fmt.Sprintf("%d×%d of %T on %v", rows, cols, T(0), isa)
				y, dx := make([]T, rows*cols), make([]T, rows*cols)
				loss, alone, grad := make([]T, rows), make([]T, rows), make([]T, rows*cols)
				Softmax(isa, y, x, cols)
				SoftmaxGrad(isa, dx, dy, y, cols)
				SoftmaxCrossEntropy(isa, loss, grad, x, labels, w, cols)
				SoftmaxCrossEntropy[T](isa, alone, nil, x, labels, w, cols)
				wantSame(t, "loss without gradient, "+name, alone, loss)
				inPlace := append([]T(nil), x...)
				SoftmaxCrossEntropy(isa, alone, inPlace, inPlace, labels, w, cols)
				wantSame(t, "gradient in place, "+name, inPlace, grad)
				unit := make([]T, rows*cols)
				SoftmaxCrossEntropy(isa, alone, unit, x, labels, nil, cols)
				all := [5][]T{y, dx, loss, grad, unit}
				if isa <= GoExact {
					checkSoftmax(t, name, all, x, dy, labels, w, cols, tolerance)
				}
				if isa == GoExact {
					want = all
				}
				for i := range all {
					if isa == Go && single[T]() {
						break // its exponentials differ
					}
					wantSame(t, fmt.Sprintf("result %d, %s", i, name), all[i], want[i])
				}
			}
		}
	}
}

func checkSoftmax[T Float](t *testing.T, name string, got [5][]T, x, dy []T, labels []int32, w []T, cols int, tolerance float64) {
	t.Helper()
	near := func(what string, got T, want float64) {
		if !(math.Abs(float64(got)-want) <= tolerance*(1+math.Abs(want))) {
			t.Fatalf("%s, %s: %v, want %v", what, name, got, want)
		}
	}
	for r, label := range labels {
		at := func(c int) int { return r*cols + c }
		largest, sum, dot := math.Inf(-1), 0.0, 0.0
		for c := range cols {
			largest = math.Max(largest, float64(x[at(c)]))
		}
		for c := range cols {
			sum += math.Exp(float64(x[at(c)]) - largest)
		}
		p := func(c int) float64 { return math.Exp(float64(x[at(c)])-largest) / sum }
		for c := range cols {
			dot += p(c) * float64(dy[at(c)])
		}
		near("loss", got[2][r], float64(w[r])*(math.Log(sum)+largest-float64(x[at(int(label))])))
		for c := range cols {
			hit := 0.0
			if c == int(label) {
				hit = 1
			}
			near("softmax", got[0][at(c)], p(c))
			near("softmax gradient", got[1][at(c)], p(c)*(float64(dy[at(c)])-dot))
			near("loss gradient", got[3][at(c)], float64(w[r])*(p(c)-hit))
			near("loss gradient", got[4][at(c)], p(c)-hit)
		}
	}
}

func TestSoftmaxF32(t *testing.T) { testSoftmax[float32](t, 2e-6) }

// TestSoftmaxOfNothing: rows without columns are no rows.
func TestSoftmaxOfNothing(t *testing.T) {
	for _, isa := range Available() {
		Softmax[float32](isa, nil, nil, 0)
		Softmax[float64](isa, nil, nil, 0)
		SoftmaxGrad[float32](isa, nil, nil, nil, 0)
		SoftmaxCrossEntropy[float32](isa, nil, nil, nil, nil, nil, 0)
		SoftmaxCrossEntropy[float64](isa, nil, nil, nil, nil, nil, 0)
	}
}

func TestSoftmaxF64(t *testing.T) { testSoftmax[float64](t, 1e-13) }

func TestCase16SoftmaxCrossEntropy(t *testing.T) {
	for _, isa := range Available() {
		for _, c := range []struct {
			label int32
			loss  float32
			dx    []float32
		}{{0, 0, []float32{0, 0, 0}}, {2, 2000, []float32{1, 0, -1}}} {
			loss, dx := make([]float32, 1), make([]float32, 3)
			SoftmaxCrossEntropy(isa, loss, dx, []float32{1000, 0, -1000}, []int32{c.label}, nil, 3)
			if loss[0] != c.loss {
				t.Errorf("label %d on %v: loss %v, want %v", c.label, isa, loss[0], c.loss)
			}
			for i := range dx {
				if dx[i] != c.dx[i] {
					t.Errorf("label %d on %v: gradient %v, want %v", c.label, isa, dx, c.dx)
				}
			}
		}
		loss, dx := make([]float32, 1), make([]float32, 10)
		SoftmaxCrossEntropy(isa, loss, dx, make([]float32, 10), []int32{4}, nil, 10)
		if !(math.Abs(float64(loss[0])-math.Ln10) <= 3e-7) {
			t.Errorf("ten zeros on %v: loss %v, want ln 10", isa, loss[0])
		}
		for i, g := range dx {
			want := 0.1
			if i == 4 {
				want = -0.9
			}
			if !(math.Abs(float64(g)-want) <= 1e-7) {
				t.Errorf("ten zeros on %v: gradient %d is %v, want %v", isa, i, g, want)
			}
		}
	}
}

func TestSoftmaxOfNaN(t *testing.T) { // a diverging run must show
	for _, isa := range Available() {
		for _, bad := range []float64{math.NaN(), math.Inf(1)} {
			x, loss, dx := make([]float32, 40), make([]float32, 2), make([]float32, 40)
			x[7] = float32(bad)
			SoftmaxCrossEntropy(isa, loss, dx, x, []int32{0, 0}, nil, 20)
			if loss[0] == loss[0] || dx[3] == dx[3] || loss[1] != loss[1] {
				t.Errorf("a logit %v on %v: losses %v, gradient %v", bad, isa, loss, dx[:20])
			}
		}
	}
}

func testSigmoid[T Float](t *testing.T, tolerance float64) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, n := range lengths() {
		x, y, w := plain[T](r, n), plain[T](r, n), plain[T](r, n)
		for i := range y {
			x[i] *= 20
			y[i] = T(r.IntN(2))
		}
		var want, wantDx []T
		for _, isa := range Available() {
			loss, dx, alone := make([]T, n), make([]T, n), make([]T, n)
			SigmoidCrossEntropy(isa, loss, dx, x, y, w)
			SigmoidCrossEntropy(isa, alone, nil, x, y, w)
			wantSame(t, "loss without gradient", alone, loss)
			if isa == GoExact {
				want, wantDx = loss, dx
			}
			if isa <= GoExact {
				for i := range loss {
					v, wi := float64(x[i]), float64(w[i])
					l := wi * (math.Max(v, 0) - v*float64(y[i]) + math.Log1p(math.Exp(-math.Abs(v))))
					d := wi * (1/(1+math.Exp(-v)) - float64(y[i]))
					if !(math.Abs(float64(loss[i])-l) <= tolerance*(1+math.Abs(l))) || !(math.Abs(float64(dx[i])-d) <= tolerance) {
						t.Fatalf("x %v, y %v, w %v: loss %v, gradient %v, want %v, %v", v, y[i], wi, loss[i], dx[i], l, d)
					}
				}
			}
			if isa == Go && single[T]() {
				continue // its exponentials differ
			}
			wantSame(t, "sigmoid loss on "+isa.String(), loss, want)
			wantSame(t, "sigmoid gradient on "+isa.String(), dx, wantDx)
		}
	}
}

func TestSigmoidCrossEntropyF32(t *testing.T) { testSigmoid[float32](t, 1e-6) }
func TestSigmoidCrossEntropyF64(t *testing.T) { testSigmoid[float64](t, 1e-14) }

func TestSigmoidCrossEntropyTail(t *testing.T) { // the loss of a sure and right answer keeps its digits
	for _, isa := range Available() {
		loss, dx := []float32{0}, []float32{0}
		SigmoidCrossEntropy(isa, loss, dx, []float32{20}, []float32{1}, nil)
		if want := math.Log1p(math.Exp(-20)); !(math.Abs(float64(loss[0])/want-1) <= 1e-6) {
			t.Errorf("on %v: loss %v, want %v", isa, loss[0], want)
		}
	}
}

// TestEntropyStream compares the form for gradients beyond cache with the other, at all alignments.
func TestEntropyStream(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	for _, isa := range Available() {
		if isa < AVX2 {
			continue
		}
		for _, cols := range []int{17, 64, 100, 250, 255, 256, 257, 300, 1000, BlockLen} {
			for _, rows := range []int{1, 2, 3, 65, 70} {
				for _, off := range []int{0, 1, 8, 15} {
					if rows*cols > 70_000 && off != 1 {
						continue
					}
					x, w := plain[float32](r, rows*cols), plain[float32](r, rows)
					labels := make([]int32, rows)
					for i := range labels {
						labels[i] = int32(r.IntN(cols))
					}
					for _, w := range [][]float32{nil, w} {
						loss, want := make([]float32, rows), make([]float32, rows)
						whole, wantDx := make([]float32, off+rows*cols+33), make([]float32, rows*cols)
						Fill(isa, whole, 7)
						dx := whole[off : off+rows*cols]
						entropyStream(isa, loss, dx, x, labels, w, cols)
						softmaxLoss(isa, want, wantDx, x, labels, w, cols, nil)
						name := fmt.Sprintf("%d×%d from %d on %v", rows, cols, off, isa)
						wantSame(t, "loss, "+name, loss, want)
						wantSame(t, "gradient, "+name, dx, wantDx)
						for i, v := range whole {
							if outside := i < off || i >= off+rows*cols; outside && v != 7 {
								t.Fatalf("%s: wrote at %d, outside the gradient", name, i-off)
							}
						}
					}
					inPlace, loss := append([]float32(nil), x...), make([]float32, rows)
					wantDx := make([]float32, rows*cols)
					softmaxLoss(isa, loss, wantDx, x, labels, nil, cols, nil)
					entropyStream(isa, loss, inPlace, inPlace, labels, nil, cols)
					wantSame(t, "gradient in place", inPlace, wantDx)
				}
			}
		}
	}
}

// A label that is no class panics, wherever in the batch it is, and whatever the width.
func TestSoftmaxLabelOutside(t *testing.T) {
	for _, isa := range Available() {
		for _, cols := range []int{3, 10, 100} {
			for _, bad := range []int32{-1, int32(cols), math.MaxInt32} {
				for _, at := range []int{0, 37, 69} {
					labels := make([]int32, 70)
					labels[at] = bad
					x, loss := make([]float32, 70*cols), make([]float32, 70)
					func() {
						defer func() {
							if recover() == nil {
								t.Errorf("%v, %d classes: label %d in row %d does not panic", isa, cols, bad, at)
							}
						}()
						SoftmaxCrossEntropy(isa, loss, x, x, labels, nil, cols)
					}()
				}
			}
		}
	}
}

// Gradients too large for the cache, wherever they begin in memory, have the bits of those that are not.
func TestSoftmaxPastTheCache(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	for _, cols := range []int{3, 10, 16, 300} {
		rows := halfCache/8/cols + 100
		x, memory := plain[float32](r, rows*cols), aligned[float32](rows*cols+16)
		labels, w := make([]int32, rows), plain[float32](r, rows)
		for i := range labels {
			labels[i] = int32(r.IntN(cols))
		}
		want, losses, loss := make([]float32, rows*cols), make([]float32, rows), make([]float32, rows)
		for _, isa := range exactISAs()[1:] {
			for i := 0; i < rows; i += 1000 {
				j := min(i+1000, rows)
				SoftmaxCrossEntropy(isa, losses[i:j], want[i*cols:j*cols], x[i*cols:], labels[i:j], w[i:], cols)
			}
			for _, from := range []int{0, 2, 5} {
				dx := memory[from:][:rows*cols]
				SoftmaxCrossEntropy(isa, loss, dx, x, labels, w, cols)
				name := fmt.Sprintf("%d classes from element %d on %v", cols, from, isa)
				wantSame(t, "gradient of "+name, dx, want)
				wantSame(t, "loss of "+name, loss, losses)
			}
			clear(loss)
			SoftmaxCrossEntropy(isa, loss, nil, x, labels, w, cols)
			wantSame(t, fmt.Sprintf("loss without gradient of %d classes on %v", cols, isa), loss, losses)
		}
	}
}
