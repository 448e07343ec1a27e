package exec

import (
	"unsafe"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// An ewise is an element-wise operation on floats: vector kernels for one or two operands, and where there are some, for a vector and a
// scalar (vs) and a scalar and a vector (sv). All of them give an element the same bits.
type ewise[T float] struct {
	unary  func(isa kernel.ISA, dst, x []T)
	binary func(isa kernel.ISA, dst, a, b []T)
	vs     func(isa kernel.ISA, dst, a []T, s T)
	sv     func(isa kernel.ISA, dst []T, s T, b []T)
}

type ewiseRow struct {
	arity int
	cost  float64 // per element, in scalar operations or bytes
	f32   ewise[float32]
	f64   ewise[float64]
}

func unaryRow(cost float64, f32 func(kernel.ISA, []float32, []float32), f64 func(kernel.ISA, []float64, []float64)) ewiseRow {
	return ewiseRow{1, cost, ewise[float32]{unary: f32}, ewise[float64]{unary: f64}}
}

func binaryRow(a ewise[float32], b ewise[float64]) ewiseRow { return ewiseRow{2, 12, a, b} }

// elementwise is every operation that Fused nodes can be made of.
var elementwise = map[string]ewiseRow{
	"Add":         binaryRow(addOps[float32](), addOps[float64]()),
	"Sub":         binaryRow(subOps[float32](), subOps[float64]()),
	"Mul":         binaryRow(mulOps[float32](), mulOps[float64]()),
	"Div":         binaryRow(divOps[float32](), divOps[float64]()),
	"Max":         binaryRow(ewise[float32]{binary: kernel.Max[float32], sv: scalarMax[float32]}, ewise[float64]{binary: kernel.Max[float64], sv: scalarMax[float64]}),
	"ReLUGrad":    binaryRow(ewise[float32]{binary: kernel.ReLUGrad[float32]}, ewise[float64]{binary: kernel.ReLUGrad[float64]}),
	"TanhGrad":    binaryRow(ewise[float32]{binary: kernel.TanhGrad[float32]}, ewise[float64]{binary: kernel.TanhGrad[float64]}),
	"SigmoidGrad": binaryRow(ewise[float32]{binary: kernel.SigmoidGrad[float32]}, ewise[float64]{binary: kernel.SigmoidGrad[float64]}),
	"Neg":         unaryRow(8, kernel.Neg[float32], kernel.Neg[float64]),
	"Exp":         unaryRow(20, kernel.Exp[float32], kernel.Exp[float64]),
	"Log":         unaryRow(20, kernel.Log[float32], kernel.Log[float64]),
	"Sqrt":        unaryRow(12, kernel.Sqrt[float32], kernel.Sqrt[float64]),
	"Square":      unaryRow(8, kernel.Square[float32], kernel.Square[float64]),
	"Tanh":        unaryRow(30, kernel.Tanh[float32], kernel.Tanh[float64]),
	"Sigmoid":     unaryRow(30, kernel.Sigmoid[float32], kernel.Sigmoid[float64]),
	"ReLU":        unaryRow(8, kernel.ReLU[float32], kernel.ReLU[float64]),
}

func addOps[T float]() ewise[T] {
	return ewise[T]{
		binary: kernel.Add[T], vs: kernel.AddScalar[T],
		sv: func(isa kernel.ISA, dst []T, s T, b []T) { kernel.AddScalar(isa, dst, b, s) },
	}
}

func subOps[T float]() ewise[T] {
	return ewise[T]{
		binary: kernel.Sub[T], vs: func(isa kernel.ISA, dst, a []T, s T) { kernel.AddScalar(isa, dst, a, -s) },
		sv: func(isa kernel.ISA, dst []T, s T, b []T) { kernel.ScalarSub(isa, dst, b, s) },
	}
}

func mulOps[T float]() ewise[T] {
	return ewise[T]{
		binary: kernel.Mul[T], vs: kernel.Scale[T],
		sv: func(isa kernel.ISA, dst []T, s T, b []T) { kernel.Scale(isa, dst, b, s) },
	}
}

func divOps[T float]() ewise[T] {
	return ewise[T]{
		binary: kernel.Div[T], vs: kernel.DivScalar[T],
		sv: func(isa kernel.ISA, dst []T, s T, b []T) { kernel.ScalarDiv(isa, dst, b, s) },
	}
}

func scalarMax[T float](isa kernel.ISA, dst []T, s T, b []T) {
	if s != s { // NaN beside any number, where MaxScalar gives the number
		kernel.Fill(isa, dst, s)
		return
	}
	kernel.MaxScalar(isa, dst, b, s)
}

func ewiseOf[T float](op string) (e *ewise[T], row ewiseRow) {
	row = elementwise[op]
	var x T
	if _, ok := any(x).(float32); ok {
		return any(&row.f32).(*ewise[T]), row
	}
	return any(&row.f64).(*ewise[T]), row
}

func bindUnary[T float](b *bound) {
	e, row := ewiseOf[T](b.n.op)
	b.size = func() { b.cut(b.out[0].n, 64, row.cost) }
	b.run = func(tile int, _ *worker) {
		from, to := b.span(tile)
		e.unary(b.isa, flat[T](b.out[0])[from:to], flat[T](b.in[0])[from:to])
	}
}

// apply is one vector of a binary operation, operands of which may be scalars.
func (e *ewise[T]) apply(isa kernel.ISA, dst, x, y []T, xs, ys bool, scratch []T) {
	switch {
	case !xs && !ys:
		e.binary(isa, dst, x, y)
	case ys && !xs && e.vs != nil:
		e.vs(isa, dst, x, y[0])
	case xs && !ys && e.sv != nil:
		e.sv(isa, dst, x[0], y)
	default:
		for len(dst) > 0 {
			n := min(len(dst), len(scratch)/2)
			a, b := x, y
			if xs {
				a = scratch[:n]
				kernel.Fill(isa, a, x[0])
			} else {
				x = x[n:]
			}
			if ys {
				b = scratch[n : 2*n]
				kernel.Fill(isa, b, y[0])
			} else {
				y = y[n:]
			}
			e.binary(isa, dst[:n], a[:n], b[:n])
			dst = dst[n:]
		}
	}
}

func bindBinary[T float](b *bound) {
	e, row := ewiseOf[T](b.n.op)
	l := newLoops(b)
	b.size = func() { l.cut(b, row.cost) }
	b.run = func(tile int, w *worker) {
		dst, x, y := flat[T](b.out[0]), flat[T](b.in[0]), flat[T](b.in[1])
		if l.rows <= 1 { // one vector, cut by elements
			from, to := b.span(tile)
			if from == to {
				return
			}
			if l.steps[0] == 1 {
				x = x[from:to]
			}
			if l.steps[1] == 1 {
				y = y[from:to]
			}
			e.apply(b.isa, dst[from:to], x, y, l.steps[0] == 0, l.steps[1] == 0, registers[T](w, 2*block))
			return
		}
		from, to := b.span(tile)
		for row := from; row < to; row++ {
			at := l.at(row)
			e.apply(b.isa, dst[row*l.inner:][:l.inner], x[at[0]:], y[at[1]:], l.steps[0] == 0, l.steps[1] == 0, registers[T](w, 2*block))
		}
	}
}

// registers is n elements of the thread's scratch.
func registers[T any](w *worker, n int) []T {
	var x T
	if need := n * int(unsafe.Sizeof(x)); len(w.regs) < need {
		w.regs = alignedBytes(need)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(w.regs))), n)
}

