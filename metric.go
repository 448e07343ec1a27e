package trivium

import "encoding"

// A Metric is a mergeable accumulator over scored rows.
//
// In exact mode rows are added shard by shard and the shards' accumulators merged along the same fixed tree as gradients, so that
// the value does not depend on who scored which rows. Its binary form travels between processes.
type Metric interface {
	Name() string // such as "auc"

	// Add accounts for b's rows, given the scores that a Predictor of these outputs wrote for them.
	Add(o Outputs, b Batch, scores []float32) error

	// Merge adds what m, a metric of the same kind, accounts for.
	Merge(m Metric) error

	// Value returns the metric of what was added so far; NaN if it is not defined for that, as an AUC over one class.
	Value() float64

	// HigherIsBetter says which direction early stopping calls progress.
	HigherIsBetter() bool

	Reset()

	encoding.BinaryAppender
	encoding.BinaryUnmarshaler
}
