package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// Shapes (M×K×N) of layers and of square matrices, then those of small models.
var benchShapes = []shape{
	{m: 32, k: 784, n: 128},
	{m: 128, k: 784, n: 300},
	{m: 32, k: 256, n: 512},
	{m: 512, k: 512, n: 512},
	{m: 1024, k: 1024, n: 1024},
	{tb: true, m: 32, k: 128, n: 784},
	{ta: true, m: 784, k: 32, n: 128},
	{ta: true, tb: true, m: 512, k: 512, n: 512},
	{m: 100, k: 784, n: 10},
	{ta: true, m: 784, k: 100, n: 10},
	{m: 100, k: 784, n: 100},
	{ta: true, m: 784, k: 100, n: 100},
	{m: 100, k: 100, n: 10},
	{tb: true, m: 100, k: 10, n: 100},
	{ta: true, m: 100, k: 100, n: 10},
	{m: 500, k: 784, n: 10},
	{ta: true, m: 784, k: 500, n: 10},
	{m: 500, k: 784, n: 100},
	{ta: true, m: 784, k: 500, n: 100},
	{m: 100, k: 784, n: 128},
	{m: 100, k: 128, n: 32},
	{m: 100, k: 32, n: 10},
	{tb: true, m: 100, k: 10, n: 32},
	{tb: true, m: 100, k: 32, n: 128},
	{ta: true, m: 128, k: 100, n: 32},
	{ta: true, m: 784, k: 100, n: 128},
	{m: 1, k: 784, n: 128},
	{m: 4, k: 784, n: 128},
	{tb: true, m: 512, k: 512, n: 512},
	{ta: true, m: 512, k: 512, n: 512},
}

func BenchmarkGemm(b *testing.B) {
	for _, isa := range Available() {
		if isa == GoExact {
			continue
		}
		for _, s := range benchShapes {
			name := fmt.Sprintf("%c%c_%dx%dx%d/%v", "NT"[btoi(s.ta)], "NT"[btoi(s.tb)], s.m, s.k, s.n, isa)
			b.Run("F32/"+name, func(b *testing.B) { benchGemm[float32](b, isa, s) })
			b.Run("F64/"+name, func(b *testing.B) { benchGemm[float64](b, isa, s) })
		}
	}
}

func btoi(x bool) int {
	if x {
		return 1
	}
	return 0
}

func benchGemm[T Float](b *testing.B, isa ISA, s shape) {
	o := operandsOf[T](rand.New(rand.NewPCG(1, 1)), s)
	var w Workspace[T]
	for b.Loop() {
		Gemm(isa, s.ta, s.tb, s.m, s.n, s.k, o.a, o.lda, o.b, o.ldb, o.c, o.ldc, Epilogue[T]{}, &w)
	}
	b.ReportMetric(2*float64(s.m)*float64(s.n)*float64(s.k)/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GFLOP/s")
}

func nanos(f func()) int64 {
	start := time.Now()
	f()
	return time.Since(start).Nanoseconds()
}

func BenchmarkConv2D(b *testing.B) {
	for _, isa := range Available() {
		if isa == GoExact {
			continue
		}
		for _, s := range []Conv{
			SameConv(32, 28, 28, 1, 5, 5, 32, 1, 1), SameConv(32, 14, 14, 32, 5, 5, 64, 1, 1),
			validConv(100, 28, 28, 1, 5, 5, 20, 1, 1), validConv(100, 12, 12, 20, 5, 5, 50, 1, 1), // of nn's cnn
		} {
			r := rand.New(rand.NewPCG(1, 1))
			k := s.KH * s.KW * s.C
			x, filter, y := randoms[float32](r, s.N*s.H*s.W*s.C), randoms[float32](r, k*s.F), randoms[float32](r, s.N*s.OH*s.OW*s.F)
			dx, df := make([]float32, len(x)), make([]float32, len(filter))
			var w Workspace[float32]
			z := make([]float32, len(y))
			for name, f := range map[string]func(){
				"result": func() { Conv2D(isa, &s, x, filter, z, 0, s.N*s.OH, Epilogue[float32]{}, &w) },
				"input":  func() { Conv2DInput(isa, &s, y, filter, dx, 0, s.N*s.H, &w) },
				"filter": func() { Conv2DFilter(isa, &s, x, y, df, 0, k, &w) },
			} {
				b.Run(fmt.Sprintf("%s/%dx%dx%dx%d-%d/%v", name, s.N, s.H, s.W, s.C, s.F, isa), func(b *testing.B) {
					for b.Loop() {
						f()
					}
					b.ReportMetric(2*float64(s.N*s.OH*s.OW)*float64(k)*float64(s.F)/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GFLOP/s")
				})
			}
		}
	}
}
