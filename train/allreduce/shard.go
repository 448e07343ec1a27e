package allreduce

import (
	"context"
	"fmt"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/train"
)

// A sharding is sharded optimizer state: the first stage of ZeRO (Rajbhandari et al. 2020). Of every bucket each worker gets the sum of
// one part, keeps the optimizer's state of that part alone, and updates it; then the parts of the parameters go to everyone. The bytes
// that travel are those of an allreduce. Row-sparse tensors, of which few rows change, keep their state at every worker.
type sharding struct {
	x      *exchange
	parts  []part
	sparse []whole
	state  *optim.State
	params trivium.Params   // of this worker's parts, one after the other, and of the row-sparse tensors
	grad   trivium.Gradient // of the same cells

	saved    [][]float32 // at rank 0: the state of all workers, when it was last asked for
	rowSteps [][]uint32
}

// A part is what this worker has of a bucket, or, in exact mode, of a run of dense tensors.
type part struct {
	from, to  int   // the bucket, in the parameters
	counts    []int // cells of each worker
	own, n    int   // this worker's cells, in the parameters
	at        int   // the same, in the shard
	scattered bool  // the sum goes to the shard, not to exchange.total
	label     string
}

// A whole is a row-sparse tensor.
type whole struct{ tensor, shard int }

// shard cuts the buckets into the workers' parts, and makes this one's state, from the checkpoint where the run resumes one.
func (x *exchange) shard(run *train.Run) error {
	s := &sharding{x: x}
	l := run.Layout()
	if x.exact != nil {
		for _, r := range denseRuns(l) {
			from, _ := l.Range(r[0])
			_, to := l.Range(r[1])
			s.parts = append(s.parts, part{from: from, to: to, label: "parameters from " + l.Spec(r[0]).Name})
		}
	}
	for i := range x.buckets {
		b := &x.buckets[i]
		s.parts = append(s.parts, part{from: b.From, to: b.To, scattered: b.op.Codec == nil, label: b.op.Label})
	}
	var specs []trivium.Spec
	at := 0
	for i := range s.parts {
		p := &s.parts[i]
		n := p.to - p.from
		for r := range x.workers {
			p.counts = append(p.counts, (r+1)*n/x.workers-r*n/x.workers)
		}
		p.at, p.own, p.n = at, p.from+x.rank*n/x.workers, p.counts[x.rank]
		at += p.n
		specs = append(specs, specsOf(l, p.own, p.own+p.n)...)
	}
	for i := range l.Tensors() {
		if spec := l.Spec(i); spec.RowSparse && spec.Tie == "" {
			s.sparse = append(s.sparse, whole{i, len(specs)})
			specs = append(specs, spec)
		}
	}
	layout, err := trivium.NewLayout(specs...)
	if err != nil {
		return fmt.Errorf("allreduce: the shard of rank %d: %w", x.rank, err)
	}
	s.params, s.grad = trivium.NewParams(layout), trivium.NewGradient(layout)
	if s.state, err = run.OptimizerPart(layout, s.restore, s.whole); err != nil {
		return err
	}
	k := 0
	for i := range x.buckets {
		b := &x.buckets[i]
		p := &s.parts[k]
		if k++; p.scattered {
			b.op.Kind, b.dst = collective.ReduceScatter, collective.Of(s.grad.Flat[p.at:p.at+p.n])
		}
	}
	x.sharding = s
	return nil
}

// specsOf describes the cells [from, to) of l, tensor by tensor.
func specsOf(l *trivium.Layout, from, to int) (list []trivium.Spec) {
	for i := range l.Tensors() {
		spec := l.Spec(i)
		a, b := l.Range(i)
		a, b = max(a, from), min(b, to)
		if spec.Tie != "" || a >= b {
			continue
		}
		first, _ := l.Range(i)
		spec.Name, spec.Shape = fmt.Sprintf("%s[%d:%d]", spec.Name, a-first, b-first), []int{b - a}
		list = append(list, spec)
	}
	return list
}

// step updates this worker's parts, and brings the others'.
func (s *sharding) step(ctx context.Context, step int64, weight float64) error {
	if weight == 0 { // at all workers
		return nil
	}
	x := s.x
	all := x.run.Params.Flat
	x.run.Enter(observe.Apply)
	for i := range s.parts {
		p := &s.parts[i]
		copy(s.params.Flat[p.at:p.at+p.n], all[p.own:]) // others may have written there: the best model so far, running means
		if !p.scattered {
			copy(s.grad.Flat[p.at:p.at+p.n], x.total.Flat[p.own:])
		}
	}
	for _, w := range s.sparse {
		s.grad.Rows[w.shard] = x.total.Rows[w.tensor]
		s.rows(w, s.params.Tensor(w.shard), x.run.Params.Tensor(w.tensor))
		s.rows(w, s.grad.Tensor(w.shard), x.total.Tensor(w.tensor))
	}
	s.state.Step(step, s.params, s.grad, weight)
	for _, w := range s.sparse {
		s.rows(w, x.run.Params.Tensor(w.tensor), s.params.Tensor(w.shard))
	}
	x.run.Leave()
	x.run.Enter(observe.Pull)
	for i := range s.parts {
		p := &s.parts[i]
		op := collective.Op{Kind: collective.AllGather, Counts: p.counts, Label: "parameters of " + p.label}
		x.g.Start(op, uint32(i), collective.Of(all[p.from:p.to]), collective.Of(s.params.Flat[p.at:p.at+p.n]))
	}
	err := x.g.Commit(context.WithoutCancel(ctx), x.g.Step())
	x.run.Leave()
	if err != nil {
		return x.failed(ctx, err)
	}
	return nil
}

