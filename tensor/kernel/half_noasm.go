//go:build !amd64

package kernel

func narrowHalf(h Half, dst []byte, x []float32) { panic(noAssembly) }

func narrowKeepHalf(h Half, dst []byte, e, x []float32) { panic(noAssembly) }

func widenHalf(h Half, dst []float32, p []byte) { panic(noAssembly) }

func widenAddHalf(h Half, dst []float32, p []byte) { panic(noAssembly) }
