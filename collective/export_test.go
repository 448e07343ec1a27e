package collective

import (
	"context"
	"time"
)

// The kinds of the frames by which ranks vote, and say what they know of a failure.
const (
	KindVote   = kindVote
	KindReport = kindReport
)

// A Walk is the memory that calibration uses.
type Walk = walk

// TimeBatch is what calibration measures.
func (g *Group) TimeBatch(ctx context.Context, op Op, bytes int, w *Walk) (time.Duration, error) {
	return g.timeBatch(ctx, op, bytes, w)
}
