package exec

import (
	"github.com/trivium-ml/trivium/tensor/kernel"
)

func addInto[T float](isa kernel.ISA, p, u []T) { kernel.AddInto(isa, p, u) }

// rowsOf sizes a node that works on rows of the last axis.
func rowsOf(b *bound, s *slot, cost float64) (cols int) {
	cols = 1
	if r := len(s.dims); r > 0 {
		cols = s.dims[r-1]
	}
	rows := 0
	if cols > 0 {
		rows = s.n / cols
	}
	b.cut(rows, 1, float64(cols)*cost)
	return cols
}

func bindSoftmax[T float](b *bound) {
	cols := 0
	b.size = func() { cols = rowsOf(b, b.out[0], 30) }
	b.run = func(tile int, _ *worker) {
		from, to := b.span(tile)
		kernel.Softmax(b.isa, flat[T](b.out[0])[from*cols:to*cols], flat[T](b.in[0])[from*cols:to*cols], cols)
	}
}

func bindSoftmaxGrad[T float](b *bound) {
	cols := 0
	b.size = func() { cols = rowsOf(b, b.out[0], 12) }
	b.run = func(tile int, _ *worker) {
		from, to := b.span(tile)
		kernel.SoftmaxGrad(b.isa, flat[T](b.out[0])[from*cols:to*cols], flat[T](b.in[0])[from*cols:to*cols], flat[T](b.in[1])[from*cols:to*cols], cols)
	}
}

// rowsOfLabels sizes a node that works on rows that each have a label: also where there are no classes, so that labels are refused.
func rowsOfLabels(b *bound, cost float64) (cols int) {
	cols = b.in[0].dims[1]
	b.cut(b.in[1].n, 1, float64(cols)*cost)
	return cols
}

// labelsOf are the classes of rows from to to, checked.
func labelsOf(s *slot, from, to, classes int, w *worker) []int32 {
	part := *s
	shift(&part, from, to-from)
	labels := indices32(&part, &w.ints)
	for i, k := range labels {
		if k < 0 || int(k) >= classes {
			badIndex("label", from+i, part.whole(i), classes)
		}
	}
	return labels
}

func bindXent[T float](b *bound) {
	cols := 0
	b.size = func() { cols = rowsOfLabels(b, 30) }
	b.run = func(tile int, w *worker) {
		from, to := b.span(tile)
		x := flat[T](b.in[0])[from*cols : to*cols]
		labels := labelsOf(b.in[1], from, to, cols, w)
		kernel.SoftmaxCrossEntropy(b.isa, flat[T](b.out[0])[from:to], nil, x, labels, nil, cols)
	}
}

// bindXentGrad has the gradient as its only result; the loss goes to scratch.
func bindXentGrad[T float](b *bound) {
	cols := 0
	b.size = func() { cols = rowsOfLabels(b, 30) }
	b.run = func(tile int, w *worker) {
		from, to := b.span(tile)
		xentGrad(b, registers[T](w, to-from)[:to-from], flat[T](b.out[0]), from, to, cols, w)
	}
}

// xentGrad computes rows from to to of the losses and, times dy, of the gradients.
func xentGrad[T float](b *bound, loss, dx []T, from, to, cols int, w *worker) {
	x, g := flat[T](b.in[0])[from*cols:to*cols], dx[from*cols:to*cols]
	kernel.SoftmaxCrossEntropy(b.isa, loss, g, x, labelsOf(b.in[1], from, to, cols, w), nil, cols)
	for r, d := range flat[T](b.in[2])[from:to] {
		if d != 1 { // most are: a loss that is a sum of rows
			row := g[r*cols : (r+1)*cols]
			kernel.Scale(b.isa, row, row, d)
		}
	}
}

// bindXentBoth computes loss and gradient in one pass.
func bindXentBoth[T float](b *bound) {
	cols := 0
	b.size = func() { cols = rowsOfLabels(b, 34) }
	b.run = func(tile int, w *worker) {
		from, to := b.span(tile)
		xentGrad(b, flat[T](b.out[0])[from:to], flat[T](b.out[1]), from, to, cols, w)
	}
}

