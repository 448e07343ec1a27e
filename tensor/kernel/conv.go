package kernel

// A Conv is the shape of a two-dimensional convolution: images N×H×W×C, filters KH×KW×C×F, results N×OH×OW×F, all row-major.
//
//	y[n,i,j,f] = sum over kh, kw, c of x[n, i*StrideH+kh-PadTop, j*StrideW+kw-PadLeft, c] * filter[kh,kw,c,f]
//
// where what lies outside the image is zero.
type Conv struct {
	N, H, W, C       int
	KH, KW, F        int
	StrideH, StrideW int
	PadTop, PadLeft  int
	OH, OW           int
}

// SameConv returns the shape of a convolution whose result has the image's size divided by the stride, rounded up. Of an odd padding,
// the smaller half is above and on the left.
func SameConv(n, h, w, c, kh, kw, f, strideH, strideW int) Conv {
	oh, ow := (h+strideH-1)/strideH, (w+strideW-1)/strideW
	return Conv{
		N: n, H: h, W: w, C: c, KH: kh, KW: kw, F: f, StrideH: strideH, StrideW: strideW, OH: oh, OW: ow,
		PadTop:  max(0, (oh-1)*strideH+kh-h) / 2,
		PadLeft: max(0, (ow-1)*strideW+kw-w) / 2,
	}
}

// Conv2D is y = epilogue(convolution of x with filter), for rows from to to of the N·OH rows that y has. It has the bits of the
// product of the patches of x (N·OH·OW × KH·KW·C) and filter (KH·KW·C × F) by Gemm; the patches are not stored.
func Conv2D[T Float](isa ISA, s *Conv, x, filter, y []T, from, to int, ep Epilogue[T], w *Workspace[T]) {
	k := s.KH * s.KW * s.C
	if isa >= AVX2 && k > 0 {
		convAsm(isa, s, x, filter, y, from, to, ep, w)
		return
	}
	for r := from; r < to; r++ {
		p := room(&w.image, s.OW*k)
		for j := range s.OW {
			patch(s, p[j*k:][:k], x, r/s.OH, r%s.OH, j)
		}
		Gemm(isa, false, false, s.OW, s.F, k, p, k, filter, s.F, y[r*s.OW*s.F:], s.F, ep, w)
	}
}

// Conv2DInput is dx = the gradient of the image, for rows from to to of the N·H rows that dx has, which nobody else writes: there is
// nothing to add up between calls. Which of two sums it has the bits of depends on the shape alone, see gathers.
func Conv2DInput[T Float](isa ISA, s *Conv, dy, filter, dx []T, from, to int, w *Workspace[T]) {
	switch {
	case from >= to || s.W == 0 || s.C == 0:
	case s.gathers():
		convInputGather(isa, s, dy, filter, dx, from, to, w)
	default:
		convInputGive(isa, s, dy, filter, dx, from, to, w)
	}
}

// gathers says whether each pixel gathers what the results gave that it took part in, in place of the results giving to each pixel. That
// multiplies also what lies outside the results and between strides, for as many columns as two vectors have; to give is a tenth more work
// for what has to be added. Under a filter of 5 × 5 without padding, an image of 12 × 12 would take 2.25 times as long to gather.
func (s *Conv) gathers() bool {
	const columns = 16
	return s.StrideH == 1 && s.StrideW == 1 && 10*s.H*s.W*roundUp(s.C, columns) <= 11*s.OH*s.OW*s.C
}

