package trivium

import (
	"errors"
	"fmt"
)

// A Batch is a run of examples: inputs, labels, and optionally a weight and an id for each row. It is read-only to everyone but its
// producer, who may reuse its memory once the next batch is asked for.
type Batch struct {
	Rows    int
	Inputs  []Input
	Labels  Labels
	Weights []float32 // one per row; nil: all 1
	IDs     []int64   // global sample ids, one per row; nil where nobody asked for them
}

// A Form says how the rows of an Input lie in memory.
type Form uint8

const (
	Dense  Form = iota // every row has the same shape; row-major in Values
	CSR                // compressed sparse rows: Index holds columns, ascending within a row
	Ragged             // every row has its own number of elements
)

func (f Form) String() string {
	if int(f) < len(formNames) {
		return formNames[f]
	}
	return fmt.Sprintf("form(%d)", uint8(f))
}

var formNames = [...]string{"dense", "csr", "ragged"}

// An Input is one named input of a batch.
//
// Of a Dense input, row i is Values[i·n : (i+1)·n] with n the product of Shape, or Rows[i]. Of a CSR or Ragged input, row i has the entries
// Ptr[i] to Ptr[i+1] of Index and Values; Ptr[0] need not be 0, so that a run of rows is a view.
type Input struct {
	Name   string
	Form   Form
	Shape  []int     // Dense: of one row; CSR: the number of columns; Ragged: of one element, empty for a scalar
	Values []float32 // nil for Ragged ids
	Index  []int32   // CSR: columns; Ragged: ids of discrete elements, such as tokens, or nil
	Ptr    []int64   // Rows+1 offsets; nil for Dense

	Rows [][]float32 // Dense, in place of Values: each row where it lies. Only a RowReader is given it
}

// RowLen returns the number of float32 values of one row of a Dense input, of one element of a Ragged one, and the number of columns
// of a CSR one.
func (in *Input) RowLen() int { return product(in.Shape) }

// A LabelKind says what a row is labelled with.
type LabelKind uint8

const (
	NoLabel  LabelKind = iota
	Class              // one of Width classes
	Real               // Width real numbers
	MultiHot           // any subset of Width classes
)

func (k LabelKind) String() string {
	if int(k) < len(labelNames) {
		return labelNames[k]
	}
	return fmt.Sprintf("label(%d)", uint8(k))
}

var labelNames = [...]string{"none", "class", "real", "multi-hot"}

// Labels are what the rows of a batch should be predicted as.
type Labels struct {
	Kind  LabelKind
	Width int       // number of classes, or of real numbers a row
	Class []int32   // Kind Class: one per row, in [0, Width)
	Real  []float32 // Kind Real: Width per row
	Index []int32   // Kind MultiHot: classes, ascending within a row
	Ptr   []int64   // Kind MultiHot: Rows+1 offsets into Index
}

// Input returns the input of that name, or nil.
func (b *Batch) Input(name string) *Input {
	for i := range b.Inputs {
		if b.Inputs[i].Name == name {
			return &b.Inputs[i]
		}
	}
	return nil
}

// WeightSum returns the sum of the rows' weights: what a sum of losses is divided by to give their mean. It adds in row order.
func (b *Batch) WeightSum() float64 {
	if b.Weights == nil {
		return float64(b.Rows)
	}
	var sum float64
	for _, w := range b.Weights {
		sum += float64(w)
	}
	return sum
}

// SliceInto makes dst the rows [from, to) of b, a view of the same memory, reusing dst's own slice of inputs: it allocates only the
// first time. Bounds are the caller's to keep.
func (b *Batch) SliceInto(dst *Batch, from, to int) {
	inputs := append(dst.Inputs[:0], b.Inputs...)
	*dst = Batch{Rows: to - from, Inputs: inputs, Labels: b.Labels}
	for i := range inputs {
		in := &inputs[i]
		switch {
		case in.Rows != nil:
			in.Rows = in.Rows[from:to]
		case in.Form == Dense:
			n := in.RowLen()
			in.Values = in.Values[from*n : to*n]
		default:
			in.Ptr = in.Ptr[from : to+1]
		}
	}
	l := &dst.Labels
	switch l.Kind {
	case Class:
		l.Class = l.Class[from:to]
	case Real:
		l.Real = l.Real[from*l.Width : to*l.Width]
	case MultiHot:
		l.Ptr = l.Ptr[from : to+1]
	}
	if b.Weights != nil {
		dst.Weights = b.Weights[from:to]
	}
	if b.IDs != nil {
		dst.IDs = b.IDs[from:to]
	}
}

// Slice returns the rows [from, to) of b, a view of the same memory.
func (b *Batch) Slice(from, to int) Batch {
	var dst Batch
	b.SliceInto(&dst, from, to)
	return dst
}