// total brings everyone the gradient sum, of which each worker has its parts alone.
func (s *sharding) total(ctx context.Context) error {
	x := s.x
	for i := range s.parts {
		if p := &s.parts[i]; p.scattered {
			op := collective.Op{Kind: collective.AllGather, Counts: p.counts, Label: "sum of the " + p.label}
			x.g.Start(op, uint32(i), collective.Of(x.total.Flat[p.from:p.to]), collective.Of(s.grad.Flat[p.at:p.at+p.n]))
		}
	}
	if err := x.g.Commit(context.WithoutCancel(ctx), x.g.Step()); err != nil {
		return x.failed(ctx, err)
	}
	return nil
}

// rows copies the touched rows of a row-sparse tensor.
func (s *sharding) rows(w whole, dst, src []float32) {
	cols := s.params.Layout.Cols(w.shard)
	for _, r := range s.x.total.Rows[w.tensor] {
		copy(dst[int(r)*cols:(int(r)+1)*cols], src[int(r)*cols:])
	}
}

// collect brings the state of all workers to rank 0, for a checkpoint.
func (s *sharding) collect(ctx context.Context) error {
	x := s.x
	l := x.run.Layout()
	if x.rank == 0 && s.saved == nil {
		for range s.state.Slots() {
			s.saved = append(s.saved, make([]float32, l.Len()))
		}
		s.rowSteps = make([][]uint32, l.Tensors())
	}
	tag := uint32(0)
	for k, slot := range s.state.Slots() {
		for i := range s.parts {
			p := &s.parts[i]
			dst := collective.Buffer{}
			if x.rank == 0 {
				dst = collective.Of(s.saved[k][p.from:p.to])
			}
			op := collective.Op{Kind: collective.Gather, Counts: p.counts, Label: "optimizer state of " + p.label}
			x.g.Start(op, tag, dst, collective.Of(slot[p.at:p.at+p.n]))
			tag++
		}
	}
	if err := x.g.Commit(context.WithoutCancel(ctx), x.g.Step()); err != nil {
		return x.failed(ctx, err)
	}
	if x.rank != 0 {
		return nil
	}
	for _, w := range s.sparse {
		from, to := s.params.Layout.Range(w.shard)
		first, _ := l.Range(w.tensor)
		for k, slot := range s.state.Slots() {
			copy(s.saved[k][first:], slot[from:to])
		}
		s.rowSteps[w.tensor] = s.state.RowSteps()[w.shard]
	}
	return nil
}

// whole is the state of all workers.
func (s *sharding) whole() (slots [][]float32, rowSteps [][]uint32) {
	if s.saved == nil { // there was no update yet: it is what was restored, or zero
		for range s.state.Slots() {
			slots = append(slots, make([]float32, s.x.run.Layout().Len()))
		}
		rowSteps = make([][]uint32, s.x.run.Layout().Tensors())
		for _, w := range s.sparse {
			rowSteps[w.tensor] = s.state.RowSteps()[w.shard]
		}
		return slots, rowSteps
	}
	return s.saved, s.rowSteps
}

// restore picks this worker's cells of the state that was saved.
func (s *sharding) restore(slots [][]float32, rowSteps [][]uint32) (own [][]float32, ownSteps [][]uint32, err error) {
	l := s.x.run.Layout()
	ownSteps = make([][]uint32, s.params.Layout.Tensors())
	for k, slot := range slots {
		if len(slot) != l.Len() {
			return nil, nil, fmt.Errorf("allreduce: optimizer state %d of the checkpoint: want %d cells, found %d", k, l.Len(), len(slot))
		}
		mine := make([]float32, s.params.Layout.Len())
		for i := range s.parts {
			p := &s.parts[i]
			copy(mine[p.at:p.at+p.n], slot[p.own:])
		}
		for _, w := range s.sparse {
			from, to := s.params.Layout.Range(w.shard)
			first, _ := l.Range(w.tensor)
			copy(mine[from:to], slot[first:])
		}
		own = append(own, mine)
	}
	for _, w := range s.sparse {
		if w.tensor < len(rowSteps) {
			ownSteps[w.shard] = rowSteps[w.tensor]
		}
	}
	if s.x.rank == 0 { // what is saved before the first update
		s.saved, s.rowSteps = make([][]float32, len(slots)), make([][]uint32, l.Tensors())
		for k, slot := range slots {
			s.saved[k] = append([]float32(nil), slot...)
		}
		copy(s.rowSteps, rowSteps)
	}
	return own, ownSteps, nil
}
