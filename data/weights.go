package data

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/trivium-ml/trivium"
)

// weigh returns ds with each row's weight multiplied by its class's.
func weigh(ds Dataset, weights []float32) Dataset {
	if m, ok := ds.(*memory); ok {
		w := *m
		w.all.Weights = weighRows(make([]float32, 0, w.all.Rows), &m.all, weights)
		return &w
	}
	return &weighted{ds, weights}
}

// weighRows appends the weights of b's rows, multiplied by their classes'.
func weighRows(dst []float32, b *trivium.Batch, weights []float32) []float32 {
	for i, c := range b.Labels.Class {
		w := weights[c]
		if b.Weights != nil {
			w *= b.Weights[i]
		}
		dst = append(dst, w)
	}
	return dst
}

// A weighted data set weighs rows as they are read.
type weighted struct {
	Dataset
	weights []float32
}

func (w *weighted) Read(ctx context.Context, dst *trivium.Batch, from, to int64) error {
	dst.Weights = nil // a data set without weights may leave there what an earlier Read of this one wrote
	if err := w.Dataset.Read(ctx, dst, from, to); err != nil {
		return err
	}
	if err := checkClasses(dst, from, len(w.weights)); err != nil {
		return err
	}
	// Weights of the rows' own may be a view of the data set's.
	dst.Weights = weighRows(make([]float32, 0, dst.Rows), dst, w.weights)
	return nil
}

func (w *weighted) first() int64                { return firstID(w.Dataset) }
func (w *weighted) checkBatch(rows int64) error { return checkBatch(w.Dataset, rows) }

// checkWeights refuses splits whose rows all weigh nothing: there is no mean over them.
func (s *Splits) checkWeights(ctx context.Context) error {
	for _, p := range []struct {
		name string
		rows Dataset
	}{{"train", s.Train}, {"valid", s.Valid}, {"test", s.Test}} {
		if p.rows == nil || p.rows.Rows() == 0 {
			continue
		}
		none, err := weightless(ctx, p.rows)
		if err != nil {
			return err
		}
		if none {
			return setting(p.name, "the weights of its %d rows are all 0: want some above 0", p.rows.Rows())
		}
	}
	return nil
}

// weightless reports whether the weights of ds, if it has any, are all 0. Of a stream it reads no further than to the first that is not;
// what a program's own data set has is the program's matter.
func weightless(ctx context.Context, ds Dataset) (bool, error) {
	nothing := func(b *trivium.Batch) bool {
		return b.Weights != nil && !slices.ContainsFunc(b.Weights, func(w float32) bool { return w != 0 })
	}
	if m, ok := ds.(*memory); ok {
		return nothing(&m.all), nil
	}
	if _, ok := streamOf(ds); !ok {
		return false, nil
	}
	var b trivium.Batch
	for from := int64(0); from < ds.Rows(); from += blockRows {
		if err := ds.Read(ctx, &b, from, min(from+blockRows, ds.Rows())); err != nil || !nothing(&b) {
			return false, err
		}
	}
	return true, nil
}

// checkClasses refuses rows, numbered from from on, of which one has a class that there is not, as those of a program's own data set may.
func checkClasses(b *trivium.Batch, from int64, classes int) error {
	for i, c := range b.Labels.Class {
		if c < 0 || int(c) >= classes {
			return fault("", "row %d: class %d is outside 0 to %d", from+int64(i), c, classes-1)
		}
	}
	return nil
}

// countClasses returns how many rows each class has.
func countClasses(ctx context.Context, ds Dataset, classes int) ([]int64, error) {
	counts := make([]atomic.Int64, classes)
	err := parallel(ctx, ds.Rows(), windowRows/4, func(from, to int64) error {
		var b trivium.Batch
		for lo := from; lo < to; lo += blockRows {
			if err := ds.Read(ctx, &b, lo, min(lo+blockRows, to)); err != nil {
				return err
			}
			if err := checkClasses(&b, lo, classes); err != nil {
				return err
			}
			for _, c := range b.Labels.Class {
				counts[c].Add(1)
			}
		}
		return nil
	})
	out := make([]int64, classes)
	for i := range counts {
		out[i] = counts[i].Load()
	}
	return out, err
}

// noteAbsentClasses says so if training rows lack a class that others have, as when a file is sorted by label.
func (s *Splits) noteAbsentClasses(l trivium.LabelSpec) {
	train, ok := s.Train.(*memory)
	if !ok || l.Kind != trivium.Class || s.Valid == nil && s.Test == nil {
		return
	}
	seen := make([]bool, l.Width)
	for _, c := range train.all.Labels.Class {
		seen[c] = true
	}
	var absent []string
	for c, ok := range seen {
		if !ok && c < len(l.Names) {
			absent = append(absent, l.Names[c])
		}
	}
	if len(absent) > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("no training row has the class %s; rows are cut as they stand, so shuffle a file that is sorted by label",
			listNames(absent)))
	}
}

// weighClasses multiplies the weights of training rows by their classes'.
func (s *Splits) weighClasses(ctx context.Context, text string, l trivium.LabelSpec) error {
	if l.Kind != trivium.Class {
		return setting("class_weight", "the labels are %v, not classes", l.Kind)
	}
	if n := len(l.Names); n < l.Width { // a program's own source may name some, or none: the others are their numbers
		l.Names = append(slices.Clip(l.Names), classNumbers(l.Width)[n:]...)
	}
	w := s.Transform.Label.Weights
	if text != "" && len(w) == 0 {
		var counts []int64
		var err error
		if text == "balanced" {
			if counts, err = countClasses(ctx, s.Train, l.Width); err != nil {
				return err
			}
		}
		if w, err = classWeights(text, l.Names, counts); err != nil {
			return err
		}
		s.Transform.Label.Weights = w
	}
	s.plain, s.Train = s.Train, weigh(s.Train, w)
	return nil
}

// weigh notes what training would stop at in weights of classes.
func (d *Description) weigh(text string) {
	if text == "" || d.Labels.Kind != trivium.Class && d.ProblemCount > 0 { // it is said why they are no classes
		return
	}
	e := setting("class_weight", "the labels are %v, not classes", d.Labels.Kind)
	if d.Labels.Kind == trivium.Class {
		var rows []int64
		for _, c := range d.Balance {
			rows = append(rows, c.Rows)
		}
		weights, err := classWeights(text, d.Labels.Names, rows)
		for i, w := range weights {
			if w > 0 && rows[i] > 0 {
				return
			}
		}
		e = setting("class_weight", "the classes of all rows weigh 0: want some above 0")
		errors.As(err, &e)
	}
	_ = d.problem(e) // describing is over
}