// rowsOfFirst sizes a node that works on rows of the first axis.
func rowsOfFirst(b *bound, s *slot, cost float64) (cols int) {
	rows := s.dims[0]
	if rows > 0 {
		cols = s.n / rows
	}
	b.cut(rows, 1, float64(cols)*cost)
	return cols
}

// bindSigmoidXent sums each row's losses, of which there is usually one.
func bindSigmoidXent[T float](b *bound) {
	cols := 0
	b.size = func() { cols = rowsOfFirst(b, b.in[0], 40) }
	b.run = func(tile int, w *worker) {
		from, to := b.span(tile)
		x, t, y := flat[T](b.in[0])[from*cols:to*cols], flat[T](b.in[1])[from*cols:to*cols], flat[T](b.out[0])[from:to]
		if cols == 1 {
			kernel.SigmoidCrossEntropy(b.isa, y, nil, x, t, nil)
			return
		}
		buf := registers[T](w, cols)[:cols]
		for r := range y {
			kernel.SigmoidCrossEntropy(b.isa, buf, nil, x[r*cols:(r+1)*cols], t[r*cols:(r+1)*cols], nil)
			y[r] = kernel.Sum(b.isa, buf)
		}
	}
}

func bindSigmoidXentGrad[T float](b *bound) {
	cols := 0
	b.size = func() { cols = rowsOfFirst(b, b.in[0], 40) }
	b.run = func(tile int, w *worker) {
		from, to := b.span(tile)
		x, t, g := flat[T](b.in[0])[from*cols:to*cols], flat[T](b.in[1])[from*cols:to*cols], flat[T](b.out[0])[from*cols:to*cols]
		dy := flat[T](b.in[2])[from:to]
		if cols == 1 {
			kernel.SigmoidCrossEntropy(b.isa, registers[T](w, len(x))[:len(x)], g, x, t, dy)
			return
		}
		buf := registers[T](w, cols)[:cols]
		for r, d := range dy {
			row := g[r*cols : (r+1)*cols]
			kernel.SigmoidCrossEntropy(b.isa, buf, row, x[r*cols:(r+1)*cols], t[r*cols:(r+1)*cols], nil)
			kernel.Scale(b.isa, row, row, d)
		}
	}
}

// convShape is the geometry of a convolution node: images, filters and results by their sizes.
func convShape(n *node, x, f, y []int) kernel.Conv {
	s, p := n.attr("strides").Ints, n.attr("pads").Ints
	return kernel.Conv{
		N: x[0], H: x[1], W: x[2], C: x[3], KH: f[0], KW: f[1], F: f[3], StrideH: s[0], StrideW: s[1],
		PadTop: p[0], PadLeft: p[2], OH: y[1], OW: y[2],
	}
}

func bindConv[T float](b *bound) {
	act := kernelActivations[b.n.act]
	var s kernel.Conv
	b.size = func() {
		s = convShape(b.n, b.in[0].dims, b.in[1].dims, b.out[0].dims)
		b.cut(s.N*s.OH, 1, 2*float64(s.OW*s.KH*s.KW*s.C*s.F)/gemmRate)
	}
	b.run = func(tile int, w *worker) {
		from, to := b.span(tile)
		ep := kernel.Epilogue[T]{Act: act}
		if len(b.in) == 3 {
			ep.Bias = flat[T](b.in[2])
		}
		kernel.Conv2D(b.isa, &s, flat[T](b.in[0]), flat[T](b.in[1]), flat[T](b.out[0]), from, to, ep, workspace[T](w))
	}
}

func bindConvInput[T float](b *bound) {
	var s kernel.Conv
	b.size = func() {
		s = convShape(b.n, b.out[0].dims, b.in[1].dims, b.in[0].dims)
		unit := 1
		if s.N >= b.x.threads { // whole images: a result that two tiles take part in is computed by both
			unit = max(s.H, 1)
		}
		b.cut(s.N*s.H, unit, 2*float64(s.OH*s.OW*s.KH*s.KW*s.C*s.F)/float64(max(s.H, 1))/gemmRate)
	}
	b.run = func(tile int, w *worker) {
		from, to := b.span(tile)
		kernel.Conv2DInput(b.isa, &s, flat[T](b.in[0]), flat[T](b.in[1]), flat[T](b.out[0]), from, to, workspace[T](w))
	}
}

