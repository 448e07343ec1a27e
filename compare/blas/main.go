// Command blas compares Trivium's products and convolutions with OpenBLAS and oneDNN, all on one thread, on the shapes of the
// project's targets. Ours and the peers' alternate in one process on the same buffers; what it prints are ratios of medians over the
// rounds, with the quartiles of the ratio of single rounds, and the ratio of the fastest rounds, which noise cannot improve.
package main

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/trivium-ml/trivium/tensor/kernel"
)

func main() {
	core := flag.String("core", "", "OpenBLAS core type; else SkylakeX, or Haswell where there is only AVX2")
	avx2 := flag.Bool("avx2", false, "restrict all to AVX2 and FMA")
	rounds := flag.Int("rounds", 15, "rounds of each comparison, at least 10")
	only := flag.String("run", "", "only rows whose name matches this regular expression")
	each := flag.Duration("each", 2*time.Millisecond, "least time of one measurement")
	flag.Parse()
	if err := run(*core, *avx2, max(10, *rounds), *only, *each); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(core string, avx2 bool, rounds int, only string, each time.Duration) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("blas: -run: %w", err)
	}
	isa := kernel.Best()
	if avx2 {
		isa = kernel.AVX2
	}
	if core == "" {
		core = "SkylakeX"
		if isa == kernel.AVX2 {
			core = "Haswell"
		}
	}
	if !slices.Contains(kernel.Available(), isa) || isa == kernel.Go {
		return fmt.Errorf("blas: this machine has no %v", isa)
	}
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	p, err := loadPeers(core, avx2)
	if err != nil {
		return err
	}
	t := &table{isa: isa, peers: p, match: match, rounds: rounds, each: each}
	fmt.Printf("ours: %v; OpenBLAS core: %s; one thread; %d rounds of at least %v; peer's time / our time (above 1: we are faster)\n", isa, p.core, rounds, each)
	fmt.Printf("%-34s %9s %-9s  %6s  %-13s  %6s  %s\n", "M×K×N", "GFLOP/s", "peer", "median", "quartiles", "best", "peer GFLOP/s")
	products[float32](t, "F32", p.sgemm)
	t.mean("F32 GEMM")
	products[float64](t, "F64", p.dgemm)
	t.mean("F64 GEMM")
	vectors[float32](t, "F32", p.sgemv)
	vectors[float64](t, "F64", p.dgemv)
	dense(t)
	return convolutions(t)
}

type shape struct {
	ta, tb  bool
	m, k, n int
}

// The shapes of the targets, and then those of small models.
var shapes = []shape{
	{m: 32, k: 784, n: 128},
	{m: 128, k: 784, n: 300},
	{m: 32, k: 256, n: 512},
	{m: 512, k: 512, n: 512},
	{m: 1024, k: 1024, n: 1024},
	{tb: true, m: 32, k: 128, n: 784},
	{ta: true, m: 784, k: 32, n: 128},
	{ta: true, tb: true, m: 512, k: 512, n: 512},
}

var more = []shape{
	{m: 100, k: 784, n: 10},
	{ta: true, m: 784, k: 100, n: 10},
	{m: 100, k: 784, n: 100},
	{ta: true, m: 784, k: 100, n: 100},
	{m: 500, k: 784, n: 100},
	{ta: true, m: 784, k: 500, n: 100},
	{m: 100, k: 128, n: 32},
	{tb: true, m: 100, k: 32, n: 128},
	{ta: true, m: 128, k: 100, n: 32},
	{tb: true, m: 512, k: 512, n: 512},
	{ta: true, m: 512, k: 512, n: 512},
}

func (s shape) String() string {
	op := map[bool]string{false: "N", true: "T"}
	return fmt.Sprintf("%s%s %d×%d×%d", op[s.ta], op[s.tb], s.m, s.k, s.n)
}

func (s shape) flops() float64 { return 2 * float64(s.m) * float64(s.k) * float64(s.n) }

func (s shape) strides() (lda, ldb int) {
	lda, ldb = s.k, s.n
	if s.ta {
		lda = s.m
	}
	if s.tb {
		ldb = s.k
	}
	return lda, ldb
}

func products[T float32 | float64](t *table, dtype string, blas uintptr) {
	for i, s := range slices.Concat(shapes, more) {
		lda, ldb := s.strides()
		a, b, c, want := numbers[T](s.m*s.k), numbers[T](s.k*s.n), make([]T, s.m*s.n), make([]T, s.m*s.n)
		var w kernel.Workspace[T]
		ours := func() {
			kernel.Gemm(t.isa, s.ta, s.tb, s.m, s.n, s.k, a, lda, b, ldb, c, s.n, kernel.Epilogue[T]{}, &w)
		}
		f := product[T]{
			opA: op(s.ta), opB: op(s.tb), m: int32(s.m), n: int32(s.n), k: int32(s.k), lda: int32(lda), ldb: int32(ldb), ldc: int32(s.n),
			alpha: 1, a: a, b: b, c: want, function: blas,
		}
		empty := f
		empty.m = 0
		contenders := []contender{{"OpenBLAS", f.call, empty.call}}
		if d, ok := any(&f).(*product[float32]); ok {
			dnnl := func(m int32) func() {
				return func() {
					t.peers.onednn.sgemm(d.opA[0], d.opB[0], int64(m), int64(d.n), int64(d.k), 1, unsafe.Pointer(&d.a[0]), int64(d.lda),
						unsafe.Pointer(&d.b[0]), int64(d.ldb), 0, unsafe.Pointer(&d.c[0]), int64(d.ldc))
				}
			}
			contenders = append(contenders, contender{"oneDNN", dnnl(d.m), dnnl(0)})
		}
		t.row(dtype+" "+s.String(), s.flops(), i < len(shapes), ours, contenders...)
		f.call()
		ours()
		t.agree(dtype+" "+s.String(), difference(c, want, float64(s.k)))
	}
}

