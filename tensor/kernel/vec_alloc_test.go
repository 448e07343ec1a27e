package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestKernelsAllocateNothing(t *testing.T) {
	isa := Best()
	r := rand.New(rand.NewPCG(18, 18))
	const n, cols = 6000, 60
	x, y, z, u := plain[float32](r, n), plain[float32](r, n), plain[float32](r, n), plain[float32](r, n)
	d := plain[float64](r, n)
	labels, arg := make([]int32, n/cols), make([]int32, n)
	a, _ := sparse[float32](r, 20, 20)
	h := Regular{LR: 0.1, L2: 0.1}
	var sink float32
	for name, f := range map[string]func(){
		"Add":                 func() { Add(isa, z, x, y) },
		"Exp":                 func() { Exp(isa, z, x) },
		"Sum":                 func() { sink += Sum(isa, x) },
		"MaxOf":               func() { sink += MaxOf(isa, x) },
		"ColSums":             func() { ColSums(isa, z[:cols], x, n/cols, cols) },
		"ColSums F64":         func() { ColSums(isa, d[:cols], d[cols:], n/cols-1, cols) },
		"Softmax":             func() { Softmax(isa, z, x, cols) },
		"SoftmaxCrossEntropy": func() { SoftmaxCrossEntropy(isa, u[:n/cols], z, x, labels, nil, cols) },
		"loss alone":          func() { SoftmaxCrossEntropy[float32](isa, u[:n/cols], nil, x, labels, nil, cols) },
		"SigmoidCrossEntropy": func() { SigmoidCrossEntropy(isa, u, z, x, y, nil) },
		"MaxPool": func() {
			MaxPool(isa, z, arg, x, 1, Pool2D{H: 10, W: 10, C: cols, KH: 2, KW: 2, SH: 2, SW: 2, OH: 5, OW: 5})
		},
		"SparseMatMul":  func() { SparseMatMul(isa, z, 30, a, x, 30, 30) },
		"SparseMatMulT": func() { SparseMatMulT(isa, z, 30, a, x, 30, 30, 0, 20) },
		"Adam":          func() { Adam(isa, u, x, y, z, z, AdamParams{Regular: h, Beta1: 0.9, Beta2: 0.99, Step: 1}) },
		"Momentum":      func() { Momentum(isa, u, x, y, z, MomentumParams{Regular: h}) },
		"FTRL":          func() { FTRL(isa, u, x, y, z, z, FTRLParams{Alpha: 1}) },
		"FTRLPart":      func() { FTRLPart(isa, u, x, y, z, z, z, z, FTRLPartParams{FTRLParams: FTRLParams{Alpha: 1}}) },
		"PartRemember":  func() { PartRemember(isa, z, u, x, y, PartRememberParams{Keep: 1, L1: 1}, true) },
		"PartScale":     func() { PartScale(isa, u, x, y, PartScaleParams{Share: 1}) },
		"Dropout":       func() { Dropout(isa, z, x, 0.5, 1, 0) },
	} {
		if k := testing.AllocsPerRun(10, f); k != 0 {
			t.Errorf("%s allocates %v times", name, k)
		}
	}
}

func ExampleSoftmaxCrossEntropy() {
	logits := []float32{1000, 0, -1000} // one row of three classes
	loss, gradient := make([]float32, 1), make([]float32, 3)
	SoftmaxCrossEntropy(Best(), loss, gradient, logits, []int32{2}, nil, 3)
	fmt.Println(loss, gradient)
	// Output: [2000] [1 0 -1]
}

func ExampleSparseMatMul() {
	a := CSR[float32]{Indptr: []int64{0, 2, 3}, Indices: []int32{0, 2, 1}, Values: []float32{1, 2, 3}} // {{1 0 2} {0 3 0}}
	b := []float32{1, 10, 2, 20, 3, 30}                                                                // 3×2
	product := make([]float32, 4)
	SparseMatMul(Best(), product, 2, a, b, 2, 2)
	fmt.Println(product)
	// Output: [7 70 6 60]
}

func ExampleFoldSums() { // two threads may sum the blocks, in any order
	x := make([]float32, 10_000)
	Fill(Best(), x, 0.1)
	parts := make([]float32, 3)
	SumBlocks(Best(), parts[2:], x[2*BlockLen:])
	SumBlocks(Best(), parts[:2], x)
	fmt.Println(FoldSums(parts) == Sum(Best(), x))
	// Output: true
}

func ExampleAdam() {
	p, g, m, v, u := []float32{1}, []float32{0.5}, []float32{0}, []float32{0}, []float32{0}
	for step := range int64(3) {
		Adam(Best(), u, p, g, m, v, AdamParams{Regular: Regular{LR: 0.1}, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Step: step + 1})
		AddInto(Best(), p, u)
	}
	fmt.Printf("%.4f\n", p)
	// Output: [0.7000]
}