func bindConvFilter[T float](b *bound) {
	var s kernel.Conv
	b.size = func() {
		s = convShape(b.n, b.in[0].dims, b.out[0].dims, b.in[1].dims)
		b.cutForThreads(s.KH*s.KW*s.C, 1, 2*float64(s.N*s.OH*s.OW*s.F)/gemmRate) // each gathers patches
	}
	b.run = func(tile int, w *worker) {
		from, to := b.span(tile)
		kernel.Conv2DFilter(b.isa, &s, flat[T](b.in[0]), flat[T](b.in[1]), flat[T](b.out[0]), from, to, workspace[T](w))
	}
}

func poolShape(n *node, x, y []int) kernel.Pool2D {
	k, s, p := n.attr("window").Ints, n.attr("strides").Ints, n.attr("pads").Ints
	return kernel.Pool2D{H: x[1], W: x[2], C: x[3], KH: k[0], KW: k[1], SH: s[0], SW: s[1], PadTop: p[0], PadLeft: p[2], OH: y[1], OW: y[2]}
}

func bindMaxPool[T float](b *bound) {
	var s kernel.Pool2D
	b.size = func() {
		s = poolShape(b.n, b.in[0].dims, b.out[0].dims)
		b.cut(b.in[0].dims[0], 1, float64(s.OH*s.OW*s.C*s.KH*s.KW)*2)
	}
	b.run = func(tile int, _ *worker) {
		from, to := b.span(tile)
		in, out := s.H*s.W*s.C, s.OH*s.OW*s.C
		kernel.MaxPool(b.isa, flat[T](b.out[0])[from*out:to*out], flat[int32](b.out[1])[from*out:to*out], flat[T](b.in[0])[from*in:to*in], to-from, s)
	}
}

func bindMaxPoolGrad[T float](b *bound) {
	var s kernel.Pool2D
	b.size = func() {
		s = poolShape(b.n, b.out[0].dims, b.in[0].dims)
		b.cut(b.out[0].dims[0], 1, float64((s.OH*s.OW+s.H*s.W)*s.C)*4)
	}
	b.run = func(tile int, _ *worker) {
		from, to := b.span(tile)
		in, out := s.H*s.W*s.C, s.OH*s.OW*s.C
		offsets := flat[int32](b.in[1])[from*out : to*out]
		for i, at := range offsets { // which may be fed
			if int(at) >= in {
				badIndex("offset", from*out+i, int64(at), in)
			}
		}
		kernel.MaxPoolGrad(b.isa, flat[T](b.out[0])[from*in:to*in], flat[T](b.in[0])[from*out:to*out], offsets, to-from, s)
	}
}

// bindDropout draws the mask from the step's key, the node and the element's number, so that any tile can draw its part.
func bindDropout[T float](b *bound) {
	rate, id := b.n.attr("rate").F, b.n.src.ID
	b.size = func() { b.cut(b.out[0].n, 64, 20) }
	b.run = func(tile int, _ *worker) {
		from, to := b.span(tile)
		x, y, mask := flat[T](b.in[0])[from:to], flat[T](b.out[0])[from:to], flat[T](b.out[1])[from:to]
		kernel.Fill(b.isa, mask, 1)
		kernel.Dropout(b.isa, mask, mask, rate, b.x.dropoutKey(id), int64(from))
		kernel.Mul(b.isa, y, x, mask)
	}
}

