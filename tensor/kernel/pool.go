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
			for ow := range s.OW {
				for c := range s.C {
					best, at := T(math.Inf(-1)), int32(-1)
					for h := max(0, oh*s.SH-s.PadTop); h < min(s.H, oh*s.SH-s.PadTop+s.KH); h++ {
						for w := max(0, ow*s.SW-s.PadLeft); w < min(s.W, ow*s.SW-s.PadLeft+s.KW); w++ {
							k := (h*s.W+w)*s.C + c
							if v := img[k]; at < 0 || v > best || (v != v && best == best) {
								best, at = v, int32(k)
							}
						}
					}
					o := (oh*s.OW+ow)*s.C + c
					y[o], a[o] = best, at
				}
			}
		}
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