// convInputGather has the bits of the product of the patches of dy that each pixel took part in (N·H·W × KH·KW·F, in the order of the
// filter, zero where there is none) and the filter (KH·KW·F × C).
func convInputGather[T Float](isa ISA, s *Conv, dy, filter, dx []T, from, to int, w *Workspace[T]) {
	k := s.KH * s.KW * s.F
	if isa >= AVX2 && k > 0 {
		convInputAsm(isa, s, dy, filter, dx, from, to, w)
		return
	}
	for r := from; r < to; r++ {
		buf := room(&w.image, (s.W+s.C)*k)
		p, turned := buf[:s.W*k], buf[s.W*k:]
		turn(s, turned, filter)
		for j := range s.W {
			reach(s, p[j*k:][:k], dy, r/s.H, r%s.H, j)
		}
		Gemm(isa, false, false, s.W, s.C, k, p, k, turned, s.C, dx[r*s.W*s.C:], s.C, Epilogue[T]{}, w)
	}
}

// convInputGive multiplies dy (N·OH·OW × F) with the filter transposed (F × KH·KW·C), with the bits of Gemm: a row of that is what a
// result gives to the patch that it was made of. A pixel adds up, from zero, what it has in these patches, in the order of the
// results. Few of them are stored at a time; of images of one channel transposed, since a row of a patch is a few numbers there and a row
// of results many.
func convInputGive[T Float](isa ISA, s *Conv, dy, filter, dx []T, from, to int, w *Workspace[T]) {
	k := s.KH * s.KW * s.C
	clear(dx[from*s.W*s.C : to*s.W*s.C])
	if k == 0 || s.F == 0 || s.OW == 0 {
		return
	}
	most := max(1, patchBytes/(s.OW*k*sizeOf[T]())) // rows of results
	for n := from / s.H; n*s.H < to; {
		top, i := s.givers(n, from, to)
		r0, r1 := n*s.OH+top, n*s.OH+i
		for n++; n*s.H < to && r1 == n*s.OH && r1-r0 < most; n++ { // rows of the next image follow
			first, last := s.givers(n, from, to)
			if first > 0 {
				break
			}
			r1 += last
		}
		for r0 < r1 {
			rows := min(most, r1-r0)
			m := rows * s.OW
			patches := room(&w.image, m*k)
			if s.C == 1 && s.StrideW == 1 {
				Gemm(isa, false, true, k, m, s.F, filter, s.F, dy[r0*s.OW*s.F:], s.F, patches, m, Epilogue[T]{}, w)
				for i := range rows {
					giveTurned(isa, s, dx, patches[i*s.OW:], m, r0+i, from, to)
				}
			} else {
				Gemm(isa, false, true, m, k, s.F, dy[r0*s.OW*s.F:], s.F, filter, s.F, patches, k, Epilogue[T]{}, w)
				for i := range rows {
					give(isa, s, dx, patches[i*s.OW*k:], r0+i, from, to)
				}
			}
			r0 += rows
		}
	}
}

// patchBytes is how much of patches convInputGive stores: half of a small second-level cache.
const patchBytes = 256 << 10

// givers are the rows of results of image n that some of the rows from to to of all images took part in.
func (s *Conv) givers(n, from, to int) (first, last int) {
	top, bottom := max(from-n*s.H, 0)+s.PadTop, min(to-n*s.H, s.H)-1+s.PadTop // in the padded image
	first = max(0, top-s.KH+s.StrideH) / s.StrideH
	return first, max(first, min(s.OH, bottom/s.StrideH+1))
}

// give adds what row r of the N·OH rows of results has for the rows from to to of dx: a patch for each result, one after the other.
func give[T Float](isa ISA, s *Conv, dx, patches []T, r, from, to int) {
	span := s.KW * s.C // of a patch that lies in one row of the image
	for kh := range s.KH {
		h := r%s.OH*s.StrideH + kh - s.PadTop
		at := r/s.OH*s.H + h
		if h < 0 || h >= s.H || at < from || at >= to {
			continue
		}
		row := dx[at*s.W*s.C:][:s.W*s.C]
		for j := range s.OW {
			left := (j*s.StrideW - s.PadLeft) * s.C
			begin, end := max(0, -left), min(span, len(row)-left)
			if begin >= end {
				continue
			}
			d, p := row[left+begin:left+end], patches[(j*s.KH+kh)*span+begin:]
			if len(d) < 16 { // a call would take longer
				for i, x := range p[:len(d)] {
					d[i] += x
				}
				continue
			}
			Add(isa, d, d, p)
		}
	}
}