func vectors[T float32 | float64](t *table, dtype string, blas uintptr) {
	const m, n = 32, 10000
	a, x, y, want := numbers[T](m*n), numbers[T](n), make([]T, m), make([]T, m)
	var p struct {
		op             [1]byte
		m, n, lda, one int32
		alpha, beta    T
	}
	p.op, p.m, p.n, p.lda, p.one, p.alpha = [1]byte{'T'}, n, m, n, 1, 1
	call := func() {
		purego.SyscallN(blas, at(&p.op), at(&p.m), at(&p.n), at(&p.alpha), at(&a[0]), at(&p.lda), at(&x[0]), at(&p.one), at(&p.beta), at(&y[0]), at(&p.one))
	}
	var zero int32
	empty := func() {
		purego.SyscallN(blas, at(&p.op), at(&zero), at(&zero), at(&p.alpha), at(&a[0]), at(&p.lda), at(&x[0]), at(&p.one), at(&p.beta), at(&y[0]), at(&p.one))
	}
	ours := func() { kernel.Gemv(t.isa, m, n, a, n, x, want) }
	t.row(dtype+" GEMV 32×10000×1", 2*m*n, false, ours, contender{"OpenBLAS", call, empty})
	t.agree(dtype+" GEMV", difference(y, want, n))
}

// dense compares a product with bias and activation with the bare one.
func dense(t *table) {
	for _, s := range shapes[:3] {
		for act, name := range []string{kernel.ActReLU: "ReLU", kernel.ActTanh: "tanh", kernel.ActSigmoid: "sigmoid", kernel.ActGELU: "GELU"} {
			if name == "" {
				continue
			}
			lda, ldb := s.strides()
			a, b, c, bias := numbers[float32](s.m*s.k), numbers[float32](s.k*s.n), make([]float32, s.m*s.n), numbers[float32](s.n)
			var w kernel.Workspace[float32]
			gemm := func(ep kernel.Epilogue[float32]) func() {
				return func() { kernel.Gemm(t.isa, s.ta, s.tb, s.m, s.n, s.k, a, lda, b, ldb, c, s.n, ep, &w) }
			}
			t.row(fmt.Sprintf("F32 dense %s %d×%d×%d", name, s.m, s.k, s.n), s.flops(), false,
				gemm(kernel.Epilogue[float32]{Bias: bias, Act: kernel.Activation(act)}), contender{"our GEMM", gemm(kernel.Epilogue[float32]{}), func() {}})
		}
	}
}

func convolutions(t *table) error {
	for _, s := range []kernel.Conv{kernel.SameConv(32, 28, 28, 1, 5, 5, 32, 1, 1), kernel.SameConv(32, 14, 14, 32, 5, 5, 64, 1, 1)} {
		m, k := s.N*s.OH*s.OW, s.KH*s.KW*s.C
		x, filter, y, dx, df := numbers[float32](s.N*s.H*s.W*s.C), numbers[float32](k*s.F), make([]float32, m*s.F), make([]float32, s.N*s.H*s.W*s.C), make([]float32, k*s.F)
		patches, dy := numbers[float32](m*k), numbers[float32](m*s.F)
		var w kernel.Workspace[float32]
		gemm := func() {
			kernel.Gemm(t.isa, false, false, m, s.F, k, patches, k, filter, s.F, y, s.F, kernel.Epilogue[float32]{}, &w)
		}
		peers := []contender{{"our GEMM", gemm, func() {}}}
		if t.peers.onednn.hasConv {
			dnnl, err := t.peers.onednn.conv(s.N, s.H, s.W, s.C, s.KH, s.KW, s.F, 2, x, y)
			if err != nil {
				return err
			}
			peers = append(peers, contender{"oneDNN", dnnl, func() {}})
		}
		name := fmt.Sprintf("F32 conv 5×5 %d×%d×%d×%d to %d", s.N, s.H, s.W, s.C, s.F)
		flops := 2 * float64(m) * float64(k) * float64(s.F)
		t.row(name, flops, false, func() {
			kernel.Conv2D(t.isa, &s, x, filter, y, 0, s.N*s.OH, kernel.Epilogue[float32]{}, &w)
		}, peers...)
		t.row(name+", input", flops, false, func() { kernel.Conv2DInput(t.isa, &s, dy, filter, dx, 0, s.N*s.H, &w) }, peers[0])
		gemmT := func() {
			kernel.Gemm(t.isa, true, false, k, s.F, m, patches, k, dy, s.F, df, s.F, kernel.Epilogue[float32]{}, &w)
		}
		t.row(name+", filter", flops, false, func() { kernel.Conv2DFilter(t.isa, &s, x, dy, df, 0, k, &w) }, contender{"our GEMM", gemmT, func() {}})
	}
	return nil
}

var seed uint64 // of the next numbers

// numbers returns n random numbers.
func numbers[T float32 | float64](n int) []T {
	seed++
	r := rand.New(rand.NewPCG(seed, 1))
	x := make([]T, n)
	for i := range x {
		x[i] = T(r.NormFloat64())
	}
	return x
}

// difference is the largest difference, in units of the error that a sum of k terms may have.
func difference[T float32 | float64](x, y []T, k float64) float64 {
	unit := math.Sqrt(k) * 1e-5
	var zero T
	if unsafe.Sizeof(zero) == 8 {
		unit = math.Sqrt(k) * 1e-14
	}
	worst := 0.0
	for i := range x {
		worst = max(worst, math.Abs(float64(x[i]-y[i]))/unit)
	}
	return worst
}
