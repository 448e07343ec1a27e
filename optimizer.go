package trivium

// An Optimizer turns a gradient into an update. It is pure: its state is in slots that the caller keeps, so any party may apply it,
// to any range of cells.
type Optimizer interface {
	// Slots returns the number of state vectors per parameter.
	Slots() int

	// Elementwise is false where a cell's update depends on other cells, as under clipping by global norm. Such an optimizer is
	// refused where parameters are sharded.
	Elementwise() bool

	// Apply computes the update u from the mean gradient g and its state; the caller then sets p += u, never fused: u is rounded to
	// float32 first. The slices hold the cells from `from` on of l, which has decay and rate multipliers; u may be g. Of a row-sparse
	// gradient only its rows are touched, one call a row or run of rows, and step counts the updates of that row; else of the model.
	// The first step is 1.
	Apply(step int64, l *Layout, from int, p, g, u []float32, slots [][]float32)
}