// Validate reports every way in which b contradicts itself: lengths, offsets, indices and classes out of range. It does not look for
// NaN. It costs a pass over the indices and is meant for the borders: sources of a user's own, decoders and tests.
func (b *Batch) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("batch: "+format, args...)) }
	if b.Rows < 0 {
		fail("%d rows", b.Rows)
		return errors.Join(errs...)
	}
	for i := range b.Inputs {
		in := &b.Inputs[i]
		n := in.RowLen()
		switch in.Form {
		case Dense:
			if in.Rows != nil {
				if err := checkRows(in, b.Rows); err != nil {
					fail("input %q: %w", in.Name, err)
				}
			} else if len(in.Values) != b.Rows*n {
				fail("input %q: %d rows of shape %v want %d values, found %d", in.Name, b.Rows, in.Shape, b.Rows*n, len(in.Values))
			}
		case CSR:
			if len(in.Index) != len(in.Values) {
				fail("input %q: %d columns for %d values", in.Name, len(in.Index), len(in.Values))
			} else if err := checkPtr(in.Ptr, b.Rows, len(in.Index)); err != nil {
				fail("input %q: %w", in.Name, err)
			} else if err := checkAscending(in.Index, in.Ptr, n); err != nil {
				fail("input %q: %w", in.Name, err)
			}
		case Ragged:
			elements := len(in.Index)
			if in.Index == nil && n > 0 {
				elements = len(in.Values) / n
			}
			if err := checkPtr(in.Ptr, b.Rows, elements); err != nil {
				fail("input %q: %w", in.Name, err)
			} else if in.Index != nil && in.Values != nil && len(in.Values) != elements*n {
				fail("input %q: %d elements of shape %v want %d values, found %d", in.Name, elements, in.Shape, elements*n, len(in.Values))
			}
		default:
			fail("input %q: unknown %v", in.Name, in.Form)
		}
	}
	if err := b.Labels.validate(b.Rows); err != nil {
		fail("labels: %w", err)
	}
	if b.Weights != nil && len(b.Weights) != b.Rows {
		fail("%d weights for %d rows", len(b.Weights), b.Rows)
	}
	if b.IDs != nil && len(b.IDs) != b.Rows {
		fail("%d ids for %d rows", len(b.IDs), b.Rows)
	}
	return errors.Join(errs...)
}

// checkRows looks at rows that lie apart.
func checkRows(in *Input, rows int) error {
	if len(in.Values) > 0 {
		return errors.New("it has rows, and values too")
	}
	if len(in.Rows) != rows {
		return fmt.Errorf("%d rows, want %d", len(in.Rows), rows)
	}
	for i, x := range in.Rows {
		if n := in.RowLen(); len(x) != n {
			return fmt.Errorf("row %d of shape %v wants %d values, found %d", i, in.Shape, n, len(x))
		}
	}
	return nil
}

func (l *Labels) validate(rows int) error {
	switch l.Kind {
	case NoLabel:
		return nil
	case Class:
		if len(l.Class) != rows {
			return fmt.Errorf("%d classes for %d rows", len(l.Class), rows)
		}
		for i, c := range l.Class {
			if c < 0 || int(c) >= l.Width {
				return fmt.Errorf("row %d: class %d is outside 0 to %d", i, c, l.Width-1)
			}
		}
		return nil
	case Real:
		if len(l.Real) != rows*l.Width {
			return fmt.Errorf("%d real labels for %d rows of %d", len(l.Real), rows, l.Width)
		}
		return nil
	case MultiHot:
		if err := checkPtr(l.Ptr, rows, len(l.Index)); err != nil {
			return err
		}
		return checkAscending(l.Index, l.Ptr, l.Width)
	}
	return fmt.Errorf("unknown %v", l.Kind)
}

func checkPtr(ptr []int64, rows, entries int) error {
	if len(ptr) != rows+1 {
		return fmt.Errorf("%d offsets for %d rows, want %d", len(ptr), rows, rows+1)
	}
	if ptr[0] < 0 || ptr[rows] > int64(entries) {
		return fmt.Errorf("offsets %d to %d are outside the %d entries", ptr[0], ptr[rows], entries)
	}
	for i := range rows {
		if ptr[i+1] < ptr[i] {
			return fmt.Errorf("row %d ends at %d, before its start at %d", i, ptr[i+1], ptr[i])
		}
	}
	return nil
}

func checkAscending(index []int32, ptr []int64, width int) error {
	for i := range len(ptr) - 1 {
		last := int32(-1)
		for _, c := range index[ptr[i]:ptr[i+1]] {
			if c <= last {
				return fmt.Errorf("row %d: index %d follows %d, want ascending from 0", i, c, last)
			}
			if int(c) >= width {
				return fmt.Errorf("row %d: index %d is outside 0 to %d", i, c, width-1)
			}
			last = c
		}
	}
	return nil
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
