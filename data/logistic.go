package data

import (
	"context"
	"fmt"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
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
func Logistic(ctx context.Context, d trivium.Data) (*Splits, error) { return logistic(ctx, d, false) }

func logistic(ctx context.Context, d trivium.Data, late bool) (*Splits, error) {
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
	if int64(columns) > defaultBudget/8 { // the true weights
		return nil, setting("columns", "the logistic set has at most %d columns, found %d", defaultBudget/8, columns)
	}
	w := make([]int64, columns)
	for j := range w {
		w[j] = draw.Int24(generatorSeed, 1, uint64(j))
	}
	g := dense(tableSchema([]int{columns}, []string{"0", "1"}), func(x []float32, id int64) int32 { return logisticRow(x, w, uint64(id)) })
	g.late = late
	test := (rows + testShare - 1) / testShare
	note := fmt.Sprintf("the logistic set, %s + %s rows of %s columns", grouped(rows), grouped(test), grouped(int64(columns)))
	return g.splits(ctx, note, rows, max(rows, logisticRows), test)
}

// logisticRow writes row i and returns its label.
func logisticRow(x []float32, w []int64, i uint64) int32 {
	var margin int64
	k := i * uint64(len(x))
	w = w[:len(x)]
	for j := range x {
		q := draw.Int24(generatorSeed, 0, k+uint64(j))
		x[j] = float32(q) * (1.0 / (1 << 23)) // both factors and the product are exact
		margin += q * w[j]
	}
	var label int32
	if margin > 0 {
		label = 1
	}
	if draw.Bits(generatorSeed, 2, i)%20 == 0 {
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
