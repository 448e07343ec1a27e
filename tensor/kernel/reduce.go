package kernel

import "math"

// The reductions of contiguous data. A sum is cut into blocks of BlockLen elements; in a block, element i is added to lane i mod 64,
// from zero, and the lanes are folded in halves: lane j takes lane j+32, then j+16, down to j+1. Block sums are added pairwise, along
// one fixed tree (see FoldSums). So the order of additions depends on the length alone.

// BlockLen is the number of elements that are summed before the tree begins. A sum may be cut at its multiples.
const BlockLen = 4096

const lanes = 64

// Sum is the sum of x.
func Sum[T Float](isa ISA, x []T) T {
	var t tree[T]
	for ; len(x) > BlockLen; x = x[BlockLen:] {
		t.add(blockSum(isa, x[:BlockLen]))
	}
	t.add(blockSum(isa, x))
	return t.sum()
}

// Dot is the sum of the products a[i]*b[i], each rounded before it is added.
func Dot[T Float](isa ISA, a, b []T) T {
	b = b[:len(a)]
	var t tree[T]
	for ; len(a) > BlockLen; a, b = a[BlockLen:], b[BlockLen:] {
		t.add(blockDot(isa, a[:BlockLen], b[:BlockLen]))
	}
	t.add(blockDot(isa, a, b))
	return t.sum()
}

// SumSquares is Dot(x, x).
func SumSquares[T Float](isa ISA, x []T) T { return Dot(isa, x, x) }

// SumBlocks writes to parts[j] the sum of block j of x, for callers that share the blocks among threads. FoldSums of all parts is
// Sum of the whole.
func SumBlocks[T Float](isa ISA, parts, x []T) {
	for j := range parts {
		parts[j] = blockSum(isa, x[j*BlockLen:min((j+1)*BlockLen, len(x))])
	}
}

// FoldSums adds parts pairwise: neighbours first, then neighbouring pairs, and so on. A group of 2^k parts that starts at a multiple
// of 2^k is a subtree, so its sum can be computed apart; a short last group joins at the end, smallest first. No parts sum to 0.
func FoldSums[T Float](parts []T) T {
	var t tree[T]
	for _, p := range parts {
		t.add(p)
	}
	return t.sum()
}

// A tree adds a sequence pairwise with one pending partial for each set bit of the number of terms seen.
type tree[T Float] struct {
	pending  [52]T
	depth, n int
}

func (t *tree[T]) add(x T) {
	for m := t.n; m&1 == 1; m >>= 1 {
		t.depth--
		x = t.pending[t.depth] + x
	}
	t.pending[t.depth] = x
	t.depth++
	t.n++
}

func (t *tree[T]) sum() T {
	if t.depth == 0 {
		return 0
	}
	x := t.pending[t.depth-1]
	for i := t.depth - 2; i >= 0; i-- {
		x = t.pending[i] + x
	}
	return x
}

// blockSum adds at most BlockLen elements.
func blockSum[T Float](isa ISA, x []T) T {
	if isa >= AVX2 && len(x) > 0 {
		if single[T]() {
			return T(blockSumF32(isa, &as32(x)[0], len(x)))
		}
		return T(blockSumF64(isa, &as64(x)[0], len(x)))
	}
	var lane [lanes]T
	for i, v := range x {
		lane[i%lanes] += v
	}
	return foldLanes(&lane)
}

func blockDot[T Float](isa ISA, a, b []T) T {
	if isa >= AVX2 && len(a) > 0 {
		if single[T]() {
			return T(blockDotF32(isa, &as32(a)[0], &as32(b)[0], len(a)))
		}
		return T(blockDotF64(isa, &as64(a)[0], &as64(b)[0], len(a)))
	}
	read(a)
	read(b)
	return blockDotGo(a, b)
}

//go:norace
func blockDotGo[T Float](a, b []T) T {
	var lane [lanes]T
	for i, v := range a {
		lane[i%lanes] += T(v * b[i])
	}
	return foldLanes(&lane)
}

func foldLanes[T Float](lane *[lanes]T) T {
	for half := lanes / 2; half > 0; half /= 2 {
		for i := range half {
			lane[i] += lane[i+half]
		}
	}
	return lane[0]
}

// MaxOf is the largest element of x, NaN if there is one, -Inf if x is empty. The largest of zeros is +0.
func MaxOf[T Float](isa ISA, x []T) T {
	m, nan := T(math.Inf(-1)), false
	if isa < AVX2 {
		m, nan = blockMax(x)
	} else {
		for ; len(x) > 0 && !nan; x = x[min(piece, len(x)):] {
			n := min(piece, len(x))
			var part T
			if single[T]() {
				p, q := blockMaxF32(isa, &as32(x)[0], n)
				part, nan = T(p), q
			} else {
				p, q := blockMaxF64(isa, &as64(x)[0], n)
				part, nan = T(p), q
			}
			m = max(m, part)
		}
	}
	switch {
	case nan:
		return T(math.NaN())
	case m == 0:
		return 0
	}
	return m
}

func blockMax[T Float](x []T) (m T, nan bool) {
	m = T(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
		nan = nan || v != v
	}
	return m, nan
}

// ArgMax is the index of the first largest element of x, of the first NaN if there is one, -1 if x is empty.
func ArgMax[T Float](isa ISA, x []T) int {
	if len(x) == 0 {
		return -1
	}
	if isa >= AVX2 && len(x) > 64 {
		m := MaxOf(isa, x)
		for i, v := range x {
			if v == m || v != v {
				return i
			}
		}
	}
	m, at := x[0], 0
	for i, v := range x {
		if v > m {
			m, at = v, i
		}
		if v != v {
			return i
		}
	}
	return at
}

// RowSums is dst[r] = the sum of row r of x, a contiguous matrix of cols columns.
func RowSums[T Float](isa ISA, dst, x []T, cols int) {
	for r := range dst {
		dst[r] = Sum(isa, x[r*cols:(r+1)*cols])
	}
}

// RowMax is dst[r] = the largest element of row r.
func RowMax[T Float](isa ISA, dst, x []T, cols int) {
	for r := range dst {
		dst[r] = MaxOf(isa, x[r*cols:(r+1)*cols])
	}
}

// RowArgMax is dst[r] = the column of the first largest element of row r.
func RowArgMax[T Float](isa ISA, dst []int64, x []T, cols int) {
	for r := range dst {
		dst[r] = int64(ArgMax(isa, x[r*cols:(r+1)*cols]))
	}
}
