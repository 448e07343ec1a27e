package kernel

// Pixels is dst[i] = p[i]/255, rounded as the division is: images are bytes in memory, and numbers of [0, 1] in a model.
func Pixels(isa ISA, dst []float32, p []byte) {
	p = p[:len(dst)]
	if isa >= AVX2 {
		if n := len(dst) &^ (pixelUnit - 1); n > 0 {
			pixels(dst[:n], p)
			dst, p = dst[n:], p[n:]
		}
	}
	read(p)
	wrote(dst)
	pixelsGo(dst, p)
}

//go:norace
func pixelsGo(dst []float32, p []byte) {
	for i, b := range p {
		dst[i] = pixel[b]
	}
}

// pixelUnit is what the assembly takes at a time.
const pixelUnit = 8

var pixel = func() (t [256]float32) {
	for i := range t {
		t[i] = float32(i) / 255
	}
	return t
}()
