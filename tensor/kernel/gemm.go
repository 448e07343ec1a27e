package kernel

// An Epilogue is what happens to an element of a product before it is stored: t = (op(A)·op(B))[i,j]; then, each where asked for,
// t = C[i,j] + t, t = t + Bias[j], t = Act(t); and C[i,j] = t. It has the bits of the separate element-wise kernels, and is applied
// while t is in a register or in cache. The zero value stores the product.
type Epilogue[T Float] struct {
	Bias       []T // one value a column; nil: none
	Act        Activation
	Accumulate bool // add to what C holds
}

// An Activation is a function applied to every element of a layer's output.
type Activation uint8

const (
	ActNone Activation = iota
	ActReLU
	ActTanh
	ActSigmoid
	ActGELU
)

// A Workspace keeps the packing buffers of products from one call to the next. Its zero value is ready; it grows to what the largest
// product needs, after which nothing is allocated. One goroutine may use it at a time.
type Workspace[T Float] struct {
	a, b, c []T   // packed operands, and sums of products that are not in C
	deltas  []int // steps through an image, for convolutions
	image   []T   // a padded image
}

// The depths of a block of the sum over k. They decide the last bits of every product, and so are frozen: a block of 384 float32
// (192 float64) rows of 32 (16) columns is 48 KiB, a first-level cache, and long enough to hide what a block costs besides.
const (
	depth32 = 384
	depth64 = 192
)

// depth returns how many terms of a sum over k form one chain.
func depth[T Float]() int {
	if single[T]() {
		return depth32
	}
	return depth64
}

// Gemm is C = epilogue(op(A)·op(B)), where op(A) is m×k and op(B) k×n; op transposes where ta or tb is set, so that A is stored as
// k×m, or B as n×k. Matrices are row-major; lda, ldb and ldc are the distances between the starts of their rows, at least a row
// long. C must not overlap A, B or the bias.
//
// Terms of the sum over k are taken in blocks of 384 (float32) or 192 (float64). In a block, each element is a chain of fused
// multiply-adds in ascending k, from zero; the sums of blocks are then added in order. The bits of an element therefore depend on its
// row of op(A), its column of op(B) and k alone: not on the ISA (Go excepted), nor on how C is cut into separate products.
func Gemm[T Float](isa ISA, ta, tb bool, m, n, k int, a []T, lda int, b []T, ldb int, c []T, ldc int, ep Epilogue[T], w *Workspace[T]) {
	if m <= 0 || n <= 0 {
		return
	}
	if k <= 0 {
		a, b = nil, nil
	} else {
		inside(a, ta, m, k, lda)
		inside(b, tb, k, n, ldb)
	}
	inside(c, false, m, n, ldc)
	if isa == AVX2 || isa == AVX512 {
		gemmAsm(isa, ta, tb, m, n, k, a, lda, b, ldb, c, ldc, ep, w)
		return
	}
	reads(a, ta, m, k, lda)
	reads(b, tb, k, n, ldb)
	gemmGo(isa, ta, tb, m, n, k, a, lda, b, ldb, c, ldc, ep, w)
}

// inside panics, as an index out of range does, where a matrix does not fit its slice: assembly would read past its end.
func inside[T Float](x []T, transposed bool, rows, cols, ld int) {
	if transposed {
		rows, cols = cols, rows
	}
	if ld < cols {
		panic("kernel: the rows of a matrix overlap")
	}
	_ = x[(rows-1)*ld+cols-1]
}

// GemmTiles returns the size of the tiles that a product is best cut into for a number of workers: C is then cut into pieces of rows
// × cols, those at the edges smaller, of which each is a Gemm of its own. There are at most as many as workers, and fewer where the
// product is too small to be worth their meeting.
func GemmTiles(m, n, k, workers int) (rows, cols int) {
	// A piece of 2^18 operations takes about a microsecond, as handing it over does.
	flops := 2 * max(m, 0) * max(n, 0) * max(k, 1)
	workers = max(1, min(workers, flops>>18))
	rows, cols = m, n
	least := 0
	for down := 1; down <= workers; down++ {
		r, c := ceil(m, down), roundUp(ceil(n, workers/down), 32)
		// What one worker does: sums by whole vectors, but the few last columns, which take as long as ten; and reading, perhaps
		// packing, its operands once.
		wide := roundUp(min(c, n), 16)
		if rest := min(c, n) % 32; rest > 0 && rest <= 4 {
			wide -= 6
		}
		cost := (roundUp(r, 4)*wide + 32*(r+c)) * ceil(ceil(m, max(r, 1))*ceil(n, max(c, 1)), workers)
		// Of two that are as good, the one that has more cuts by columns: each piece packs the columns of B that it has.
		if least == 0 || cost < least {
			rows, cols, least = r, min(c, n), cost
		}
	}
	return rows, cols
}

func ceil(a, b int) int { return (a + b - 1) / b }

func roundUp(a, b int) int { return ceil(a, b) * b }

// finish applies an epilogue to m rows of n sums that are in cache.
func finish[T Float](isa ISA, m, n int, sum []T, lds int, c []T, ldc int, ep Epilogue[T]) {
	for i := range m {
		s, d := sum[i*lds:][:n], c[i*ldc:][:n]
		if ep.Accumulate {
			Add(isa, d, d, s)
			s = d
		}
		if ep.Bias != nil {
			Add(isa, d, s, ep.Bias[:n])
			s = d
		}
		if ep.Act != ActNone {
			activate(isa, ep.Act, d, s)
			continue
		}
		if &s[0] != &d[0] {
			copy(d, s)
		}
	}
}

// activate is dst[i] = act(x[i]); dst may be x.
func activate[T Float](isa ISA, act Activation, dst, x []T) {
	switch act {
	case ActReLU:
		ReLU(isa, dst, x)
	case ActTanh:
		Tanh(isa, dst, x)
	case ActSigmoid:
		Sigmoid(isa, dst, x)
	case ActGELU:
		GELU(isa, dst, x)
	}
}

// room returns a slice of n elements that starts on a cache line, growing *buf if it must. What it holds is undefined.
func room[T Float](buf *[]T, n int) []T {
	if cap(*buf) < n {
		*buf = aligned[T](n + n/4)
	}
	return (*buf)[:n]
}
