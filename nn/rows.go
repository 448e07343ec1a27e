package nn

import (
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/autodiff"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// sparseOnly lists the Variables, by position, that are read once and only by an operation whose gradient names rows, as many as a batch
// has of something.
func sparseOnly(g *graph.Graph) []int {
	counted := map[graph.Dim]bool{} // axes whose size a feed tells
	for _, v := range g.Inputs() {
		if s := v.Shape(); len(s) > 0 && !s[0].Fixed() {
			counted[s[0]] = true
		}
	}
	names := func(node *graph.Node, i int) bool {
		if !(node.Op.Name == "SparseMatMul" && i == 3 || node.Op.Name == "Gather" && i == 0) {
			return false
		}
		rows := node.Inputs[1].Type()
		return rows.DType == graph.I32 && len(rows.Shape) == 1 && counted[rows.Shape[0]]
	}
	readers := map[graph.Value][]bool{} // of each value: whether the gradient of the reader names rows
	for node := range g.Nodes() {
		for i, v := range node.Inputs {
			readers[v] = append(readers[v], names(node, i))
		}
	}
	var ids []int
	for i, reads := range readsOf(g) {
		if len(reads) == 1 && slices.Equal(readers[reads[0]], []bool{true}) {
			ids = append(ids, i)
		}
	}
	return ids
}

// A sparseGrad is a gradient that a step fetches as rows, which may repeat, and their values. It is added up in the touched rows of
// the caller's gradient.
type sparseGrad struct {
	tensor       int
	cols         int
	axis         graph.Dim // of the entries
	rows, values *tensor.Tensor
	flat         []float32
	ids          []int32
	touched      []int32
	seen         *kernel.Seen
}

// newSparseGrad prepares for what a step fetches of grad, the gradient of tensor i.
func newSparseGrad(l *trivium.Layout, i int, grad autodiff.Grad) sparseGrad {
	cols := l.Cols(i)
	return sparseGrad{
		tensor: i, cols: cols, axis: grad.Rows.Shape()[0],
		rows:   tensor.New(tensor.I32, 0),
		values: tensor.New(tensor.F32, append([]int{0}, l.Spec(i).Shape[1:]...)...), // a row may have any axes
		seen:   kernel.NewSeen(l.Rows(i)),
	}
}

// attach makes room for as many rows as the feed with the same axis has entries.
func (s *sparseGrad) attach(feeds []feed) error {
	n := 0
	for i := range feeds {
		if feeds[i].axis == s.axis {
			n = feeds[i].t.Dim(0)
		}
	}
	s.flat = grown(s.flat, n*s.cols)
	if cap(s.ids) < n {
		s.ids = make([]int32, n)
	}
	s.ids = s.ids[:n]
	if err := tensor.Attach(s.rows, s.ids, n); err != nil {
		return err
	}
	return tensor.Attach(s.values, s.flat, n)
}

// scatter adds the fetched values into g, in the order of the entries.
func (s *sparseGrad) scatter(isa kernel.ISA, g trivium.Gradient) {
	s.touched = kernel.Touched(s.touched[:0], s.ids, s.seen)
	g.Touch(s.tensor, s.touched)
	kernel.ScatterAddRows(isa, g.Tensor(s.tensor), s.ids, s.flat, s.cols)
}
