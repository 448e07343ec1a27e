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
	return g.timeBatches(ctx, op, bytes, count, w)
}
