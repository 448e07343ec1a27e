package data

import (
	"context"
	"fmt"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/tensor"
)

// Shape of the logistic set of the paper (Zhang, Alqahtani, Demirbas 2017): 10,000 × 10,000, synthetic.
const (
	logisticRows    = 10_000
	logisticColumns = 10_000
	testShare       = 5 // one test row for this many training rows
)

// Logistic generates the paper's synthetic two-class set: x[i][j] = u(42, 0, columns·i + j), true weights w[j] = q(42, 1, j), label 1
// where Σ_j q·w > 0 (exact, in int64), flipped for about one row in twenty. Rows of Data is the number of training rows, by default
// 10,000; one fifth as many follow for testing (from row 10,000 on, or after the last training row).
//
// With as many features as samples the training set is separable: training loss can reach 0 while test accuracy stays near 0.69.
func Logistic(ctx context.Context, d trivium.Data) (*Splits, error) {
	rows, columns := d.Rows, d.Columns
	if rows == 0 {
		rows = logisticRows
	}
	if columns == 0 {
		columns = logisticColumns
	}
	if rows > 1<<40/int64(columns) { // counters of one stream
		return nil, setting("rows", "the logistic set has at most %d rows of %d columns, found %d", 1<<40/columns, columns, rows)
	}
	train, err := logisticRange(ctx, 0, rows, columns)
	if err != nil {
		return nil, err
	}
	test, err := logisticRange(ctx, max(rows, logisticRows), (rows+testShare-1)/testShare, columns)
	if err != nil {
		return nil, err
	}
	return &Splits{Train: train, Test: test, Notes: []string{fmt.Sprintf("data is generated: the logistic set, %d + %d rows of %d columns",
		train.Rows(), test.Rows(), columns)}}, nil
}

func logisticRange(ctx context.Context, from, rows int64, columns int) (Dataset, error) {
	w := make([]int64, columns)
	for j := range w {
		w[j] = draw.Int24(Seed, 1, uint64(j))
	}
	x := tensor.Aligned[float32](int(rows) * columns)
	y := make([]int32, rows)
	err := parallel(ctx, rows, 64, func(lo, hi int64) error {
		for r := lo; r < hi; r++ {
			y[r] = logisticRow(x[r*int64(columns):(r+1)*int64(columns)], w, uint64(from+r))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	schema := tableSchema([]int{columns}, []string{"0", "1"})
	m := newMemory(schema, trivium.Batch{
		Rows:   int(rows),
		Inputs: []trivium.Input{{Name: "x", Form: trivium.Dense, Shape: []int{columns}, Values: x}},
		Labels: trivium.Labels{Kind: trivium.Class, Width: 2, Class: y},
	})
	m.firstID = from
	return m, nil
}

// logisticRow writes row i and returns its label.
func logisticRow(x []float32, w []int64, i uint64) int32 {
	var margin int64
	k := i * uint64(len(x))
	w = w[:len(x)]
	for j := range x {
		q := draw.Int24(Seed, 0, k+uint64(j))
		x[j] = float32(q) * (1.0 / (1 << 23)) // both factors and the product are exact
		margin += q * w[j]
	}
	var label int32
	if margin > 0 {
		label = 1
	}
	if draw.Bits(Seed, 2, i)%20 == 0 {
		label = 1 - label
	}
	return label
}

// tableSchema describes rows of one dense input "x" with class labels.
func tableSchema(shape []int, names []string) trivium.Schema {
	return trivium.Schema{
		Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.Dense, Shape: shape}},
		Labels: trivium.LabelSpec{Kind: trivium.Class, Width: len(names), Names: names},
	}
}