// A loops walks broadcast operands: the result is rows of inner elements, and in a row each operand is a vector (step 1) or a scalar
// (step 0). Adjacent axes that all operands walk alike are one.
type loops struct {
	dims    []int    // of the rows, outermost first
	strides [3][]int // of each operand, per axis of dims
	steps   [3]int
	inner   int
	rows    int
	ops     int
	buf     [4][]int
}

func newLoops(b *bound) *loops {
	l := &loops{ops: len(b.in)}
	for i := range l.buf {
		l.buf[i] = make([]int, 0, len(b.out[0].dims)+1)
	}
	return l
}

// cut works the loops out for the sizes of now, and cuts rows, or the elements of a single row, into tiles.
func (l *loops) cut(b *bound, cost float64) {
	l.set(b.out[0].dims, b.in)
	if l.rows <= 1 {
		b.cut(l.inner*l.rows, 64, cost)
	} else {
		b.cut(l.rows, 1, cost*float64(l.inner)+20)
	}
}

func (l *loops) set(out []int, in []*slot) {
	l.dims = l.buf[0][:0]
	for k := range l.ops {
		l.strides[k] = l.buf[k+1][:0]
	}
	var stride [3]int
	for k := range l.ops {
		stride[k] = 1
	}
	// From the innermost axis outwards; the lists are reversed at the end.
	for axis := len(out) - 1; axis >= 0; axis-- {
		n := out[axis]
		if n == 1 {
			continue
		}
		var s [3]int
		for k := range l.ops {
			d := in[k].dims
			if i := axis - len(out) + len(d); i >= 0 && d[i] != 1 {
				s[k] = stride[k]
				stride[k] *= d[i]
			}
		}
		if last := len(l.dims) - 1; last >= 0 && l.joins(last, s) {
			l.dims[last] *= n
			continue
		}
		l.dims = append(l.dims, n)
		for k := range l.ops {
			l.strides[k] = append(l.strides[k], s[k])
		}
	}
	l.inner, l.rows = 1, 1
	if len(l.dims) > 0 {
		l.inner = l.dims[0]
		for k := range l.ops {
			l.steps[k] = min(l.strides[k][0], 1)
		}
		for _, n := range l.dims[1:] {
			l.rows *= n
		}
		if l.inner == 0 {
			l.rows = 0
		}
		return
	}
	for k := range l.ops {
		l.steps[k] = 1 // one element: a vector of length 1
	}
}

