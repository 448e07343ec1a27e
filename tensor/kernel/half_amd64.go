package kernel

// These convert n numbers, a multiple of halfUnit and not 0: half_amd64.s.

//go:noescape
func narrowF16(dst *byte, x *float32, n int)

//go:noescape
func narrowBF16(dst *byte, x *float32, n int)

//go:noescape
func narrowKeepF16(dst *byte, e, x *float32, n int)

//go:noescape
func narrowKeepBF16(dst *byte, e, x *float32, n int)

//go:noescape
func widenF16(dst *float32, p *byte, n int)

//go:noescape
func widenBF16(dst *float32, p *byte, n int)

//go:noescape
func widenAddF16(dst *float32, p *byte, n int)

//go:noescape
func widenAddBF16(dst *float32, p *byte, n int)

func narrowHalf(h Half, dst []byte, x []float32) {
	if h == BF16 {
		narrowBF16(&dst[0], &x[0], len(x))
		return
	}
	narrowF16(&dst[0], &x[0], len(x))
}

func narrowKeepHalf(h Half, dst []byte, e, x []float32) {
	if h == BF16 {
		narrowKeepBF16(&dst[0], &e[0], &x[0], len(e))
		return
	}
	narrowKeepF16(&dst[0], &e[0], &x[0], len(e))
}

func widenHalf(h Half, dst []float32, p []byte) {
	if h == BF16 {
		widenBF16(&dst[0], &p[0], len(dst))
		return
	}
	widenF16(&dst[0], &p[0], len(dst))
}

func widenAddHalf(h Half, dst []float32, p []byte) {
	if h == BF16 {
		widenAddBF16(&dst[0], &p[0], len(dst))
		return
	}
	widenAddF16(&dst[0], &p[0], len(dst))
}
