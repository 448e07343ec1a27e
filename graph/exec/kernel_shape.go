package exec

import (
	"fmt"
	"unsafe"

	"github.com/trivium-ml/trivium/graph"
)

// Kernels that move elements do not care for their type: they copy bytes.

func bindCopy(b *bound) {
	b.run = func(tile int, _ *worker) {
		from, to := b.span(tile)
		size := b.out[0].dt.Size()
		copy(b.out[0].bytes()[from*size:to*size], b.in[0].bytes()[from*size:to*size])
	}
}

// bindSize writes the number of elements of a shape that is known by now.
func bindSize(b *bound) {
	shape := b.n.attr("of").Shape
	b.size = func() { b.whole(1) }
	b.run = func(int, *worker) {
		n := int64(1)
		for _, d := range shape {
			size := b.x.sizeOf(d)
			if size < 0 {
				panic(userError{fmt.Sprintf("no feed gives the size of axis %v", d)})
			}
			n *= int64(size)
		}
		one := slot{p: unsafe.Pointer(&n), n: 1, dt: graph.I64}
		castRange(b.out[0], &one, 0, 1)
	}
}

// A gatherer copies elements in an order given by strides: axis i of the result advances the source by strides[i] elements.
type gatherer struct {
	strides []int
	origin  int
}

// bindStrided is Transpose, BroadcastTo and Slice: a result whose rows are copied from places that stride through the operand.
func bindStrided[T any](set func(b *bound, g *gatherer)) func(b *bound) {
	return func(b *bound) {
		g := &gatherer{strides: make([]int, len(b.out[0].dims))}
		inner, step := 1, 1
		b.size = func() {
			clear(g.strides)
			g.origin = 0
			set(b, g)
			inner, step = 1, 1
			if r := len(b.out[0].dims); r > 0 {
				inner, step = b.out[0].dims[r-1], g.strides[r-1]
			}
			if inner == 0 {
				b.cut(0, 1, 1)
				return
			}
			b.cut(b.out[0].n/inner, 1, float64(inner*b.out[0].dt.Size())*2)
		}
		b.run = func(tile int, _ *worker) {
			from, to := b.span(tile)
			dst, src := flat[T](b.out[0]), flat[T](b.in[0])
			dims := b.out[0].dims
			for row := from; row < to; row++ {
				at, left := g.origin, row
				for axis := len(dims) - 2; axis >= 0; axis-- {
					at += left % dims[axis] * g.strides[axis]
					left /= dims[axis]
				}
				d := dst[row*inner:][:inner]
				switch step {
				case 1:
					copy(d, src[at:at+inner])
				case 0:
					v := src[at]
					for i := range d {
						d[i] = v
					}
				default:
					for i := range d {
						d[i] = src[at]
						at += step
					}
				}
			}
		}
	}
}

func stridedBySize(set func(b *bound, g *gatherer)) func(b *bound) {
	return bySize(bindStrided[uint8](set), bindStrided[uint16](set), bindStrided[uint32](set), bindStrided[uint64](set))
}

// rowMajor writes the strides of dims.
func rowMajor(strides, dims []int) {
	s := 1
	for i := len(dims) - 1; i >= 0; i-- {
		strides[i] = s
		s *= dims[i]
	}
}

func transposeStrides(b *bound, g *gatherer) {
	var buf [32]int
	rowMajor(buf[:len(b.in[0].dims)], b.in[0].dims)
	for i, a := range b.n.attr("perm").Ints {
		g.strides[i] = buf[a]
	}
}

func broadcastStrides(b *bound, g *gatherer) {
	s := 1
	in, out := b.in[0].dims, b.out[0].dims
	for i := len(in) - 1; i >= 0; i-- {
		if in[i] != 1 {
			g.strides[i+len(out)-len(in)] = s
		}
		s *= in[i]
	}
}

func sliceStrides(b *bound, g *gatherer) {
	var buf [32]int
	in := b.in[0].dims
	rowMajor(buf[:len(in)], in)
	start, stop, step := b.n.attr("start").Ints, b.n.attr("stop").Ints, b.n.attr("step").Ints
	for i := range in {
		first, _, err := graph.ResolveSlice(start[i], stop[i], step[i], in[i])
		if err != nil {
			b.sizeErr = fmt.Errorf("axis %d: %w", i, err)
			return
		}
		g.origin += first * buf[i]
		g.strides[i] = buf[i] * step[i]
	}
}