// joins says whether an axis with strides s continues the axis before it for every operand.
func (l *loops) joins(last int, s [3]int) bool {
	for k := range l.ops {
		if s[k] != l.strides[k][last]*l.dims[last] {
			return false
		}
	}
	return true
}

// at is where each operand's part of a row begins.
func (l *loops) at(row int) (at [3]int) {
	for axis := 1; axis < len(l.dims); axis++ { // dims are innermost first
		i := row % l.dims[axis]
		row /= l.dims[axis]
		for k := range l.ops {
			at[k] += i * l.strides[k][axis]
		}
	}
	return at
}

// bindCompare is Less and Equal.
func bindCompare[T number](less bool) func(b *bound) {
	return func(b *bound) {
		l := newLoops(b)
		b.size = func() { l.cut(b, 12) }
		b.run = func(tile int, _ *worker) {
			dst, x, y := flat[bool](b.out[0]), flat[T](b.in[0]), flat[T](b.in[1])
			l.each(b, tile, func(d, n int, at [3]int) {
				u, v := x[at[0]:], y[at[1]:]
				if less {
					for i := range n {
						dst[d+i] = u[i*l.steps[0]] < v[i*l.steps[1]]
					}
					return
				}
				for i := range n {
					dst[d+i] = u[i*l.steps[0]] == v[i*l.steps[1]]
				}
			})
		}
	}
}

// each calls f for each vector of a tile: where it begins in the result, its length, and where it begins in the operands.
func (l *loops) each(b *bound, tile int, f func(dst, n int, at [3]int)) {
	from, to := b.span(tile)
	if l.rows <= 1 {
		if to > from {
			f(from, to-from, [3]int{from * l.steps[0], from * l.steps[1], from * l.steps[2]})
		}
		return
	}
	for row := from; row < to; row++ {
		f(row*l.inner, l.inner, l.at(row))
	}
}

// bindWhere moves elements of any size.
func bindWhere[T any](b *bound) {
	l := newLoops(b)
	b.size = func() { l.cut(b, 16) }
	b.run = func(tile int, _ *worker) {
		dst, c, x, y := flat[T](b.out[0]), flat[bool](b.in[0]), flat[T](b.in[1]), flat[T](b.in[2])
		l.each(b, tile, func(d, n int, at [3]int) {
			cs, u, v := c[at[0]:], x[at[1]:], y[at[2]:]
			for i := range n {
				if cs[i*l.steps[0]] {
					dst[d+i] = u[i*l.steps[1]]
				} else {
					dst[d+i] = v[i*l.steps[2]]
				}
			}
		})
	}
}

// bySize binds the instantiation that moves elements of the result's size.
func bySize(b1, b2, b4, b8 func(b *bound)) func(b *bound) {
	return func(b *bound) {
		switch b.out[0].dt.Size() {
		case 1:
			b1(b)
		case 2:
			b2(b)
		case 4:
			b4(b)
		default:
			b8(b)
		}
	}
}

func bindComparison(less bool) func(b *bound) {
	return func(b *bound) {
		switch b.in[0].dt {
		case graph.F32:
			bindCompare[float32](less)(b)
		case graph.F64:
			bindCompare[float64](less)(b)
		case graph.I32:
			bindCompare[int32](less)(b)
		case graph.I64:
			bindCompare[int64](less)(b)
		default: // U8, and Bool, where false < true
			bindCompare[uint8](less)(b)
		}
	}
}
