package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// withZeros makes all but a share of x zero, some of them negative zeros, and of every row the columns at a multiple of five.
func withZeros(r *rand.Rand, x []float32, cols int, share float64) {
	for i := range x {
		if r.Float64() >= share || i%cols%5 == 0 {
			x[i] = 0
			if r.IntN(4) == 0 {
				x[i] = float32(math.Copysign(0, -1))
			}
		}
	}
}

// TestGemmZeros: the bits are those of the product with its zeros, in every instruction set.
func TestGemmZeros(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	var w Workspace[float32]
	for _, s := range []shape{
		{m: 1, k: 1, n: 1},
		{m: 3, k: 5, n: 2},
		{m: 7, k: 64, n: 16},
		{m: 7, k: 65, n: 17},
		{m: 130, k: 63, n: 100},
		{m: 20, k: 784, n: 100},
		{m: 5, k: 385, n: 128},
		{m: 4, k: 800, n: 129},
		{m: 3, k: 70, n: 300},
		{m: 784, k: 20, n: 33},
		{m: 65, k: 500, n: 31},
		{m: 9, k: 0, n: 4},
		{m: 140, k: 400, n: 48},
		{m: 70, k: 140, n: 128},
		{m: 6, k: 800, n: 256},
	} {
		for _, ta := range []bool{false, true} {
			for _, share := range []float64{0, 0.2, 1} {
				lda, ldb, ldc := s.k+3, s.n+1, s.n+2
				if s.n%16 == 0 { // rows of whole lines are computed where they are
					ldb, ldc = s.n, s.n
				}
				if ta {
					lda = s.m + 3
				}
				a, b := make([]float32, max(s.m, s.k)*lda), aligned[float32](max(s.k, 1)*ldb)
				for i := range a {
					a[i] = float32(r.NormFloat64())
				}
				for i := range b {
					b[i] = float32(r.NormFloat64())
				}
				withZeros(r, a, lda, share)
				bias := b[:s.n]
				epilogues := []Epilogue[float32]{{}, {Bias: bias, Act: ActReLU}, {Act: ActTanh}, {Accumulate: true, Bias: bias}}
				if testing.Short() && s.m*s.k*s.n > 1_000_000 {
					epilogues = epilogues[3:]
				}
				for _, ep := range epilogues {
					old := make([]float32, s.m*ldc)
					for i := range old {
						old[i] = float32(r.NormFloat64())
					}
					for _, isa := range Available() {
						name := fmt.Sprintf("%v %v transposed %v, a share of %v, %v", isa, s, ta, share, ep.Act)
						want, got := append([]float32(nil), old...), aligned[float32](len(old))
						copy(got, old)
						Gemm(isa, ta, false, s.m, s.n, s.k, a, lda, b, ldb, want, ldc, ep, &w)
						GemmZeros(isa, ta, s.m, s.n, s.k, a, lda, b, ldb, got, ldc, ep, &w)
						wantSame(t, name, got, want)
					}
				}
			}
		}
	}
}

// TestGemmZerosLeavesOut: a zero meets no infinity, and a number that is none does. Of float64 the product is Gemm's.
func TestGemmZerosLeavesOut(t *testing.T) {
	inf := float32(math.Inf(1))
	denormal := math.Float32frombits(1)
	var w Workspace[float32]
	for _, isa := range Available() {
		for _, ta := range []bool{false, true} { // of one row and one column either way
			c := make([]float32, 2)
			GemmZeros(isa, ta, 1, 2, 3, []float32{0, 2, denormal}, 1+2*btoi(!ta), []float32{inf, inf, 3, 4, 5, inf}, 2, c, 2, Epilogue[float32]{}, &w)
			wantSame(t, fmt.Sprintf("%v transposed %v", isa, ta), c, []float32{6, inf})
		}
		c := make([]float64, 1)
		GemmZeros(isa, false, 1, 1, 1, []float64{0}, 1, []float64{math.Inf(1)}, 1, c, 1, Epilogue[float64]{}, &Workspace[float64]{})
		if !math.IsNaN(c[0]) {
			t.Errorf("%v: 0·∞ in float64 is %v", isa, c[0])
		}
	}
}

// TestMostlyZeros: what is told of matrices of known shares, wherever their zeros are.
func TestMostlyZeros(t *testing.T) {
	few, many := make([]float32, 100*784), make([]float32, 100*784)
	for i := range few {
		if i%784 < 784/5 { // the columns of one side
			few[i] = 1
		}
		if i/784%2 == 0 { // every other row
			many[i] = 1
		}
	}
	for _, c := range []struct {
		name string
		a    []float32
		n    int
		want bool
	}{
		{"a fifth", few, 100, true},
		{"a fifth, of few columns", few, 10, false},
		{"half", many, 100, false},
		{"nothing", nil, 100, false},
		{"too little to tell", make([]float32, 255), 100, false},
		{"zeros", make([]float32, 256), 100, true},
	} {
		if got := MostlyZeros(c.a, c.n); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if MostlyZeros(make([]float64, 1000), 100) {
		t.Error("zeros of float64: true, want false")
	}
}

func BenchmarkGemmZeros(b *testing.B) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, isa := range Available() {
		if isa < AVX2 {
			continue
		}
		for _, s := range []shape{
			{m: 100, k: 784, n: 100},
			{ta: true, m: 784, k: 100, n: 100},
			{m: 500, k: 784, n: 100},
			{ta: true, m: 784, k: 500, n: 100},
			{m: 100, k: 784, n: 128},
			{ta: true, m: 784, k: 100, n: 128},
		} {
			var w Workspace[float32]
			lda := s.k
			if s.ta {
				lda = s.m
			}
			a, x, c := make([]float32, s.m*s.k), make([]float32, s.k*s.n), make([]float32, s.m*s.n)
			for i := range a {
				if r.Float64() < 0.19 {
					a[i] = 1
				}
			}
			name := fmt.Sprintf("%c_%dx%dx%d/%v", "NT"[btoi(s.ta)], s.m, s.k, s.n, isa)
			b.Run(name+"/all", func(b *testing.B) {
				for b.Loop() {
					Gemm(isa, s.ta, false, s.m, s.n, s.k, a, lda, x, s.n, c, s.n, Epilogue[float32]{}, &w)
				}
			})
			b.Run(name+"/zeros", func(b *testing.B) {
				for b.Loop() {
					GemmZeros(isa, s.ta, s.m, s.n, s.k, a, lda, x, s.n, c, s.n, Epilogue[float32]{}, &w)
				}
			})
		}
	}
}
