package kernel

import "math"

// A Pool2D is the geometry of a pooling: images of H×W×C (NHWC), windows of KH×KW that advance by SH×SW, the first one PadTop and
// PadLeft outside the image, results of OH×OW×C. Cells outside the image never win.
type Pool2D struct {
	H, W, C         int
	KH, KW, SH, SW  int
	PadTop, PadLeft int
	OH, OW          int
}

// MaxPool is the largest cell of each window, for n images. arg[i] is the offset of that cell in its image: the first one (by row,
// then column) if several are equal; a NaN wins. A window wholly outside gives -Inf and arg -1.
func MaxPool[T Float](isa ISA, dst []T, arg []int32, x []T, n int, s Pool2D) {
	in, out := s.H*s.W*s.C, s.OH*s.OW*s.C
	for i := range n {
		img, y, a := x[i*in:(i+1)*in], dst[i*out:(i+1)*out], arg[i*out:(i+1)*out]
		for oh := range s.OH {
			h := oh*s.SH - s.PadTop
			top, bottom := max(0, h), min(s.H, h+s.KH)
			for ow := 0; ow < s.OW; {
				w := ow*s.SW - s.PadLeft
				left, right, windows := max(0, w), min(s.W, w+s.KW), 1
				if inside := (s.W-w-s.KW)/s.SW + 1; w >= 0 && inside > 1 {
					windows = min(inside, s.OW-ow) // all whole
				}
				o := (oh*s.OW + ow) * s.C
				r := poolRow{windows, s.C, bottom - top, right - left, s.W * s.C, s.SW * s.C, (top*s.W + left) * s.C}
				maxPoolRow(isa, y[o:o+windows*s.C], a[o:], img, r)
				ow += windows
			}
		}
	}
}

// A poolRow is a row of windows of the same size: how many, their channels, height and width, the distances between rows of the image
// and from window to window, and where the first one starts. The assembly knows its layout.
type poolRow struct{ windows, channels, height, width, row, step, first int }

func maxPoolRow[T Float](isa ISA, y []T, arg []int32, img []T, s poolRow) {
	arg = arg[:len(y)]
	if s.height <= 0 || s.width <= 0 {
		for i := range y {
			y[i], arg[i] = T(math.Inf(-1)), -1
		}
		return
	}
	if s.channels == 0 {
		return
	}
	_ = img[s.first+(s.windows-1)*s.step+(s.height-1)*s.row+s.width*s.channels-1]
	if isa >= AVX2 && single[T]() && s.channels > 2 {
		poolRowF32(isa, &as32(y)[0], &arg[0], &as32(img)[s.first], &s)
		return
	}
	for ; s.windows > 0; s.windows-- {
		best, at := y[:s.channels], arg[:s.channels]
		copy(best, img[s.first:])
		for c := range at {
			at[c] = int32(s.first + c)
		}
		for h := range s.height {
			for w := range s.width {
				k := s.first + h*s.row + w*s.channels
				for c, v := range img[k : k+s.channels] {
					if b := best[c]; !(v <= b) && b == b {
						best[c], at[c] = v, int32(k+c)
					}
				}
			}
		}
		y, arg, s.first = y[s.channels:], arg[s.channels:], s.first+s.step
	}
}

// MaxPoolGrad sends each dy to the cell that won: dx[arg] += dy, in ascending order of results; all other cells of dx become 0.
func MaxPoolGrad[T Float](isa ISA, dx, dy []T, arg []int32, n int, s Pool2D) {
	in, out := s.H*s.W*s.C, s.OH*s.OW*s.C
	clear(dx[:n*in])
	for i := range n {
		img := dx[i*in : (i+1)*in]
		for o, k := range arg[i*out : (i+1)*out] {
			if k >= 0 {
				img[k] += dy[i*out+o]
			}
		}
	}
}
