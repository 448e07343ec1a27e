package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// exactISAs are those that must agree on every bit.
func exactISAs() []ISA {
	var isas []ISA
	for _, i := range Available() {
		if i != Go {
			isas = append(isas, i)
		}
	}
	return isas
}

func randoms[T Float](r *rand.Rand, n int) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = T(r.NormFloat64())
	}
	return x
}

// sameBits fails the test at the first element whose bits differ.
func sameBits[T Float](t testing.TB, what string, got, want []T) {
	t.Helper()
	for i := range want {
		if math.Float64bits(float64(got[i])) != math.Float64bits(float64(want[i])) {
			t.Fatalf("%s: element %d: got %v, want %v", what, i, got[i], want[i])
		}
	}
}

// A shape of a product, with room between rows.
type shape struct {
	ta, tb           bool
	m, n, k          int
	pa, pb, pc       int // padding of the rows of A, B, C
	bias, accumulate bool
	act              Activation
}

func (s shape) String() string {
	name := func(t bool) string {
		if t {
			return "T"
		}
		return "N"
	}
	return fmt.Sprintf("%s%s m%d k%d n%d pad %d,%d,%d bias %v accumulate %v act %d", name(s.ta), name(s.tb), s.m, s.k, s.n, s.pa, s.pb, s.pc, s.bias, s.accumulate, s.act)
}

type operands[T Float] struct {
	a, b, c, bias []T
	lda, ldb, ldc int
}

func (s shape) operands(seed uint64) (o operands[float32], d operands[float64]) {
	r := rand.New(rand.NewPCG(seed, 1))
	d = operandsOf[float64](r, s)
	r = rand.New(rand.NewPCG(seed, 1))
	return operandsOf[float32](r, s), d
}

func operandsOf[T Float](r *rand.Rand, s shape) operands[T] {
	o := operands[T]{lda: s.k + s.pa, ldb: s.n + s.pb, ldc: s.n + s.pc}
	ra, rb := s.m, s.k
	if s.ta {
		o.lda, ra = s.m+s.pa, s.k
	}
	if s.tb {
		o.ldb, rb = s.k+s.pb, s.n
	}
	o.a, o.b, o.c = randoms[T](r, ra*o.lda), randoms[T](r, rb*o.ldb), randoms[T](r, s.m*o.ldc)
	if s.bias {
		o.bias = randoms[T](r, s.n)
	}
	return o
}

func (o operands[T]) run(isa ISA, s shape, w *Workspace[T]) []T {
	c := append([]T(nil), o.c...)
	Gemm(isa, s.ta, s.tb, s.m, s.n, s.k, o.a, o.lda, o.b, o.ldb, c, o.ldc, Epilogue[T]{Bias: o.bias, Act: s.act, Accumulate: s.accumulate}, w)
	return c
}

// naive is the sum in float64, unblocked, and the sum of the absolute values of its terms, which bounds the error.
func (o operands[T]) naive(s shape, i, j int) (sum, scale float64) {
	for p := range s.k {
		ia, ib := i*o.lda+p, p*o.ldb+j
		if s.ta {
			ia = p*o.lda + i
		}
		if s.tb {
			ib = j*o.ldb + p
		}
		x := float64(o.a[ia]) * float64(o.b[ib])
		sum += x
		scale += math.Abs(x)
	}
	if s.accumulate {
		sum += float64(o.c[i*o.ldc+j])
	}
	if s.bias {
		sum += float64(o.bias[j])
	}
	switch s.act {
	case ActReLU:
		sum = max(0, sum)
	case ActTanh:
		sum = math.Tanh(sum)
	case ActSigmoid:
		sum = 1 / (1 + math.Exp(-sum))
	case ActGELU:
		sum = sum / 2 * (1 + math.Erf(sum/math.Sqrt2))
	}
	return sum, scale + 1
}

func checkShape[T Float](t testing.TB, s shape, o operands[T], epsilon float64, workspaces map[ISA]*Workspace[T]) {
	t.Helper()
	var want []T
	for _, isa := range append(exactISAs(), Go) {
		w := workspaces[isa]
		if w == nil {
			w = new(Workspace[T])
			workspaces[isa] = w
		}
		got := o.run(isa, s, w)
		if isa == GoExact {
			want = got
		}
		if isa != Go {
			sameBits(t, fmt.Sprintf("%T %v %v", want, isa, s), got, want)
		}
		for i := range s.m {
			for j := range o.ldc {
				x := float64(got[i*o.ldc+j])
				if j >= s.n {
					if x != float64(o.c[i*o.ldc+j]) {
						t.Fatalf("%v %v: wrote between the rows of C", isa, s)
					}
					continue
				}
				if y, scale := o.naive(s, i, j); !(math.Abs(x-y) <= epsilon*scale*(1+math.Sqrt(float64(s.k)))) {
					t.Fatalf("%T %v %v: C[%d,%d] = %v, want %v", want, isa, s, i, j, x, y)
				}
			}
		}
	}
}

