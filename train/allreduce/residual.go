package allreduce

import (
	"context"
	"slices"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/train"
)

// restore gives each worker what its codecs kept when the checkpoint was made. Where that was of another number of workers, or they cut the
// gradient otherwise, or no codec encodes it now, it gives each an equal share of what codecs had dropped: what counts is the sum.
func (x *exchange) restore(run *train.Run) error {
	x.coded = slices.ContainsFunc(x.buckets, func(b bucket) bool { return b.op.Codec != nil })
	saved := run.Residual(func() []float32 { return x.dropped })
	kept := run.Codecs(func() [][]byte { return x.kept })
	if !x.coded && saved == nil {
		return nil
	}
	x.dropped, x.kept = make([]float32, run.Layout().Len()), kept
	if saved == nil {
		return nil
	}
	copy(x.dropped, saved)
	defer x.findStrays()
	if x.coded && len(x.kept) == x.workers && compress.SetStates(x.residuals(), x.kept[x.rank]) == nil {
		x.rehome()
		return nil
	}
	rate, err := run.SavedRate() // which what is saved is measured in
	if err != nil {
		return err
	}
	for i := range x.buckets {
		b := &x.buckets[i]
		e := b.op.Residual
		if e == nil { // no codec encodes it
			e = compress.NewResidual(b.To - b.From)
			b.strays = []stray{{0, e}}
		}
		e.SetRate(rate)
		cells := e.Cells()
		for k, v := range saved[b.From:b.To] {
			cells[k] = v / float32(x.workers)
		}
	}
	return nil
}

// A stray is a part of a bucket, from one of its values on, with what is kept of it: it travels with the next gradient.
type stray struct {
	from int
	kept *compress.Residual
}

// findStrays finds what other workers of this host encode, or one of them for all: this worker's part of it would be kept for ever.
func (x *exchange) findStrays() {
	for i := range x.buckets {
		b := &x.buckets[i]
		if b.op.Codec == nil {
			continue
		}
		n := b.op.Residual.Len()
		from, to := x.g.Encoded(b.op, b.src.Len())
		for _, s := range [][2]int{{0, from}, {to, n}} {
			if s[0] < s[1] {
				b.strays = append(b.strays, stray{s[0], b.op.Residual.Range(s[0], s[1])})
			}
		}
	}
}

// sendStrays adds them to this worker's gradient, once.
func (x *exchange) sendStrays(b *bucket) {
	for _, s := range b.strays {
		at := b.From + s.from
		s.kept.Release(x.own.Flat[at : at+s.kept.Len()])
	}
	if b.op.Codec == nil {
		b.strays = nil
	}
}

// rehome adds what this worker kept of sums that another encodes now to what it kept of its own gradients. Who encodes what follows from the machine
// too, which may be another one than the checkpoint was made on: there, it would be kept for ever.
func (x *exchange) rehome() {
	for i := range x.buckets {
		b := &x.buckets[i]
		op := &b.op
		if op.Codec == nil {
			continue
		}
		from, to := x.g.Owned(*op, b.src.Len())
		own, owner := op.Residual.Cells(), op.Owner.Cells()
		for k, v := range owner {
			if v != 0 && (k < from || k >= to) {
				own[k] += v
				owner[k] = 0
			}
		}
	}
}

// rate rescales the residuals where the learning rate has changed.
func (x *exchange) rate(step int64) {
	if x.dropped == nil {
		return
	}
	rate := x.run.LearningRate(step)
	for i := range x.buckets {
		b := &x.buckets[i]
		if b.op.Codec != nil {
			b.op.Residual.SetRate(rate)
			b.op.Owner.SetRate(rate)
			continue
		}
		for _, s := range b.strays {
			s.kept.SetRate(rate)
		}
	}
}

// collect adds all workers' residuals, for the checkpoint.
func (x *exchange) collect(ctx context.Context) error {
	if !x.coded { // what there was has travelled
		x.dropped, x.kept = nil, nil
		return nil
	}
	x.measured.pause(true)
	defer x.measured.pause(false)
	clear(x.dropped)
	for i := range x.buckets {
		b := &x.buckets[i]
		if b.op.Codec == nil {
			continue
		}
		part, owner := x.dropped[b.From:b.To], b.op.Owner.Cells()
		for k, v := range b.op.Residual.Cells() {
			part[k] = v + owner[k]
		}
	}
	err := collective.AllReduceInto(ctx, x.g, x.dropped, x.dropped, collective.Sum)
	if err == nil {
		err = x.gather(ctx)
	}
	if err != nil {
		return x.failed(ctx, err)
	}
	return nil
}

// gather brings every worker's residuals to rank 0 as they are: with their sum alone, a run would go on, but with other bits.
func (x *exchange) gather(ctx context.Context) error {
	own := compress.AppendStates(nil, x.residuals())
	lens := make([]int64, x.workers)
	if err := collective.AllGatherInto(ctx, x.g, lens, []int64{int64(len(own))}); err != nil {
		return err
	}
	counts, sum := make([]int, len(lens)), 0
	for i, n := range lens {
		counts[i] = int(n)
		sum += int(n)
	}
	var all []byte
	dst := collective.Buffer{}
	if x.rank == 0 {
		all = make([]byte, sum)
		dst = collective.Of(all)
	}
	x.g.Start(collective.Op{Kind: collective.Gather, Counts: counts, Label: "residuals"}, 0, dst, collective.Of(own))
	if err := x.g.Commit(context.WithoutCancel(ctx), x.g.Step()); err != nil {
		return err
	}
	if x.rank == 0 {
		x.kept = make([][]byte, len(counts))
		for i, n := range counts {
			x.kept[i], all = all[:n:n], all[n:]
		}
	}
	return nil
}

// residuals are those of the buckets that a codec encodes.
func (x *exchange) residuals() (list []*compress.Residual) {
	for i := range x.buckets {
		if op := &x.buckets[i].op; op.Codec != nil {
			list = append(list, op.Residual, op.Owner)
		}
	}
	return list
}
