package data

import (
	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// Pixels are the values of resident rows that are bytes, each for so many 255ths: they take a quarter of the memory, and of the bandwidth
// where rows come in random order. Who reads rows gets numbers.
type pixels struct {
	of     []byte
	n      int           // of a row
	input  trivium.Input // of the rows, without values
	budget int64         // bytes of memory for the numbers of a batch
}

// CellBytes is what a number of the dense inputs of ds takes where its rows are in memory: 1 byte of images, else 4.
func CellBytes(ds Dataset) int64 {
	if m, ok := ds.(*memory); ok && m.pixels != nil {
		return 1
	}
	return 4
}

// newPixels returns pixels for rows of the schema's one input, which lie in memory of that length.
func newPixels(schema *trivium.Schema, of []byte, budget int64) *pixels {
	spec := &schema.Inputs[0]
	x := &pixels{of: of, input: trivium.Input{Name: spec.Name, Form: spec.Form, Shape: spec.Shape}, budget: budget}
	x.n = x.input.RowLen()
	return x
}

// rowBytes is what the numbers of a row take.
func (x *pixels) rowBytes() int64 { return 4 * int64(x.n) }

// checkBatch refuses a batch of pixels whose numbers take more than the memory for data: four times what the pixels do.
func (m *memory) checkBatch(rows int64) error {
	if m.pixels == nil {
		return nil
	}
	return checkRows(rows, m.pixels.rowBytes(), m.pixels.budget)
}

// slice is the rows [from, to) of x, in the same memory.
func (x *pixels) slice(from, to int) *pixels {
	y := *x
	y.of = x.of[from*x.n : to*x.n]
	return &y
}

// keep makes row the one of which into makes the numbers x.
func (x *pixels) keep(row int, numbers []float32) {
	of := x.of[row*x.n:][:len(numbers)]
	for i, v := range numbers {
		of[i] = byte(v*255 + 0.5)
	}
}

// into writes the rows from row on to dst, as many as it holds.
func (x *pixels) into(dst []float32, row int) {
	kernel.Pixels(kernel.Best(), dst, x.of[row*x.n:][:len(dst)])
}
