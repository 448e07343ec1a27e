package nn

import (
	"errors"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/autodiff"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A sparseTable is a Variable whose gradient names rows.
type sparseTable struct {
	id      int    // its position
	columns string // the sparse input whose columns these are; empty: they come from elsewhere
}

// sparseOnly lists the Variables that are read once and only by an operation whose gradient names rows, as many as a batch has of something.
func sparseOnly(g *graph.Graph) []sparseTable {
	counted := map[graph.Dim]bool{}       // axes whose size a feed tells
	columnsOf := map[graph.Value]string{} // of which sparse input
	for _, v := range g.Inputs() {
		if s := v.Shape(); len(s) > 0 && !s[0].Fixed() {
			counted[s[0]] = true
		}
		if input, part := feedName(g.Node(v.Node()).Name); part == partIndices {
			columnsOf[v] = input
		}
	}
	list := func(v graph.Value, t graph.DType) bool {
		typ := v.Type()
		return typ.DType == t && len(typ.Shape) == 1 && counted[typ.Shape[0]]
	}
	names := func(node *graph.Node, i int) bool {
		switch node.Op.Name {
		case "SparseMatMul":
			return i == 3 && list(node.Inputs[0], graph.I64) && list(node.Inputs[1], graph.I32)
		case "Gather":
			return i == 0 && list(node.Inputs[1], graph.I32)
		}
		return false
	}
	type reader struct {
		sparse  bool // its gradient names rows
		columns string
	}
	readers := map[graph.Value][]reader{}
	for node := range g.Nodes() {
		for i, v := range node.Inputs {
			r := reader{sparse: names(node, i)}
			if r.sparse {
				r.columns = columnsOf[node.Inputs[1]]
			}
			readers[v] = append(readers[v], r)
		}
	}
	var found []sparseTable
	for i, reads := range readsOf(g) {
		if len(reads) != 1 {
			continue
		}
		if by := readers[reads[0]]; len(by) == 1 && by[0].sparse {
			found = append(found, sparseTable{i, by[0].columns})
		}
	}
	return found
}

// A sparseGrad is the gradient of a row-sparse tensor, which is a sparse matrix, transposed, times the gradient dy of what its reader makes. The
// matrix is that of the product with the tensor, or has a one in each row where the reader is Gather. It is added up in the touched rows of the
// caller's gradient, by each thread in some.
type sparseGrad struct {
	tensor, cols int
	fetches      []graph.Value // columns of the matrix, and dy; of a product row pointers and values too
	dst          []*tensor.Tensor
	ptr          []int64
	ids          []int32
	values, dy   []float32
	parts        columnParts
	run          func(part, worker int) // s.add of the call of scatter under way, bound once
	isa          kernel.ISA
	g            trivium.Gradient
}

// newSparseGrad prepares for grad, the gradient of tensor i.
func newSparseGrad(l *trivium.Layout, i int, grad autodiff.Grad) *sparseGrad {
	s := &sparseGrad{tensor: i, cols: l.Cols(i), fetches: []graph.Value{grad.Rows, grad.Values}, parts: newColumnParts(l.Rows(i), true)}
	if def := grad.Values.Def(); def.Op.Name == "SparseMatMulGradRows" { // what it would compute of these is many times as much
		indptr, values, dy := def.Inputs[0], def.Inputs[1], def.Inputs[2]
		s.fetches = []graph.Value{grad.Rows, dy, indptr, values}
	}
	for _, v := range s.fetches {
		dims := make([]int, len(v.Shape()))
		for k, d := range v.Shape()[1:] { // a row may have any axes
			dims[k+1] = d.N
		}
		s.dst = append(s.dst, tensor.New(v.Type().DType, dims...))
	}
	s.run = s.add
	return s
}

// attach makes room for what is fetched, of as many entries and rows as the feeds with the same axes have.
func (s *sparseGrad) attach(feeds []feed) error {
	count := func(v graph.Value) (n int) {
		for i := range feeds {
			if feeds[i].axis == v.Shape()[0] {
				n = feeds[i].t.Dim(0)
			}
		}
		return n
	}
	n := count(s.fetches[0])
	rows := n
	s.ids, s.values = grown(s.ids, n), grown(s.values, n)
	if len(s.dst) > 2 {
		rows = count(s.fetches[2]) - 1
		s.ptr = grown(s.ptr, rows+1)
		if err := errors.Join(tensor.Attach(s.dst[2], s.ptr, rows+1), tensor.Attach(s.dst[3], s.values, n)); err != nil {
			return err
		}
	} else {
		s.ptr = grown(s.ptr, n+1)
		for k := range s.values {
			s.ptr[k+1], s.values[k] = int64(k+1), 1
		}
	}
	s.dy = grown(s.dy, rows*s.cols)
	return errors.Join(tensor.Attach(s.dst[0], s.ids, n), tensor.Attach(s.dst[1], s.dy, rows))
}

// scatter adds up what was fetched in g, in the order of the entries.
func (s *sparseGrad) scatter(cpu *tensor.CPU, g trivium.Gradient) {
	s.isa, s.g = cpu.ISA, g
	s.parts.cut(s.ids, cpu.Pool.Width())
	s.parts.names(g, s.tensor)
	cpu.Pool.Run(s.parts.parts(), s.run)
}

func (s *sparseGrad) add(part, _ int) {
	from, to := s.parts.zero(s.g, s.tensor, part)
	a := kernel.CSR[float32]{Indptr: s.ptr, Indices: s.ids, Values: s.values}
	kernel.SparseMatMulT(s.isa, s.g.Tensor(s.tensor), s.cols, a, s.dy, s.cols, s.cols, from, to)
}
