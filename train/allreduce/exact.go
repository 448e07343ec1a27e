package allreduce

import (
	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
)

// exactSums are this rank's sums over the largest subtrees of the virtual shards that it owns: what it gives to exact mode.
type exactSums struct {
	shards int // of the job
	trees  []collective.Subtree
	cells  []float32          // one gradient after the other
	sums   []trivium.Gradient // views of cells
	facts  []float64          // loss and weight of each
	all    [2]float64         // of all ranks
}

func newExactSums(run *train.Run, rank, workers int) *exactSums {
	l := run.Layout()
	e := &exactSums{shards: run.Job.VirtualShards(), trees: collective.Subtrees(rank, workers, run.Job.VirtualShards())}
	n := l.Len()
	e.cells, e.facts = tensor.Aligned[float32](n*len(e.trees)), make([]float64, 2*len(e.trees))
	for k := range e.trees {
		g := trivium.Gradient{Layout: l, Flat: e.cells[k*n : (k+1)*n : (k+1)*n], Rows: make([][]int32, l.Tensors())}
		for i := range g.Rows {
			if l.Spec(i).RowSparse {
				g.Rows[i] = []int32{}
			}
		}
		e.sums = append(e.sums, g)
	}
	return e
}

// compute sums the shards that this rank owns, of which batch has the rows.
func (e *exactSums) compute(run *train.Run, batch *trivium.Batch) (err error) {
	for k, t := range e.trees {
		if e.facts[2*k], e.facts[2*k+1], err = run.SumShards(batch, t.From, t.To, e.sums[k]); err != nil {
			return err
		}
	}
	return nil
}

// start sends the sums on their way.
func (e *exactSums) start(x *exchange) {
	op := collective.Op{Shards: e.shards, Label: "gradient"}
	x.g.Start(op, 0, collective.Of(x.total.Flat), collective.Of(e.cells))
	op.Label = "loss of the shards"
	x.g.Start(op, 1, collective.Of(e.all[:]), collective.Of(e.facts))
}
