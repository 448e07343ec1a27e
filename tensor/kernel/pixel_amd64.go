package kernel

// pixels256 takes n bytes, a multiple of pixelUnit and not 0: pixel_amd64.s.
//
//go:noescape
func pixels256(dst *float32, p *byte, n int)

func pixels(dst []float32, p []byte) { pixels256(&dst[0], &p[0], len(dst)) }
