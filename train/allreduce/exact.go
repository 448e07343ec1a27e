package allreduce

import (
	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/shards"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
)

// exactSums are this rank's sums over the largest subtrees of the virtual shards that it owns: what it gives to exact mode.
//
// They travel in buckets too, and the bits are the same: every cell is added along the one tree, by itself. A bucket leaves when the last
// shard of the last subtree has finished its tensors; so what overlaps is the backward pass of that shard. Row-sparse tensors, in which
// rows that a rank has not touched are filled in first, follow at the end.
type exactSums struct {
	x       *exchange
	shards  int // of the job
	trees   []shards.Subtree
	sums    []trivium.Gradient // of each subtree
	packed  []float32          // of a bucket, the parts of all subtrees one after the other; nil: there is one subtree, and its part is that
	facts   []float64          // loss and weight of each
	all     [2]float64         // of all ranks
	buckets []collective.Bucket
	labels  []string
}

func newExactSums(x *exchange, l *trivium.Layout) *exactSums {
	n := x.run.Job.VirtualShards()
	e := &exactSums{x: x, shards: n, trees: shards.Owned(x.rank, x.workers, n)}
	e.facts = make([]float64, 2*len(e.trees))
	for range e.trees {
		e.sums = append(e.sums, train.NewGradient(l))
	}
	if len(e.trees) > 1 {
		e.packed = tensor.Aligned[float32](l.Len() * len(e.trees))
	}
	e.buckets = x.denseBuckets(l, x.g.Costs())
	for i := range l.Tensors() {
		if spec := l.Spec(i); spec.RowSparse && spec.Tie == "" {
			from, to := l.Range(i)
			e.buckets = append(e.buckets, collective.Bucket{From: from, To: to, Tensors: []int{i}})
		}
	}
	for _, b := range e.buckets {
		e.labels = append(e.labels, "gradient of "+span(l, b.Tensors))
	}
	x.launches(l, e.buckets, e.launch)
	return e
}

// compute sums the shards that this rank owns, of which batch has the rows.
func (e *exactSums) compute(run *train.Run, batch *trivium.Batch, ready func(tensor int)) (err error) {
	for k, t := range e.trees {
		if k < len(e.trees)-1 {
			e.facts[2*k], e.facts[2*k+1], err = run.SumShards(batch, t.From, t.To, e.sums[k])
		} else {
			e.facts[2*k], e.facts[2*k+1], err = run.SumShardsReady(batch, t.From, t.To, e.sums[k], ready)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// launch sends a bucket on its way.
func (e *exactSums) launch(i int) {
	x, b := e.x, e.buckets[i]
	n := b.To - b.From
	var src []float32 // a rank without shards has nothing to add
	switch {
	case e.packed != nil:
		src = e.packed[b.From*len(e.trees) : b.To*len(e.trees)]
		for k := range e.sums {
			copy(src[k*n:(k+1)*n], e.sums[k].Flat[b.From:b.To])
		}
	case len(e.sums) > 0:
		src = e.sums[0].Flat[b.From:b.To]
	}
	op := collective.Op{Shards: e.shards, Label: e.labels[i], Priority: b.Priority}
	x.g.Start(op, x.base+uint32(i), collective.Of(x.total.Flat[b.From:b.To]), collective.Of(src))
}

// start sends the losses; the buckets that are left follow.
func (e *exactSums) start(x *exchange) {
	op := collective.Op{Shards: e.shards, Label: "loss of the shards"}
	x.g.Start(op, x.base+x.tag+3, collective.Of(e.all[:]), collective.Of(e.facts))
}
