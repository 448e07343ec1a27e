package exec

import (
	"math"
	"slices"

	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A reduction folds groups of adjacent axes, the innermost first: each pass turns [outer, folded, inner] into [outer, inner].
type reduction struct {
	axes   []int
	passes []pass
}

type pass struct{ outer, fold, inner int }

// set finds the passes for sizes dims.
func (r *reduction) set(dims []int) {
	r.passes = r.passes[:0]
	for k := len(r.axes) - 1; k >= 0; {
		last := r.axes[k]
		first := last
		for k--; k >= 0 && r.axes[k] == first-1; k-- {
			first = r.axes[k]
		}
		p := pass{1, 1, 1}
		for i, n := range dims {
			switch {
			case i < first:
				p.outer *= n
			case i <= last:
				p.fold *= n
			case !slices.Contains(r.axes, i): // an earlier pass folded the others
				p.inner *= n
			}
		}
		r.passes = append(r.passes, p)
	}
	if len(r.passes) == 0 {
		n := elements(dims)
		r.passes = append(r.passes, pass{n, 1, 1})
	}
}

// sumAxes are the axes that Sum, Mean, ReduceMax and SumTo fold.
func sumAxes(b *bound) []int {
	if b.n.op != "SumTo" {
		return b.n.attr("axes").Ints
	}
	var axes []int
	in, out := b.n.in[0].typ().Shape, b.n.list.types[0].Shape
	for i, d := range in {
		if k := i - len(in) + len(out); k < 0 || out[k] != d {
			axes = append(axes, i)
		}
	}
	return axes
}

// bindSum is Sum, Mean and SumTo. A large sum of everything is cut into blocks whose sums are folded at the end along one tree; sums of
// rows are cut by rows and sums of columns by columns.
func bindSum[T float](b *bound) {
	r := &reduction{axes: sumAxes(b)}
	mean := b.n.op == "Mean"
	var parts []T
	var bufs [][]T
	divisor := T(1)
	blocks := false
	b.size = func() {
		in := b.in[0]
		r.set(in.dims)
		if out := b.out[0].n; mean && out > 0 {
			divisor = T(in.n / out)
		} else if mean {
			divisor = 0
		}
		first := r.passes[0]
		blocks = false
		switch {
		case len(r.passes) > 1:
			b.whole(float64(in.n) * 6)
			bufs = grow(bufs, r.passes)
		case first.outer == 1 && first.inner == 1 && first.fold > 8*kernel.BlockLen:
			blocks = true
			n := (first.fold + kernel.BlockLen - 1) / kernel.BlockLen
			if len(parts) < n {
				parts = make([]T, n)
			}
			parts = parts[:n]
			b.cut(n, 1, 4*kernel.BlockLen)
		case first.inner == 1:
			b.cut(first.outer, 1, float64(first.fold)*4+8)
		case first.outer == 1:
			b.cut(first.inner, 64, float64(first.fold)*4)
		default:
			b.cut(first.outer, 1, float64(first.fold*first.inner)*4)
		}
	}
	b.run = func(tile int, w *worker) {
		from, to := b.span(tile)
		x, y := flat[T](b.in[0]), flat[T](b.out[0])
		if len(r.passes) > 1 {
			for i, p := range r.passes {
				dst := y
				if i < len(bufs) {
					dst = bufs[i]
				}
				sumPass(b.isa, dst, x, p, 0, p.units())
				x = dst
			}
			if mean {
				kernel.DivScalar(b.isa, y, y, divisor)
			}
			return
		}
		p := r.passes[0]
		if blocks {
			kernel.SumBlocks(b.isa, parts[from:to], x[from*kernel.BlockLen:])
			return
		}
		sumPass(b.isa, y, x, p, from, to)
		if mean {
			lo, hi := p.part(from, to)
			kernel.DivScalar(b.isa, y[lo:hi], y[lo:hi], divisor)
		}
	}
	b.finish = func() {
		if blocks {
			y := flat[T](b.out[0])
			y[0] = kernel.FoldSums(parts)
			if mean {
				kernel.DivScalar(b.isa, y[:1], y[:1], divisor)
			}
		}
	}
}

// part is what a pass writes for units from to to: columns of a single matrix, else whole matrices.
func (p pass) part(from, to int) (int, int) {
	if p.outer == 1 && p.inner != 1 {
		return from, to
	}
	return from * p.inner, to * p.inner
}

// sumPass sums units from to to of a pass: columns when there is one matrix, else matrices.
func sumPass[T float](isa kernel.ISA, dst, src []T, p pass, from, to int) {
	switch {
	case p.fold == 1:
		lo, hi := p.part(from, to)
		copy(dst[lo:hi], src[lo:hi])
	case p.inner == 1:
		kernel.RowSums(isa, dst[from:to], src[from*p.fold:], p.fold)
	case p.outer == 1:
		if to > from {
			kernel.ColSums(isa, dst[from:to], tail(src, from), p.fold, p.inner)
		}
	default:
		for o := from; o < to; o++ {
			if p.inner > 0 {
				kernel.ColSums(isa, dst[o*p.inner:(o+1)*p.inner], tail(src, o*p.fold*p.inner), p.fold, p.inner)
			}
		}
	}
}

func tail[T any](x []T, from int) []T { return x[min(from, len(x)):] }

// units is the number of units that a pass may be cut into.
func (p pass) units() int {
	if p.outer == 1 && p.inner != 1 {
		return p.inner
	}
	return p.outer
}

// grow makes room for the results of all passes but the last.
func grow[T any](bufs [][]T, passes []pass) [][]T {
	for i, p := range passes[:len(passes)-1] {
		if i == len(bufs) {
			bufs = append(bufs, nil)
		}
		if need := p.outer * p.inner; cap(bufs[i]) < need {
			bufs[i] = make([]T, need)
		} else {
			bufs[i] = bufs[i][:need]
		}
	}
	return bufs[:len(passes)-1]
}

// bindReduceMax is the largest element, NaN if there is one, -Inf of none.
func bindReduceMax[T float](b *bound) {
	r := &reduction{axes: sumAxes(b)}
	var bufs [][]T
	b.size = func() {
		r.set(b.in[0].dims)
		bufs = grow(bufs, r.passes)
		p := r.passes[0]
		if len(r.passes) > 1 {
			b.whole(float64(b.in[0].n) * 6)
			return
		}
		b.cut(p.units(), 1, float64(b.in[0].n)*4/float64(max(1, p.units())))
	}
	b.run = func(tile int, _ *worker) {
		x, y := flat[T](b.in[0]), flat[T](b.out[0])
		if len(r.passes) == 1 {
			from, to := b.span(tile)
			maxPass(b.isa, y, x, r.passes[0], from, to)
			return
		}
		for i, p := range r.passes {
			dst := y
			if i < len(bufs) {
				dst = bufs[i]
			}
			maxPass(b.isa, dst, x, p, 0, p.units())
			x = dst
		}
	}
}

func maxPass[T float](isa kernel.ISA, dst, src []T, p pass, from, to int) {
	if p.inner == 1 && p.fold > 1 {
		kernel.RowMax(isa, dst[from:to], src[from*p.fold:], p.fold)
		return
	}
	lo, hi, outer := 0, p.inner, from
	if p.outer == 1 && p.inner != 1 {
		lo, hi, outer = from, to, 0
		to = 1
	}
	for ; outer < to; outer++ {
		d := dst[outer*p.inner:][lo:hi]
		for c := range d {
			d[c] = T(math.Inf(-1))
		}
		for f := range p.fold {
			for c, v := range src[(outer*p.fold+f)*p.inner:][lo:hi] {
				if v > d[c] || v != v {
					d[c] = v
				}
			}
		}
	}
}

// bindArgMax is the first largest element along an axis; the first NaN, if there is one.
func bindArgMax[T float](b *bound) {
	axis := b.n.attr("axis").I
	var p pass
	b.size = func() {
		p = pass{1, 1, 1}
		for i, d := range b.in[0].dims {
			switch {
			case i < axis:
				p.outer *= d
			case i == axis:
				p.fold = d
			default:
				p.inner *= d
			}
		}
		b.cut(p.outer, 1, float64(p.fold*p.inner)*4)
	}
	b.run = func(tile int, _ *worker) {
		from, to := b.span(tile)
		x, y := flat[T](b.in[0]), flat[int64](b.out[0])
		if p.inner == 1 {
			if from < to {
				kernel.RowArgMax(b.isa, y[from:to], x[from*p.fold:], p.fold)
			}
			return
		}
		for o := from; o < to; o++ {
			for c := range p.inner {
				best, at := T(math.Inf(-1)), int64(-1)
				for f := range p.fold {
					v := x[(o*p.fold+f)*p.inner+c]
					if at < 0 || v > best || v != v {
						best, at = v, int64(f)
					}
					if v != v {
						break
					}
				}
				y[o*p.inner+c] = at
			}
		}
	}
}
