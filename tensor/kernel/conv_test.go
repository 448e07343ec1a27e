package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Case 18: the image 1…9 under a filter of ones, and the gradients of the sum of the result.
func TestCase18Convolution(t *testing.T) {
	for _, isa := range Available() {
		s := validConv(1, 3, 3, 1, 2, 2, 1, 1, 1)
		x, ones := []float32{1, 2, 3, 4, 5, 6, 7, 8, 9}, []float32{1, 1, 1, 1}
		y, dx, df := make([]float32, 4), make([]float32, 9), make([]float32, 4)
		var w Workspace[float32]
		Conv2D(isa, &s, x, ones, y, 0, 2, Epilogue[float32]{}, &w)
		Conv2DInput(isa, &s, ones, ones, dx, 0, 3, &w)
		Conv2DFilter(isa, &s, x, ones, df, 0, 4, &w)
		sameBits(t, isa.String()+" result", y, []float32{12, 16, 24, 28})
		sameBits(t, isa.String()+" gradient of the image", dx, []float32{1, 2, 1, 2, 4, 2, 1, 2, 1})
		sameBits(t, isa.String()+" gradient of the filter", df, []float32{12, 16, 24, 28})
	}
}

// validConv returns the shape of a convolution without padding.
func validConv(n, h, w, c, kh, kw, f, strideH, strideW int) Conv {
	s := Conv{N: n, H: h, W: w, C: c, KH: kh, KW: kw, F: f, StrideH: strideH, StrideW: strideW}
	if h >= kh && w >= kw {
		s.OH, s.OW = (h-kh)/strideH+1, (w-kw)/strideW+1
	}
	return s
}

var convShapes = map[string]Conv{
	"valid":             validConv(2, 7, 9, 3, 3, 2, 5, 1, 1),
	"same":              SameConv(2, 9, 8, 2, 5, 5, 17, 1, 1),
	"same, wide":        SameConv(1, 5, 33, 1, 5, 5, 40, 1, 1),
	"strides":           SameConv(3, 10, 11, 2, 3, 3, 6, 2, 3),
	"strides, valid":    validConv(2, 11, 10, 1, 4, 3, 33, 3, 2),
	"one by one":        validConv(2, 4, 5, 7, 1, 1, 3, 1, 1),
	"deep":              SameConv(2, 6, 6, 32, 5, 5, 16, 1, 1),
	"many pixels":       SameConv(3, 20, 20, 1, 3, 3, 4, 1, 1),
	"larger than image": SameConv(1, 2, 2, 1, 5, 5, 2, 1, 1),
	"gaps":              validConv(1, 9, 9, 2, 2, 2, 3, 4, 4),
	"no results":        validConv(1, 2, 2, 1, 3, 3, 2, 1, 1),
	"LeNet":             SameConv(2, 14, 14, 8, 5, 5, 64, 1, 1),
	"LeNet, valid":      validConv(5, 12, 12, 20, 5, 5, 50, 1, 1),
	"many images":       validConv(40, 9, 10, 12, 4, 3, 17, 1, 1),
	"uneven, same":      SameConv(3, 7, 9, 16, 4, 3, 9, 1, 1),
	"even, same":        SameConv(2, 9, 8, 48, 2, 5, 20, 1, 1),
	"wide padding":      {N: 2, H: 3, W: 4, C: 6, KH: 3, KW: 2, F: 5, StrideH: 2, StrideW: 1, PadTop: 4, PadLeft: 3, OH: 5, OW: 9},
}

// TestConvGathers: the shapes above have both sums of the gradient of the image, and what a sum saves decides which.
func TestConvGathers(t *testing.T) {
	for name, want := range map[string]bool{
		"deep": true, "uneven, same": true, "even, same": true, "LeNet": false, "LeNet, valid": false, "many images": false, "strides": false, "wide padding": false,
	} {
		if s := convShapes[name]; s.gathers() != want {
			t.Errorf("%s: gathers %v", name, !want)
		}
	}
}

func TestConvShapes(t *testing.T) {
	t.Parallel()
	for name, s := range convShapes {
		t.Run(name, func(t *testing.T) {
			convAgrees[float32](t, s, 1e-5)
			convAgrees[float64](t, s, 1e-13)
		})
	}
}