func TestGemmShapes(t *testing.T) {
	t.Parallel()
	sizes := []int{1, 2, 3, 5, 8, 13, 14, 15, 16, 17, 28, 29, 31, 32, 33, 47}
	depths := []int{0, 1, 2, 7, 16, 31, 193, 385, 800}
	w32, w64 := map[ISA]*Workspace[float32]{}, map[ISA]*Workspace[float64]{}
	seed := uint64(0)
	for _, m := range sizes {
		for _, n := range sizes {
			seed++
			s := shape{m: m, n: n, k: depths[int(seed)%len(depths)], ta: seed&1 != 0, tb: seed&2 != 0}
			s.pa, s.pb, s.pc = int(seed/4%3), int(seed/12%3), int(seed/36%3)
			s.bias, s.accumulate, s.act = seed/3&1 != 0, seed/6&1 != 0, Activation(seed/4%5)
			o, d := s.operands(seed)
			checkShape(t, s, o, 1e-6, w32)
			checkShape(t, s, d, 1e-15, w64)
		}
	}
}

func TestGemmTransposes(t *testing.T) {
	t.Parallel()
	w32, w64 := map[ISA]*Workspace[float32]{}, map[ISA]*Workspace[float64]{}
	for i := range 4 {
		for _, s := range []shape{
			{m: 32, n: 70, k: 400},
			{m: 100, n: 10, k: 100},
			{m: 90, n: 100, k: 70},
			{m: 1, n: 600, k: 20},
			{m: 200, n: 1, k: 20},
			{m: 40, n: 24, k: 1024, bias: true, act: ActReLU},
			{m: 40, n: 24, k: 1024, accumulate: true, bias: true, act: ActTanh},
		} {
			s.ta, s.tb = i&1 != 0, i&2 != 0
			o, d := s.operands(7)
			checkShape(t, s, o, 1e-6, w32)
			checkShape(t, s, d, 1e-15, w64)
		}
	}
}

// The last one to four columns have a kernel of their own, which works on two groups of rows at a time.
func TestGemmFewLastColumns(t *testing.T) {
	t.Parallel()
	w32 := map[ISA]*Workspace[float32]{}
	for m := 2; m <= 60; m += 1 + m/12 {
		for cols := 1; cols <= 4; cols++ {
			s := shape{m: m, n: 32*(m%3) + cols, k: []int{4, 387, 770, 9, 1024}[(m+cols)%5], tb: m%5 == 0, bias: m%2 == 0, accumulate: m%4 == 1}
			s.act, s.pa, s.pc = Activation(m%5), m%2, m%3
			o, _ := s.operands(uint64(m))
			checkShape(t, s, o, 1e-6, w32)
		}
	}
}

func TestGemmEmpty(t *testing.T) {
	for _, isa := range Available() {
		c := []float32{1, 2, 3, 4}
		var w Workspace[float32]
		Gemm(isa, false, false, 0, 2, 2, nil, 2, make([]float32, 4), 2, c, 2, Epilogue[float32]{}, &w)
		Gemm(isa, false, false, 2, 0, 2, make([]float32, 4), 2, nil, 2, c, 2, Epilogue[float32]{}, &w)
		sameBits(t, "nothing to do", c, []float32{1, 2, 3, 4})
		Gemm(isa, false, false, 2, 2, 0, nil, 0, nil, 2, c, 2, Epilogue[float32]{Accumulate: true}, &w)
		sameBits(t, "an empty sum added", c, []float32{1, 2, 3, 4})
		Gemm(isa, false, false, 2, 2, 0, nil, 0, nil, 2, c, 2, Epilogue[float32]{Bias: []float32{5, -6}, Act: ActReLU}, &w)
		sameBits(t, "bias and ReLU of an empty sum", c, []float32{5, 0, 5, 0})
	}
}

// Special values pass through the sums and the ReLU on every ISA: NaN stays NaN, and 0·Inf is NaN.
func TestGemmSpecialValues(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, isa := range Available() {
		var w Workspace[float32]
		c := make([]float32, 6)
		Gemm(isa, false, false, 1, 6, 2, []float32{1, 0}, 2, []float32{nan, inf, -inf, 1, 0, 0, 0, 1, 1, inf, -1, 1}, 6, c, 6, Epilogue[float32]{Act: ActReLU}, &w)
		if !math.IsNaN(float64(c[0])) || c[1] != inf || c[2] != 0 || !math.IsNaN(float64(c[3])) || c[4] != 0 || c[5] != 0 {
			t.Errorf("%v: got %v, want NaN +Inf 0 NaN 0 0", isa, c)
		}
	}
}

