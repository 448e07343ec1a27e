//go:build !amd64

package kernel

func axpyDotF32AVX512(_, _, _ *float32, _ int, _ float32) float32 { panic(noAssembly) }

func axpyDotF32AVX2(_, _, _ *float32, _ int, _ float32) float32 { panic(noAssembly) }
