package collective

import "context"

// The kinds of the frames that carry data, by which ranks vote, and say what they know of a failure.
const (
	KindData   = kindData
	KindVote   = kindVote
	KindReport = kindReport
)

// A Walk is the memory that calibration uses.
type Walk = walk

// TimeBatches is what calibration measures.
func (g *Group) TimeBatches(ctx context.Context, op Op, bytes, count int, w *Walk) ([]float64, error) {
	return g.timeBatches(ctx, op, bytes, warmOps(bytes, 1), count, w)
}

// MeasureGamma is what calibration begins with.
func MeasureGamma() float64 { return measureGamma() }