// Any cut of C into tiles gives the same bits (invariant 3).
func TestGemmCutsKeepBits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := shape{
			m: rapid.IntRange(1, 60).Draw(rt, "m"), n: rapid.IntRange(1, 80).Draw(rt, "n"), k: rapid.IntRange(0, 450).Draw(rt, "k"),
			ta: rapid.Bool().Draw(rt, "ta"), tb: rapid.Bool().Draw(rt, "tb"), bias: rapid.Bool().Draw(rt, "bias"),
			accumulate: rapid.Bool().Draw(rt, "accumulate"), pc: rapid.IntRange(0, 2).Draw(rt, "pc"),
			act: Activation(rapid.IntRange(0, 4).Draw(rt, "act")),
		}
		mi, nj := rapid.IntRange(0, s.m).Draw(rt, "row"), rapid.IntRange(0, s.n).Draw(rt, "column")
		o, d := s.operands(uint64(s.m*1000 + s.n))
		cutKeepsBits(rt, s, o, mi, nj)
		cutKeepsBits(rt, s, d, mi, nj)
	})
}

func cutKeepsBits[T Float](t *rapid.T, s shape, o operands[T], mi, nj int) {
	for _, isa := range Available() {
		if isa == GoExact && s.m*s.n*s.k > 100_000 {
			continue // slow; the others are compared with it elsewhere
		}
		var w Workspace[T]
		whole := o.run(isa, s, &w)
		c := append([]T(nil), o.c...)
		for _, i := range [][2]int{{0, mi}, {mi, s.m}} {
			for _, j := range [][2]int{{0, nj}, {nj, s.n}} {
				if i[0] == i[1] || j[0] == j[1] {
					continue
				}
				a, b := o.a, o.b
				if s.ta {
					a = a[min(i[0], len(a)):]
				} else {
					a = a[i[0]*o.lda:]
				}
				if s.tb {
					b = b[j[0]*o.ldb:]
				} else {
					b = b[min(j[0], len(b)):]
				}
				ep := Epilogue[T]{Act: s.act, Accumulate: s.accumulate}
				if s.bias {
					ep.Bias = o.bias[j[0]:j[1]]
				}
				Gemm(isa, s.ta, s.tb, i[1]-i[0], j[1]-j[0], s.k, a, o.lda, b, o.ldb, c[i[0]*o.ldc+j[0]:], o.ldc, ep, &w)
			}
		}
		for i := range whole {
			if math.Float64bits(float64(whole[i])) != math.Float64bits(float64(c[i])) {
				t.Fatalf("%v %v cut at %d, %d: element %d is %v, whole %v", isa, s, mi, nj, i, c[i], whole[i])
			}
		}
	}
}

func TestGemmAllocatesNothing(t *testing.T) {
	s := shape{m: 33, n: 50, k: 400, tb: true, accumulate: true}
	o, _ := s.operands(1)
	for _, isa := range Available() {
		var w Workspace[float32]
		run := func() {
			Gemm(isa, s.ta, s.tb, s.m, s.n, s.k, o.a, o.lda, o.b, o.ldb, o.c, o.ldc, Epilogue[float32]{Accumulate: true}, &w)
		}
		run()
		if n := testing.AllocsPerRun(2, run); n != 0 {
			t.Errorf("%v: %v allocations in a product whose workspace has grown", isa, n)
		}
	}
}

func TestGemmChecksItsSlices(t *testing.T) {
	for _, isa := range Available() {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v: a matrix beyond its slice went unnoticed", isa)
				}
			}()
			Gemm(isa, false, false, 2, 2, 2, make([]float32, 3), 2, make([]float32, 4), 2, make([]float32, 4), 2, Epilogue[float32]{}, new(Workspace[float32]))
		}()
	}
}

func ExampleGemm() {
	a := []float32{1, 2, 3, 4, 5, 6}   // 2×3
	b := []float32{1, 0, -1, 1, 0, -1} // 2×3, used transposed
	c := make([]float32, 4)
	var w Workspace[float32]
	Gemm(Best(), false, true, 2, 2, 3, a, 3, b, 3, c, 2, Epilogue[float32]{Bias: []float32{0, 3}, Act: ActReLU}, &w)
	fmt.Println(c)
	// Output: [0 1 0 1]
}

func TestGemmTiles(t *testing.T) {
	for _, c := range []struct{ m, n, k, workers, rows, cols int }{
		{512, 512, 512, 2, 512, 256},
		{32, 128, 784, 2, 32, 64},
		{100, 10, 784, 2, 50, 10},
		{784, 10, 100, 2, 392, 10},
		{1024, 1024, 1024, 4, 512, 512},
		{10, 10, 10, 8, 10, 10}, // too small to share
		{0, 5, 5, 2, 0, 5},
	} {
		if rows, cols := GemmTiles(c.m, c.n, c.k, c.workers); rows != c.rows || cols != c.cols {
			t.Errorf("%d×%d×%d for %d workers: tiles of %d×%d, want %d×%d", c.m, c.k, c.n, c.workers, rows, cols, c.rows, c.cols)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		m, n, workers := rapid.IntRange(1, 3000).Draw(rt, "m"), rapid.IntRange(1, 3000).Draw(rt, "n"), rapid.IntRange(1, 32).Draw(rt, "workers")
		rows, cols := GemmTiles(m, n, 500, workers)
		if rows < 1 || cols < 1 || rows > m || cols > n || ceil(m, rows)*ceil(n, cols) > workers {
			rt.Fatalf("tiles of %d×%d", rows, cols)
		}
	})
}
