package kernel

// AxpyRows is how many rows AxpyDots adds, and multiplies.
const AxpyRows = 4

// Dots are the products of rows that follow one another: of row j with the weights, and of rows i and j > i with each other.
type Dots struct {
	Row  [AxpyRows]float32
	Pair [AxpyRows * (AxpyRows - 1) / 2]float32 // 0·1, 0·2, 0·3, 1·2, 1·3, 2·3
}

// AxpyDots is y[i] += alpha[r] * x[r][i] for AxpyRows rows of x in their order, each product rounded before it is added, and returns the
// products of as many rows of z with y after it, and with each other. So a few steps of descent, by a row each, are one pass over the
// weights: the margin at which row j takes its step is its product with the weights before them all, and with each row before it times that
// row's step (Devarakonda and Demmel, "Avoiding communication in logistic regression", HiPC 2020, save messages so; here it saves passes). While
// it computes, z comes from memory. x and z hold their rows one after another, of len(y) cells each. The order of the sums is the ISA's own.
func AxpyDots(isa ISA, y []float32, alpha *[AxpyRows]float32, x, z []float32) (d Dots) {
	cols := len(y)
	x, z = x[:AxpyRows*cols], z[:AxpyRows*cols]
	n := 0
	if isa >= AVX2 && cols >= axpyDotsUnit {
		n = cols &^ (axpyDotsUnit - 1)
		if isa >= AVX512 {
			axpyDotsF32AVX512(&y[0], alpha, &x[0], &z[0], n, cols, &d)
		} else {
			axpyDotsF32AVX2(&y[0], alpha, &x[0], &z[0], n, cols, &d)
		}
	}
	for c := n; c < cols; c++ {
		for r, a := range alpha {
			y[c] += float32(a * x[r*cols+c])
		}
		p := 0
		for i := range AxpyRows {
			zi := z[i*cols+c]
			d.Row[i] += float32(y[c] * zi)
			for j := i + 1; j < AxpyRows; j++ {
				d.Pair[p] += float32(zi * z[j*cols+c])
				p++
			}
		}
	}
	return d
}

// axpyDotsUnit is how many cells a turn of the assembly's loops takes.
const axpyDotsUnit = 16