// convAgrees compares the convolution and its gradients with their definition, and all ISAs with one another; parts by rows too.
func convAgrees[T Float](t *testing.T, s Conv, epsilon float64) {
	r := rand.New(rand.NewPCG(9, 1))
	k, pixels := s.KH*s.KW*s.C, s.N*s.OH*s.OW
	x, filter, dy, bias := randoms[T](r, s.N*s.H*s.W*s.C), randoms[T](r, k*s.F), randoms[T](r, pixels*s.F), randoms[T](r, s.F)
	wantY, wantX, wantF := make([]float64, pixels*s.F), make([]float64, len(x)), make([]float64, len(filter))
	for n := range s.N {
		for i := range s.OH {
			for j := range s.OW {
				for kh := range s.KH {
					for kw := range s.KW {
						h, w := i*s.StrideH+kh-s.PadTop, j*s.StrideW+kw-s.PadLeft
						if h < 0 || w < 0 || h >= s.H || w >= s.W {
							continue
						}
						for c := range s.C {
							for f := range s.F {
								ix, jf, iy := ((n*s.H+h)*s.W+w)*s.C+c, ((kh*s.KW+kw)*s.C+c)*s.F+f, ((n*s.OH+i)*s.OW+j)*s.F+f
								wantY[iy] += float64(x[ix]) * float64(filter[jf])
								wantX[ix] += float64(dy[iy]) * float64(filter[jf])
								wantF[jf] += float64(dy[iy]) * float64(x[ix])
							}
						}
					}
				}
			}
		}
	}
	for i := range wantY {
		wantY[i] = max(0, wantY[i]+float64(bias[i%s.F]))
	}
	var exact [4][]T
	for n, isa := range append(exactISAs(), Go) {
		var w Workspace[T]
		y, dx, df, added := slices.Clone(dy), slices.Clone(x), slices.Clone(filter), slices.Clone(dy) // all but added is written over
		for _, cut := range [][2]int{{0, s.N * s.OH / 3}, {s.N * s.OH / 3, s.N * s.OH}} {
			Conv2D(isa, &s, x, filter, y, cut[0], cut[1], Epilogue[T]{Bias: bias, Act: ActReLU}, &w)
			Conv2D(isa, &s, x, filter, added, cut[0], cut[1], Epilogue[T]{Accumulate: true, Act: ActTanh}, &w)
		}
		for _, cut := range [][2]int{{0, 1}, {1, s.N * s.H / 2}, {s.N * s.H / 2, s.N * s.H}} { // results between two parts are computed for both
			Conv2DInput(isa, &s, dy, filter, dx, cut[0], cut[1], &w)
		}
		for _, cut := range [][2]int{{0, k / 2}, {k / 2, k}} {
			Conv2DFilter(isa, &s, x, dy, df, cut[0], cut[1], &w)
		}
		for what, pair := range map[string]struct {
			got  []T
			want []float64
		}{"result": {y, wantY}, "gradient of the image": {dx, wantX}, "gradient of the filter": {df, wantF}} {
			for i, g := range pair.got {
				if !(math.Abs(float64(g)-pair.want[i]) <= epsilon*math.Sqrt(float64(k+pixels+s.F*s.KH*s.KW))) {
					t.Fatalf("%v %T: %s: element %d is %v, want %v", isa, x, what, i, g, pair.want[i])
				}
			}
		}
		if isa == Go {
			continue
		}
		if n == 0 {
			exact = [4][]T{y, dx, df, added}
			// The definition by stored patches and Gemm.
			patches := make([]T, pixels*k)
			for p := range pixels {
				patch(&s, patches[p*k:][:k], x, p/(s.OH*s.OW), p/s.OW%s.OH, p%s.OW)
			}
			byGemm := make([]T, len(y))
			Gemm(isa, false, false, pixels, s.F, k, patches, k, filter, s.F, byGemm, s.F, Epilogue[T]{Bias: bias, Act: ActReLU}, &w)
			sameBits(t, fmt.Sprintf("%T: Gemm of the patches", x), byGemm, y)
			byGemm = make([]T, len(df))
			Gemm(isa, true, false, k, s.F, pixels, patches, k, dy, s.F, byGemm, s.F, Epilogue[T]{}, &w)
			sameBits(t, fmt.Sprintf("%T: Gemm of the patches transposed", x), byGemm, df)
			if !s.gathers() {
				sameBits(t, fmt.Sprintf("%T: what results give", x), given(&s, dy, filter), dx)
			}
			continue
		}
		for i, got := range [4][]T{y, dx, df, added} {
			sameBits(t, fmt.Sprintf("%v %T: part %d", isa, x, i), got, exact[i])
		}
	}
}

// given is the gradient of the image as each result gives to its pixels, one result after the other.
func given[T Float](s *Conv, dy, filter []T) []T {
	k, pixels := s.KH*s.KW*s.C, s.N*s.OH*s.OW
	var w Workspace[T]
	patches, dx := make([]T, pixels*k), make([]T, s.N*s.H*s.W*s.C)
	Gemm(GoExact, false, true, pixels, k, s.F, dy, s.F, filter, s.F, patches, k, Epilogue[T]{}, &w)
	for p := range pixels {
		for q, x := range patches[p*k : (p+1)*k] {
			h, w := p/s.OW%s.OH*s.StrideH+q/(s.KW*s.C)-s.PadTop, p%s.OW*s.StrideW+q/s.C%s.KW-s.PadLeft
			if 0 <= h && h < s.H && 0 <= w && w < s.W {
				dx[((p/(s.OH*s.OW)*s.H+h)*s.W+w)*s.C+q%s.C] += x
			}
		}
	}
	return dx
}

func TestConvAllocatesNothing(t *testing.T) {
	s := SameConv(2, 14, 14, 8, 5, 5, 16, 1, 1)
	k := s.KH * s.KW * s.C
	x, filter := make([]float32, s.N*s.H*s.W*s.C), make([]float32, k*s.F)
	y, dx, df := make([]float32, s.N*s.OH*s.OW*s.F), make([]float32, len(x)), make([]float32, len(filter))
	for _, isa := range Available() {
		if isa == GoExact {
			continue // the same code as Go, slower
		}
		var w Workspace[float32]
		run := func() {
			Conv2D(isa, &s, x, filter, y, 0, s.N*s.OH, Epilogue[float32]{}, &w)
			Conv2DInput(isa, &s, y, filter, dx, 0, s.N*s.H, &w)
			Conv2DFilter(isa, &s, x, y, df, 0, k, &w)
		}
		run()
		if n := testing.AllocsPerRun(2, run); n != 0 {
			t.Errorf("%v: %v allocations", isa, n)
		}
	}
}

func ExampleConv2D() {
	s := SameConv(1, 3, 3, 1, 3, 3, 1, 1, 1)
	image := []float32{0, 0, 0, 0, 1, 0, 0, 0, 0}
	filter := []float32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	result := make([]float32, 9)
	var w Workspace[float32]
	Conv2D(Best(), &s, image, filter, result, 0, s.N*s.OH, Epilogue[float32]{}, &w)
	fmt.Println(result)
	// Output: [9 8 7 6 5 4 3 2 1]
}
