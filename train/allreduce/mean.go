package allreduce

import (
	"context"
	"fmt"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A mean is local SGD: each worker makes updates by itself, and every so often parameters and optimizer state become the mean of all
// workers', weighted by the rows that each has seen since. That is done too wherever the model may be measured or saved: see train.Run.Due.
type mean struct {
	x     *exchange
	every int64
	state *optim.State

	loss, weight, rows float64 // of this worker, since the last average
	failure            error   // this worker cannot go on, and says so then
	src, dst           []float32
	steps, most        []int32 // of rows
}

func newMean(x *exchange, every int64, state *optim.State) *mean {
	m := &mean{x: x, every: every, state: state}
	n := x.own.Layout.Len() * (1 + len(state.Slots()))
	m.src, m.dst = tensor.Aligned[float32](n), tensor.Aligned[float32](n)
	for _, rows := range state.RowSteps() {
		m.steps = append(m.steps, make([]int32, len(rows))...)
	}
	m.most = make([]int32, len(m.steps))
	x.mean, x.ready = m, nil // no gradient travels
	return m
}

// update makes an update by itself, and then perhaps the average.
func (m *mean) update(ctx context.Context, step int64, batch *trivium.Batch, _ *optim.State) (totals, error) {
	x := m.x
	if m.failure == nil {
		x.run.Enter(observe.Compute)
		loss, weight, err := x.compute(batch)
		x.run.Leave()
		if err != nil {
			m.failure = fmt.Errorf("train: update %d: %w", step, err)
		} else {
			x.run.Enter(observe.Apply)
			m.state.Step(step, x.run.Params, x.own, weight)
			x.run.Leave()
		}
		m.loss, m.weight, m.rows = m.loss+loss, m.weight+weight, m.rows+float64(x.rows)
	}
	if step%m.every != 0 && !x.run.Due() {
		return totals{}, nil
	}
	x.facts = [numFacts]float64{factLoss: m.loss, factWeight: m.weight, factSeen: m.rows}
	if m.failure != nil {
		x.facts[factFail] = 1
	}
	if x.wants() {
		x.facts[factStop] = 1
	}
	x.run.Enter(observe.Push)
	err := m.travel(ctx)
	x.run.Leave()
	if err != nil {
		return totals{}, x.failed(ctx, err)
	}
	if x.sums[factFail] > 0 {
		return totals{}, x.share(ctx, m.failure)
	}
	t := totals{x.sums[factLoss], x.sums[factWeight], x.sums[factStop] > 0}
	x.run.Enter(observe.Apply)
	m.adopt() // also what is not finite: all name the same tensor then
	x.run.Leave()
	if !finite.Is(t.loss) || !finite.Is(t.weight) {
		sum, err := m.gradient(ctx)
		if err != nil {
			return t, x.failed(ctx, err)
		}
		return t, x.run.CheckLoss(t.loss, t.weight, sum)
	}
	m.loss, m.weight, m.rows = 0, 0, 0
	return t, nil
}

// vectors are what is averaged, of the length of the parameters each.
func (m *mean) vectors() [][]float32 {
	return append([][]float32{m.x.run.Params.Flat}, m.state.Slots()...)
}

// travel adds all workers' vectors, multiplied by their rows.
func (m *mean) travel(ctx context.Context) error {
	x := m.x
	step := x.g.Step()
	rows := float32(m.rows)
	at := m.src
	for _, v := range m.vectors() {
		kernel.Scale(x.run.CPU.ISA, at[:len(v)], v, rows)
		at = at[len(v):]
	}
	i := 0
	for _, counts := range m.state.RowSteps() {
		for _, n := range counts {
			m.steps[i] = int32(n)
			i++
		}
	}
	x.g.Start(collective.Op{Label: "model"}, 0, collective.Of(m.dst), collective.Of(m.src))
	x.g.Start(collective.Op{Label: "loss"}, x.tag, collective.Of(x.sums[:]), collective.Of(x.facts[:]))
	if len(m.steps) > 0 {
		x.g.Start(collective.Op{Reduce: collective.Max, Label: "updates of rows"}, x.tag+1, collective.Of(m.most), collective.Of(m.steps))
	}
	return x.g.Commit(context.WithoutCancel(ctx), step)
}

// gradient is the sum of the gradients of every worker's last update: where the loss is not finite and the parameters are, all name the
// tensor that is to blame by the same cells.
func (m *mean) gradient(ctx context.Context) (trivium.Gradient, error) {
	x := m.x
	l := x.own.Layout
	src, dst := m.src[:l.Len()], m.dst[:l.Len()] // what they held has been adopted
	copy(src, x.own.Flat)
	for i, rows := range x.own.Rows {
		if rows == nil {
			continue
		}
		from, to := l.Range(i)
		clear(src[from:to]) // the cells of other rows hold anything
		for cols := l.Cols(i); len(rows) > 0; rows = rows[1:] {
			at := from + int(rows[0])*cols
			copy(src[at:at+cols], x.own.Flat[at:])
		}
	}
	err := collective.AllReduceInto(context.WithoutCancel(ctx), x.g, dst, src, collective.Sum)
	return trivium.Gradient{Layout: l, Flat: dst, Rows: make([][]int32, l.Tensors())}, err
}

// adopt makes the mean this worker's.
func (m *mean) adopt() {
	rows := float32(m.x.sums[factSeen])
	if rows == 0 {
		return
	}
	at := m.dst
	for _, v := range m.vectors() {
		kernel.DivScalar(m.x.run.CPU.ISA, v, at[:len(v)], rows)
		at = at[len(v):]
	}
	i := 0
	for _, counts := range m.state.RowSteps() {
		for k := range counts {
			counts[k] = uint32(m.most[i])
			i++
		}
	}
}
