package kernel

// These are AxpyDots of the first n cells of rows of cols cells, n a multiple of axpyDotsUnit and not 0: axpydots_amd64.s.

//go:noescape
func axpyDotsF32AVX512(y *float32, alpha *[AxpyRows]float32, x, z *float32, n, cols int, d *Dots)

//go:noescape
func axpyDotsF32AVX2(y *float32, alpha *[AxpyRows]float32, x, z *float32, n, cols int, d *Dots)
