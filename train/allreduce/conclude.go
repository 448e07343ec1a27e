package allreduce

import (
	"context"
	"fmt"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/internal/finite"
)

// together is the number of updates at most that one vote commits.
//
// A vote is a round of messages of its own, and where workers share processors, a wait for each that has none. But the sums of an update
// complete only when every worker has given its part, so they show that every worker has all of the update before. What a vote adds is that
// nobody's latest update is one which another cannot finish: that matters where the model is looked at, and there is one (see last).
// Between two votes an update is provisional: if a worker is lost, all others return the same error, and what they made since the last vote
// is neither measured nor saved.
const together = 64

// updateTags are the operations that one update may have: those of update k since the last vote have the tags from k·updateTags on.
const updateTags = 1 << 14

// conclude waits until this worker has all of the update's sums, and commits, if it is time for that.
func (x *exchange) conclude(ctx context.Context, step uint64) error {
	if x.sharding != nil { // its sums are a step, and its parameters the next
		err := x.g.Commit(ctx, step)
		x.read()
		return err
	}
	if err := x.g.Settle(ctx); err != nil {
		if first := x.g.Commit(ctx, step); first != nil {
			return first // the same everywhere
		}
		return err
	}
	if x.read(); !x.last() {
		x.base += updateTags
		return nil
	}
	return x.commit(ctx)
}

// commit votes on all updates since the last vote, if there are any.
func (x *exchange) commit(ctx context.Context) error {
	if err := x.g.Commit(ctx, x.g.Step()); err != nil {
		return err // of an update since the last vote: see where
	}
	x.base = 0
	return nil
}

// confirm is commit, where all workers are between two updates.
func (x *exchange) confirm(ctx context.Context) error {
	if x.base == 0 {
		return nil
	}
	return x.commit(ctx)
}

// read takes the sums of the facts from where they travelled.
func (x *exchange) read() {
	switch {
	case x.rides:
		for i := range x.sums {
			x.sums[i] = float64(x.totalFacts[i])
		}
		x.sums[factLoss] /= lossScale
	case x.exact != nil:
		x.sums[factLoss], x.sums[factWeight] = x.exact.all[0], x.exact.all[1]
	}
}

// last says, the same at all workers, whether the update at hand is the last that its vote commits: the model is looked at after it, or
// training ends.
func (x *exchange) last() bool {
	s := &x.sums
	return x.base == (together-1)*updateTags || s[factStop] > 0 || s[factFail] > 0 || !finite.Is(s[factLoss]) || !finite.Is(s[factWeight]) || x.run.Due()
}

// where names the update that failed, the same at all workers, though one may have begun the next: it follows from the operation.
func (x *exchange) where(b *collective.Blame) string {
	first := x.run.At().Step + 1 - int64(x.base/updateTags) // since the last vote
	switch {
	case b == nil:
		return fmt.Sprintf("update %d", x.run.At().Step+1)
	case b.Op == "":
		return fmt.Sprintf("after update %d, the last that all have", first-1)
	}
	return fmt.Sprintf("update %d", first+int64(b.Tag/updateTags))
}
