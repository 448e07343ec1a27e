//go:build !amd64

package kernel

func axpyDotsF32AVX512(_ *float32, _ *[AxpyRows]float32, _, _ *float32, _, _ int, _ *Dots) {
	panic(noAssembly)
}

func axpyDotsF32AVX2(_ *float32, _ *[AxpyRows]float32, _, _ *float32, _, _ int, _ *Dots) {
	panic(noAssembly)
}