// bindSliceGrad writes zeros and then the operand's elements where Slice took them from.
func bindSliceGrad[T any](b *bound) {
	strides := make([]int, len(b.out[0].dims))
	origin := 0
	b.size = func() {
		rowMajor(strides, b.out[0].dims)
		origin = 0
		start, stop, step := b.n.attr("start").Ints, b.n.attr("stop").Ints, b.n.attr("step").Ints
		for i, d := range b.out[0].dims {
			first, _, err := graph.ResolveSlice(start[i], stop[i], step[i], d)
			if err != nil {
				b.sizeErr = fmt.Errorf("axis %d: %w", i, err)
				return
			}
			origin += first * strides[i]
			strides[i] *= step[i]
		}
		b.whole(float64(b.out[0].n*b.out[0].dt.Size()) + float64(b.in[0].n*b.out[0].dt.Size()))
	}
	b.run = func(int, *worker) {
		dst, src := flat[T](b.out[0]), flat[T](b.in[0])
		clear(dst)
		dims := b.in[0].dims
		inner, step := 1, 1
		if r := len(dims); r > 0 {
			inner, step = dims[r-1], strides[r-1]
		}
		for from := 0; from < len(src); from += inner {
			at, left := origin, from/inner
			for axis := len(dims) - 2; axis >= 0; axis-- {
				at += left % dims[axis] * strides[axis]
				left /= dims[axis]
			}
			if step == 1 {
				copy(dst[at:], src[from:from+inner])
				continue
			}
			for _, v := range src[from : from+inner] {
				dst[at] = v
				at += step
			}
		}
	}
}

// bindConcat copies operands side by side: for each index of the axes before the joined one, a run of each operand.
func bindConcat(b *bound) {
	axis := b.n.attr("axis").I
	outer, width := 1, 0
	b.size = func() {
		outer = elements(b.out[0].dims[:axis])
		width = elements(b.out[0].dims[axis:]) * b.out[0].dt.Size()
		b.cut(outer, 1, float64(2*width)+20)
	}
	b.run = func(tile int, _ *worker) {
		from, to := b.span(tile)
		out := b.out[0].bytes()
		for o := from; o < to; o++ {
			at := o * width
			for _, s := range b.in {
				n := elements(s.dims[axis:]) * s.dt.Size()
				copy(out[at:at+n], s.bytes()[o*n:(o+1)*n])
				at += n
			}
		}
	}
}

// bindOneHot writes 1 at each index of a new last axis.
func bindOneHot[T number](b *bound) {
	b.size = func() { b.whole(float64(b.out[0].n * b.out[0].dt.Size())) }
	b.run = func(_ int, w *worker) {
		out := flat[T](b.out[0])
		depth := b.n.attr("depth").I
		clear(out)
		for i, k := range indices32(b.in[0], &w.ints) {
			if k < 0 || int(k) >= depth {
				badIndex("index", i, b.in[0].whole(i), depth)
			}
			out[i*depth+int(k)] = 1
		}
	}
}

func oneHotByType(b *bound) {
	switch b.out[0].dt {
	case graph.F32:
		bindOneHot[float32](b)
	case graph.F64:
		bindOneHot[float64](b)
	case graph.I32:
		bindOneHot[int32](b)
	case graph.I64:
		bindOneHot[int64](b)
	default:
		bindOneHot[uint8](b)
	}
}

// bindGather copies rows of a table by index.
func bindGather(b *bound) {
	row := 0
	b.size = func() {
		row = elements(b.in[0].dims[1:]) * b.in[0].dt.Size()
		b.cut(b.in[1].n, 1, float64(2*row)+8)
	}
	b.run = func(tile int, w *worker) {
		from, to := b.span(tile)
		rows := b.in[0].dims[0]
		part := *b.in[1]
		shift(&part, from, to-from)
		out, table := b.out[0].bytes(), b.in[0].bytes()
		for i, k := range indices32(&part, &w.ints) {
			if k < 0 || int(k) >= rows {
				badIndex("index", from+i, part.whole(i), rows)
			}
			copy(out[(from+i)*row:(from+i+1)*row], table[int(k)*row:])
		}
	}
}

// bindScatterAdd adds rows at indices, in the order of their position; tiles share the columns, or do without sharing.
func bindScatterAdd[T float](b *bound) {
	row := 0
	b.size = func() {
		row = elements(b.in[0].dims[1:])
		b.whole(float64(b.out[0].n*b.out[0].dt.Size()) + float64(b.in[2].n)*12)
	}
	b.run = func(_ int, w *worker) {
		out, in := flat[T](b.out[0]), flat[T](b.in[0])
		rows := b.in[0].dims[0]
		if len(out) > 0 && &out[0] != &in[0] {
			copy(out, in)
		}
		values := flat[T](b.in[2])
		for i, k := range indices32(b.in[1], &w.ints) {
			if k < 0 || int(k) >= rows {
				badIndex("index", i, b.in[1].whole(i), rows)
			}
			d := out[int(k)*row:][:row]
			addInto(b.isa, d, values[i*row:(i+1)*row])
		}
	}
}
