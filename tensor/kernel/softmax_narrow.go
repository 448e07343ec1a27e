package kernel

import "unsafe"

// narrow is what the assembly of softmaxNarrow takes: blocks of as many rows of x as a vector has lanes, at least one, and the weights of
// a block, of which the next one's are so many bytes on. Without labels, which then are no loss either, it is softmax alone; dx may be
// nil. stream says to write dx, which is aligned then, past the cache. bad is set if a label is outside; then only blocks before may be
// written. The pointers are used up.
type narrow struct {
	x, from, dx, loss, w, labels unsafe.Pointer // from is x
	blocks, cols, next, stream   int
	bad                          int
}

// maxNarrow is the most columns that softmaxNarrow takes: fewer than the lanes of a sum.
const maxNarrow = 16

// isNarrow says whether softmaxNarrow takes such rows.
func isNarrow[T Float](isa ISA, cols int) bool {
	return single[T]() && isa >= AVX2 && cols <= maxNarrow
}

// narrowBlock is the rows of a block.
func narrowBlock(isa ISA) int {
	if isa == AVX512 {
		return 16
	}
	return 8
}

// softmaxNarrow is SoftmaxCrossEntropy of so many rows of at most 16 columns, or Softmax if loss and labels are nil.
func softmaxNarrow(isa ISA, loss, dx, x []float32, labels []int32, w []float32, rows, cols int) {
	stream := dx != nil && streams(2*rows*cols, 4)
	if stream {
		// Past the cache go whole lines: the rows before the first that begins one are taken apart.
		head := 0
		for head < 16 && misaligned(dx[head*cols:]) != 0 {
			head++
		}
		if stream = head < 16; stream && head > 0 {
			narrowPadded(isa, loss, dx, x, labels, w, head, cols)
			loss, dx, x, labels, w = after(loss, head), dx[head*cols:], x[head*cols:], after(labels, head), after(w, head)
			rows -= head
		}
		if stream {
			defer fence()
		}
	}
	block := narrowBlock(isa)
	const most = 4096 // rows a call: 50 µs
	for direct := rows / block * block; direct > 0; {
		n := min(direct, most)
		narrowBlocks(isa, loss, dx, x, labels, w, n, cols, stream)
		loss, x, labels, w = after(loss, n), x[n*cols:], after(labels, n), after(w, n)
		if dx != nil {
			dx = dx[n*cols:]
		}
		rows -= n
		direct -= n
	}
	for rows > 0 {
		n := min(rows, 16)
		narrowPadded(isa, loss, dx, x, labels, w, n, cols)
		loss, x, labels, w = after(loss, n), x[n*cols:], after(labels, n), after(w, n)
		if dx != nil {
			dx = dx[n*cols:]
		}
		rows -= n
	}
}

// after is s without its first n elements, nil if it is nil.
func after[T any](s []T, n int) []T {
	if s == nil {
		return nil
	}
	return s[n:]
}

// narrowBlocks is softmaxNarrow of whole blocks of rows, and four elements of x more if there are fewer columns.
func narrowBlocks(isa ISA, loss, dx, x []float32, labels []int32, w []float32, rows, cols int, stream bool) {
	var ones [16]float32
	s := narrow{x: unsafe.Pointer(&x[:rows*cols][0]), from: unsafe.Pointer(&x[0]), blocks: rows / narrowBlock(isa), cols: cols, next: 4 * narrowBlock(isa)}
	if dx != nil {
		s.dx = unsafe.Pointer(&dx[:rows*cols][0])
	}
	if labels != nil {
		s.labels, s.loss = unsafe.Pointer(&labels[:rows][0]), unsafe.Pointer(&loss[:rows][0])
	}
	if w != nil {
		s.w = unsafe.Pointer(&w[:rows][0])
	} else {
		Fill(isa, ones[:], 1)
		s.w, s.next = unsafe.Pointer(&ones), 0
	}
	if stream {
		s.stream = 1
	}
	if softmaxNarrowF32(isa, &s); s.bad != 0 {
		for _, label := range labels[:rows] {
			_ = x[:cols][label] // panics
		}
	}
}

// narrowPadded is softmaxNarrow of at most 16 rows, in a block of its own.
func narrowPadded(isa ISA, loss, dx, x []float32, labels []int32, w []float32, rows, cols int) {
	const block = 16
	var in, out [block * maxNarrow]float32
	var losses, weights [block]float32
	var classes [block]int32
	n := rows * cols
	copy(in[:], x[:n])
	s := [4][]float32{losses[:], out[:block*cols], in[:], weights[:]}
	if dx == nil {
		s[1] = nil
	}
	if w == nil {
		s[3] = nil
	}
	var l []int32
	if labels != nil {
		l = classes[:]
		copy(l, labels[:rows])
		copy(weights[:], w[:min(rows, len(w))])
	} else {
		s[0] = nil
	}
	narrowBlocks(isa, s[0], s[1], s[2], l, s[3], block, cols, false)
	copy(loss, losses[:min(rows, len(loss))])
	copy(dx, out[:min(n, len(dx))])
}
