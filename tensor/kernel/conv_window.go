package kernel

import "unsafe"

// The convolutions by micro-kernels. The rows of A that a tile needs are windows on an image that has its padding around it: one
// after the other at a fixed distance, and within each, the elements that k runs over lie at distances that are the same for all
// windows of the image. So the micro-kernel walks through the image itself, by a list of steps, and no patch is ever stored.

// windows says where they are in an image, in elements.
type windows struct {
	origin   int // element 0 of window (0, 0)
	row, col int // from a window to the one below it, and to the one on its right
}

// convAsm is Conv2D.
func convAsm[T Float](isa ISA, s *Conv, x, filter, y []T, from, to int, ep Epilogue[T], w *Workspace[T]) {
	k := s.KH * s.KW * s.C
	if from >= to || s.OW == 0 || s.F == 0 {
		return
	}
	if ep.Accumulate && k > depth[T]() {
		m := (to - from) * s.OW
		sums := room(&w.c, m*s.F)
		convRowsInto(isa, s, x, filter, sums, from, to, Epilogue[T]{}, w)
		finish(isa, m, s.F, sums, s.F, y[from*s.OW*s.F:], s.F, ep)
		return
	}
	convRowsInto(isa, s, x, filter, y[from*s.OW*s.F:], from, to, ep, w)
}

// convRowsInto writes rows from to to of the convolution to y, which begins with row from.
func convRowsInto[T Float](isa ISA, s *Conv, x, filter, y []T, from, to int, ep Epilogue[T], w *Workspace[T]) {
	k := s.KH * s.KW * s.C
	inside(filter, false, k, s.F, s.F)
	p := product[T]{isa: isa, tiling: tilingOf[T](isa), n: s.F, ldc: s.F, ep: ep, w: w, b: operand[T]{filter, s.F, 1}}
	h, wide := s.padded()
	row := wide * s.C
	steps := w.steps(k)
	for i := range steps {
		steps[i] = sizeOf[T]()
		if (i+1)%(s.KW*s.C) == 0 {
			steps[i] *= row - s.KW*s.C + 1
		}
	}
	v := windows{row: s.StrideH * row, col: s.StrideW * s.C}
	for at := from; at < to; {
		n, i0 := at/s.OH, at%s.OH
		i1 := min(s.OH, i0+to-at)
		first, last := i0*s.StrideH, (i1-1)*s.StrideH+s.KH // rows of the padded image
		image := room(&w.image, h*row)
		pad(image, x[n*s.H*s.W*s.C:], s.H, s.W, s.C, first-s.PadTop, last-s.PadTop, -s.PadLeft, wide)
		p.windows(image[:(last-first)*row], v, steps, i1-i0, s.OW, y[(at-from)*s.OW*s.F:])
		at += i1 - i0
	}
}

// padded returns the size of an image with its padding, as far as windows see it.
func (s *Conv) padded() (h, w int) { return (s.OH-1)*s.StrideH + s.KH, (s.OW-1)*s.StrideW + s.KW }

// pad copies rows from top to bottom and columns from left to left+width of an image to dst. What is outside the image is zero.
func pad[T Float](dst, image []T, h, w, c, top, bottom, left, width int) {
	clear(dst[:(bottom-top)*width*c])
	from, to := max(0, left), min(w, left+width)
	if from >= to {
		return
	}
	for i := max(0, top); i < min(bottom, h); i++ {
		copy(dst[((i-top)*width+from-left)*c:], image[(i*w+from)*c:(i*w+to)*c])
	}
}

// steps returns room for n steps.
func (w *Workspace[T]) steps(n int) []int {
	if cap(w.deltas) < n {
		w.deltas = make([]int, n+n/4)
	}
	return w.deltas[:n]
}

// windows computes rows × cols rows of C, one for each window on an image.
func (p *product[T]) windows(image []T, v windows, steps []int, rows, cols int, c []T) {
	kc, size := depth[T](), sizeOf[T]()
	at := v.origin
	var t tile
	_ = c[(rows*cols-1)*p.ldc+p.n-1]
	for first := 0; first < len(steps); first += kc {
		k := min(kc, len(steps)-first)
		closes := first+k == len(steps)
		flags := p.flags(first == 0, closes)
		for j0 := 0; j0 < p.n; j0 += p.columns {
			parts := p.parts(j0, min(p.columns, p.n-j0))
			p.readB(&parts, first, k, p.reads(rows*ceil(cols, p.wide)))
			for _, q := range parts {
				if q.cols == 0 {
					continue
				}
				groups := (cols + q.rows - 1) / q.rows
				for i := range rows {
					for g := range groups {
						from, to := g*cols/groups, (g+1)*cols/groups
						p.set(&t, &q, c, i*cols+from, i*cols+to, k, flags)
						t.a, t.aRow = unsafe.Pointer(&image[at+i*v.row+from*v.col]), v.col*size
						t.deltas = unsafe.Pointer(&steps[first])
						multiply[T](p.isa, q.wide, &t)
					}
				}
			}
		}
		for _, d := range steps[first : first+k] {
			at += d / size
		}
		if closes && p.ep.Act > ActReLU {
			all := c[:rows*cols*p.n]
			activate(p.isa, p.ep.Act, all, all)
		}
	}
}

// reads is how often readB is to take B to be read, which so many groups of rows read: as it lies, unless vectors of it lie in two lines of the
// cache. Where its rows are whole lines a copy of it, for each image, saves nothing.
func (p *product[T]) reads(groups int) int {
	const line = 64
	if p.b.row*sizeOf[T]()%line == 0 {
		return 1
	}
	return groups
}

