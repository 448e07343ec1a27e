package data

import (
	"context"
	"errors"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/quantity"
)

// A rowFile is one file of rows, or a pair of files with inputs and labels, before and after a transform is fitted.
type rowFile interface {
	fileName() string
	numRows() int64
	sum() uint32 // CRC-32C of the contents
	// fit makes the transform that the training rows call for.
	fit(ctx context.Context, f fitting) (*Transform, error)
	// dataset returns the rows under t. place maps a row of the file to a row of the data set, where some are dropped; nil: the same.
	dataset(ctx context.Context, t *Transform, budget int64) (ds Dataset, place func(row int64) int64, err error)
	// describe adds what is known of the rows, and the problems found.
	describe(ctx context.Context, d *Description, f fitting) error
	close() error
}

// fitting is what a transform is fitted to.
type fitting struct {
	desc       trivium.Data
	labels     LabelMode
	budget     int64
	from, to   int64     // the training rows
	others     []rowFile // the files of the other splits
	unlabelled bool
}

// letGo closes the files whose rows are in memory: what was unpacked of them would be there beside the rows for as long.
func (s *Splits) letGo(rows map[rowFile]Dataset) error {
	var left []rowFile
	var errs []error
	for _, f := range s.files {
		if _, resident := rows[f].(*memory); resident {
			errs = append(errs, f.close())
		} else {
			left = append(left, f)
		}
	}
	s.files = left
	return errors.Join(errs...)
}

// A stream is a data set that is decoded from its file, or generated, whenever rows are read.
type stream struct {
	schema    trivium.Schema
	rows      int64
	rowBytes  int64 // of one row, decoded, on average
	held      int64 // by all rows, if they were resident; 0: rowBytes of each
	budget    int64
	firstID   int64
	generated bool
	read      func(ctx context.Context, dst *trivium.Batch, from, to int64) error
}

func (s *stream) Schema() trivium.Schema { return s.schema }
func (s *stream) Rows() int64            { return s.rows }
func (s *stream) first() int64           { return s.firstID }

func (s *stream) Read(ctx context.Context, dst *trivium.Batch, from, to int64) error {
	if err := checkRange(from, to, s.rows); err != nil {
		return err
	}
	if dst.Inputs == nil {
		shapeOf(dst, &s.schema)
	}
	emptyBatch(dst)
	if from == to {
		return nil
	}
	return s.read(ctx, dst, from, to)
}

func (s *stream) checkBatch(rows int64) error { return checkRows(rows, s.rowBytes, s.budget) }

// checkRows refuses a batch of so many rows that it takes more than the memory for data.
func checkRows(rows, rowBytes, budget int64) error {
	if need := rows * rowBytes; need > budget {
		return setting("batch", "a batch of %d rows takes %s, and the memory for data is %s: take a smaller batch, or in a program a larger data.Options.Budget",
			rows, quantity.Bytes(need), quantity.Bytes(budget))
	}
	return nil
}

// shapeOf makes dst an empty batch as the schema describes it.
func shapeOf(dst *trivium.Batch, s *trivium.Schema) {
	*dst = trivium.Batch{Labels: trivium.Labels{Kind: s.Labels.Kind, Width: s.Labels.Width}}
	for i := range s.Inputs {
		in := &s.Inputs[i]
		dst.Inputs = append(dst.Inputs, trivium.Input{Name: in.Name, Form: in.Form, Shape: in.Shape})
	}
}

// labelWriter turns a file's numeric labels into a batch's.
type labelWriter struct {
	spec    *trivium.LabelSpec
	classes *classIndex
}

func newLabelWriter(spec *trivium.LabelSpec) labelWriter {
	w := labelWriter{spec: spec}
	if spec.Kind == trivium.Class {
		w.classes = newClassIndex(spec.Names)
	}
	return w
}

// append adds the labels to dst, or returns the index of the first that is no class.
func (w labelWriter) append(dst *trivium.Labels, labels []float32) int {
	dst.Kind, dst.Width = w.spec.Kind, w.spec.Width
	switch w.spec.Kind {
	case trivium.Real:
		dst.Real = append(dst.Real, labels...)
	case trivium.Class:
		for i, v := range labels {
			c, ok := w.classes.of(v)
			if !ok {
				return i
			}
			dst.Class = append(dst.Class, c)
		}
	}
	return -1
}

// refuse says that a label is no class.
func (w labelWriter) refuse(file string, v float32) *Error {
	return fault(file, "label %s is outside the %d classes: %s", labelName(v), w.spec.Width, listNames(w.spec.Names))
}