// bindLSTM is one step of the cell: z = x·wx + h·wh + b in the gates' memory, activated in place. Rows are independent.
func bindLSTM[T float](b *bound) {
	var units, in int
	b.size = func() {
		units, in = b.out[0].dims[1], b.in[0].dims[1]
		b.cutForThreads(b.out[0].dims[0], 1, float64(4*units)*(2*float64(in+units)/gemmRate+30)) // each packs the weights
	}
	b.run = func(tile int, w *worker) {
		from, to := b.span(tile)
		rows, gates := to-from, 4*units
		if rows <= 0 || units == 0 {
			return
		}
		x, h, c := tail(flat[T](b.in[0]), from*in), flat[T](b.in[1])[from*units:], flat[T](b.in[2])[from*units:]
		z := flat[T](b.out[2])[from*gates : to*gates]
		ws := workspace[T](w)
		kernel.Gemm(b.isa, false, false, rows, gates, in, x, max(in, 1), flat[T](b.in[3]), gates, z, gates, kernel.Epilogue[T]{}, ws)
		kernel.Gemm(b.isa, false, false, rows, gates, units, h, units, flat[T](b.in[4]), gates, z, gates,
			kernel.Epilogue[T]{Accumulate: true, Bias: flat[T](b.in[5])}, ws)
		h1, c1 := flat[T](b.out[0])[from*units:], flat[T](b.out[1])[from*units:]
		t := registers[T](w, units)[:units]
		for r := range rows {
			g := z[r*gates : (r+1)*gates]
			at := r * units
			kernel.Sigmoid(b.isa, g[:2*units], g[:2*units])
			kernel.Tanh(b.isa, g[2*units:3*units], g[2*units:3*units])
			kernel.Sigmoid(b.isa, g[3*units:], g[3*units:])
			cell := c1[at : at+units]
			kernel.Mul(b.isa, t, g[:units], g[2*units:3*units])
			kernel.Mul(b.isa, cell, g[units:2*units], c[at:at+units])
			kernel.Add(b.isa, cell, cell, t)
			kernel.Tanh(b.isa, t, cell)
			kernel.Mul(b.isa, h1[at:at+units], g[3*units:], t)
		}
	}
}

// bindLSTMGrad is the gradient of a cell's z and c:
//
//	t = tanh(c′), dc = dc′ + dh′·o·(1 − t²)
//	di = dc·g·i·(1−i), df = dc·c·f·(1−f), dg = dc·i·(1−g²), do = dh′·t·o·(1−o), dc_before = dc·f
func bindLSTMGrad[T float](b *bound) {
	units := 0
	b.size = func() {
		units = b.in[1].dims[1]
		b.cut(b.in[1].dims[0], 1, float64(units)*80)
	}
	b.run = func(tile int, w *worker) {
		from, to := b.span(tile)
		scratch := registers[T](w, 2*units)
		for r := from; r < to; r++ {
			g, at := flat[T](b.in[0])[r*4*units:(r+1)*4*units], r*units
			i, f, cell, o := g[:units], g[units:2*units], g[2*units:3*units], g[3*units:]
			c, c1 := flat[T](b.in[1])[at:at+units], flat[T](b.in[2])[at:at+units]
			dh, dc1 := flat[T](b.in[3])[at:at+units], flat[T](b.in[4])[at:at+units]
			z := flat[T](b.out[0])[r*4*units : (r+1)*4*units]
			dz := func(k int) []T { return z[k*units : (k+1)*units] }
			t, dc := scratch[:units], scratch[units:2*units]
			kernel.Tanh(b.isa, t, c1)
			kernel.Mul(b.isa, dc, dh, o)
			kernel.TanhGrad(b.isa, dc, dc, t)
			kernel.Add(b.isa, dc, dc1, dc)
			kernel.Mul(b.isa, dz(3), dh, t)
			kernel.SigmoidGrad(b.isa, dz(3), dz(3), o)
			kernel.Mul(b.isa, dz(0), dc, cell)
			kernel.SigmoidGrad(b.isa, dz(0), dz(0), i)
			kernel.Mul(b.isa, dz(1), dc, c)
			kernel.SigmoidGrad(b.isa, dz(1), dz(1), f)
			kernel.Mul(b.isa, dz(2), dc, i)
			kernel.TanhGrad(b.isa, dz(2), dz(2), cell)
			kernel.Mul(b.isa, flat[T](b.out[1])[at:at+units], dc, f)
		}
	}
}
