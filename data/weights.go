package data

import (
	"context"
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
	// Weights of the rows' own may be a view of the data set's.
	dst.Weights = weighRows(make([]float32, 0, dst.Rows), dst, w.weights)
	return nil
}

func (w *weighted) first() int64                { return firstID(w.Dataset) }
func (w *weighted) checkBatch(rows int64) error { return checkBatch(w.Dataset, rows) }

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

// countClasses returns how many rows each class has.
func countClasses(ctx context.Context, ds Dataset, classes int) ([]int64, error) {
	counts := make([]atomic.Int64, classes)
	err := parallel(ctx, ds.Rows(), windowRows/4, func(from, to int64) error {
		var b trivium.Batch
		for lo := from; lo < to; lo += blockRows {
			if err := ds.Read(ctx, &b, lo, min(lo+blockRows, to)); err != nil {
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