// convInputAsm is convInputGather: a convolution of dy that reads its windows backwards.
func convInputAsm[T Float](isa ISA, s *Conv, dy, filter, dx []T, from, to int, w *Workspace[T]) {
	k := s.KH * s.KW * s.F
	if from >= to || s.W == 0 || s.C == 0 {
		return
	}
	inside(filter, false, s.KH*s.KW*s.C, s.F, s.F)
	turned := room(&w.c, k*s.C)
	turnFilter(isa, s, turned, filter)
	p := product[T]{isa: isa, tiling: tilingOf[T](isa), n: s.C, ldc: s.C, w: w, b: operand[T]{turned, s.C, 1}}
	wide := s.W + s.KW - 1
	row := wide * s.F
	steps := w.steps(k)
	for i := range steps {
		d := 1
		if (i+1)%(s.KW*s.F) == 0 {
			d = -row + (s.KW-1)*s.F - (s.F - 1)
		} else if (i+1)%s.F == 0 {
			d = 1 - 2*s.F
		}
		steps[i] = d * sizeOf[T]()
	}
	v := windows{origin: (s.KH-1)*row + (s.KW-1)*s.F, row: row, col: s.F}
	for at := from; at < to; {
		n, i0 := at/s.H, at%s.H
		i1 := min(s.H, i0+to-at)
		// Row i of dy is i-(KH-1-PadTop) of the padded one.
		top := i0 + s.PadTop - (s.KH - 1)
		rows := i1 - i0 + s.KH - 1
		image := room(&w.image, rows*row)
		pad(image, dy[n*s.OH*s.OW*s.F:], s.OH, s.OW, s.F, top, top+rows, s.PadLeft-(s.KW-1), wide)
		p.windows(image, v, steps, i1-i0, s.W, dx[at*s.W*s.C:])
		at += i1 - i0
	}
}

// turnFilter is turn, by blocks where they fit.
func turnFilter[T Float](isa ISA, s *Conv, dst, filter []T) {
	l := tilingOf[T](isa).lanes
	if s.C%l != 0 {
		turn(s, dst, filter)
		return
	}
	size := sizeOf[T]()
	for q := range s.KH * s.KW {
		for c := 0; c < s.C; c += l {
			turnBlock[T](isa, &block{
				src: unsafe.Pointer(&filter[(q*s.C+c)*s.F]), sRow: s.F * size, rows: l, cols: s.F,
				dst: unsafe.Pointer(&dst[q*s.F*s.C+c]), dRow: s.C * size,
			})
		}
	}
}

// convFilterAsm is Conv2DFilter: rows of A are elements of the window, and k runs over the windows of all images.
func convFilterAsm[T Float](isa ISA, s *Conv, x, dy, dfilter []T, from, to int, w *Workspace[T]) {
	pixels, kc, size := s.N*s.OH*s.OW, depth[T](), sizeOf[T]()
	if from >= to || pixels == 0 || s.F == 0 {
		return
	}
	inside(dy, false, pixels, s.F, s.F)
	inside(dfilter, false, to, s.F, s.F)
	p := product[T]{isa: isa, tiling: tilingOf[T](isa), n: s.F, ldc: s.F, w: w, b: operand[T]{dy, s.F, 1}}
	h, wide := s.padded()
	row, segment := wide*s.C, s.KW*s.C
	var t tile
	for first := 0; first < pixels; first += kc {
		k := min(kc, pixels-first)
		// The images that these windows are on, one after the other.
		n0, n1 := first/(s.OH*s.OW), (first+k-1)/(s.OH*s.OW)+1
		images := room(&w.image, (n1-n0)*h*row)
		for n := n0; n < n1; n++ {
			pad(images[(n-n0)*h*row:], x[n*s.H*s.W*s.C:], s.H, s.W, s.C, -s.PadTop, h-s.PadTop, -s.PadLeft, wide)
		}
		place := func(pixel int) int {
			i, j := pixel/s.OW%s.OH, pixel%s.OW
			return (pixel/(s.OH*s.OW)-n0)*h*row + i*s.StrideH*row + j*s.StrideW*s.C
		}
		steps := w.steps(k)
		for i, at := 0, place(first); i < k; i++ {
			next := at + s.StrideW*s.C
			if (first+i+1)%s.OW == 0 {
				next = place(first + i + 1)
			}
			steps[i] = (next - at) * size
			at = next
		}
		steps[k-1] = 0 // the next window may be on an image that is not here
		flags := p.flags(first == 0, true)
		for j0 := 0; j0 < p.n; j0 += p.columns {
			parts := p.parts(j0, min(p.columns, p.n-j0))
			p.readB(&parts, first, k, p.reads(ceil(to-from, p.wide)))
			for _, q := range parts {
				if q.cols == 0 {
					continue
				}
				for e := from; e < to; {
					// Elements of a window are neighbours as long as they are on one row of the image.
					left := min(to-e, segment-e%segment)
					m := (left + (left+q.rows-1)/q.rows - 1) / ((left + q.rows - 1) / q.rows)
					p.set(&t, &q, dfilter, e, e+m, k, flags)
					t.a, t.aRow = unsafe.Pointer(&images[place(first)+e/segment*row+e%segment]), size
					t.deltas = unsafe.Pointer(&steps[0])
					multiply[T](isa, q.wide, &t)
					e += m
				}
			}
		}
	}
}