// giveTurned is give for one channel and a stride of 1 along rows: patches has a row, ld long, for each element of the filter. Of the results
// that a pixel takes part in, earlier ones have it under later columns of the filter.
func giveTurned[T Float](isa ISA, s *Conv, dx, patches []T, ld, r, from, to int) {
	for kh := range s.KH {
		h := r%s.OH*s.StrideH + kh - s.PadTop
		at := r/s.OH*s.H + h
		if h < 0 || h >= s.H || at < from || at >= to {
			continue
		}
		row := dx[at*s.W:][:s.W]
		for kw := s.KW - 1; kw >= 0; kw-- {
			left := kw - s.PadLeft
			begin, end := max(0, -left), min(s.OW, s.W-left)
			if begin < end {
				d := row[left+begin : left+end]
				Add(isa, d, d, patches[(kh*s.KW+kw)*ld+begin:])
			}
		}
	}
}

// Conv2DFilter is dfilter = the gradient of the filter, for rows from to to of the KH·KW·C rows of F that it has. It has the bits of
// the product of the patches transposed (KH·KW·C × N·OH·OW) and dy (N·OH·OW × F).
func Conv2DFilter[T Float](isa ISA, s *Conv, x, dy, dfilter []T, from, to int, w *Workspace[T]) {
	m, pixels, kc := s.KH*s.KW*s.C, s.N*s.OH*s.OW, depth[T]()
	if pixels == 0 {
		clear(dfilter[from*s.F : to*s.F])
	}
	if isa >= AVX2 {
		convFilterAsm(isa, s, x, dy, dfilter, from, to, w)
		return
	}
	for p0 := 0; p0 < pixels; p0 += kc {
		pc := min(kc, pixels-p0)
		patches := room(&w.image, pc*m)
		for p := range pc {
			at := p0 + p
			patch(s, patches[p*m:][:m], x, at/(s.OH*s.OW), at/s.OW%s.OH, at%s.OW)
		}
		Gemm(isa, true, false, to-from, s.F, pc, patches[from:], m, dy[p0*s.F:], s.F, dfilter[from*s.F:], s.F, Epilogue[T]{Accumulate: p0 > 0}, w)
	}
}

// patch copies what the filter sees at result (i, j) of image n: KH·KW·C values of x.
func patch[T Float](s *Conv, dst, x []T, n, i, j int) {
	for kh := range s.KH {
		h := i*s.StrideH + kh - s.PadTop
		for kw := range s.KW {
			c := dst[(kh*s.KW+kw)*s.C:][:s.C]
			w := j*s.StrideW + kw - s.PadLeft
			if h < 0 || h >= s.H || w < 0 || w >= s.W {
				clear(c)
				continue
			}
			copy(c, x[((n*s.H+h)*s.W+w)*s.C:])
		}
	}
}

// reach copies the results that pixel (h, w) of image n took part in, where strides are 1: KH·KW·F values of dy.
func reach[T Float](s *Conv, dst, dy []T, n, h, w int) {
	for kh := range s.KH {
		i := h + s.PadTop - kh
		for kw := range s.KW {
			f := dst[(kh*s.KW+kw)*s.F:][:s.F]
			j := w + s.PadLeft - kw
			if i < 0 || j < 0 || i >= s.OH || j >= s.OW {
				clear(f)
				continue
			}
			copy(f, dy[((n*s.OH+i)*s.OW+j)*s.F:])
		}
	}
}

// turn writes the filter as KH×KW×F×C.
func turn[T Float](s *Conv, dst, filter []T) {
	for p := range s.KH * s.KW {
		for c := range s.C {
			for f := range s.F {
				dst[(p*s.F+f)*s.C+c] = filter[(p*s.C+c)*s.F+f]
			}
		}
	}
}
