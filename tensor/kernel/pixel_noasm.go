//go:build !amd64

package kernel

func pixels(dst []float32, p []byte) { panic(noAssembly) }
