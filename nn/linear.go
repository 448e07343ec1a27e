package nn

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// linear is a model with one weight a column and a bias: score = x·w + b. What it learns depends on its loss.
//
// Of dense rows the batch is read from memory once: in leaves of a few rows, margins, derivatives and the leaf's gradient are computed
// while the rows are in cache, and leaves are added in a fixed tree, so that the bits do not depend on the number of threads.
type linear struct {
	loss   pointLoss
	in     trivium.InputSpec
	layout *trivium.Layout
	cpu    *tensor.CPU

	rows    rowScratch
	workers []leafWorker
	trees   []*kernel.LeafTree[float32] // of workers
	leaves  func(i, worker int)         // m.runLeaves, bound once
	sums    func(i, worker int)         // m.runSums, bound once
	scores  func(i, worker int)         // m.runScores, bound once
	begun   func(i, worker int)         // m.runBegun, bound once
	cuts    []int                       // the runs of leaves of a call
	call    linearCall
	near    []float32 // rows that lay apart, of Descend
	sparse  columnParts
}

// rowScratch holds one value a row.
type rowScratch struct {
	loss, deriv, target []float32
	labels              trivium.Labels // the batch's: what an interface is given lies here, or each call would make room for it
}

// begin makes room for the rows of b, and writes what their scores should be.
func (s *rowScratch) begin(l pointLoss, b *trivium.Batch) error {
	s.grow(b.Rows)
	s.labels = b.Labels
	return l.targets(s.target, &s.labels)
}

// sum is the loss of the rows of b for these scores, and their weight.
func (s *rowScratch) sum(l pointLoss, b *trivium.Batch, scores []float32) (lossSum, weightSum float64, err error) {
	if err := s.begin(l, b); err != nil {
		return 0, 0, err
	}
	l.point(s.loss, s.deriv, scores[:b.Rows], s.target, b.Weights)
	return sum64(s.loss), b.WeightSum(), nil
}

func (s *rowScratch) grow(rows int) {
	if cap(s.loss) < rows {
		s.loss, s.deriv, s.target = make([]float32, rows), make([]float32, rows), make([]float32, rows)
	}
	s.loss, s.deriv, s.target = s.loss[:rows], s.deriv[:rows], s.target[:rows]
}

// A linearCall is what the tiles of one call of Grad or Predict work on.
type linearCall struct {
	x       *trivium.Input
	w       []float32
	bias    float32
	rows    int
	parts   int
	weights []float32
	out     []float32        // scores, or the gradient of w
	g       trivium.Gradient // of sparse rows
}

// A leafWorker sums runs of leaves.
type leafWorker struct {
	tree   kernel.LeafTree[float32]
	first  int // row of the first leaf of the run
	derive func(first int, z []float32)
}

// Logistic is binary logistic regression: log-loss on labels of 2 classes.
func Logistic(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
	if err := cmp.Or(noArguments(args), twoClasses(s.Labels)); err != nil {
		return nil, err
	}
	return newLinear(logLoss{cpu.ISA}, s, cpu)
}

// SVM is a linear support vector machine: hinge loss on labels of 2 classes; L2 comes from the optimizer.
func SVM(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
	if err := cmp.Or(noArguments(args), twoClasses(s.Labels)); err != nil {
		return nil, err
	}
	return newLinear(hingeLoss{}, s, cpu)
}

// Linear is linear regression: squared error, (score − label)², on one real label.
func Linear(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
	if err := noArguments(args); err != nil {
		return nil, err
	}
	if s.Labels.Kind != trivium.Real || s.Labels.Width != 1 {
		return nil, badLabels("takes one real label a row, the data has %s", labelsOf(s.Labels))
	}
	return newLinear(squaredLoss{}, s, cpu)
}

// sparseRows is the width from which the gradient of a sparse input names the rows that it touches: below it, a pass over all
// columns costs less than keeping the list.
const sparseRows = 1 << 14

func newLinear(loss pointLoss, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
	in, err := oneInput(s)
	if err != nil {
		return nil, err
	}
	if in.Form == trivium.Ragged {
		return nil, fmt.Errorf("takes dense or sparse rows, input %q is ragged", in.Name)
	}
	sparse := in.Form == trivium.CSR && in.Columns() >= sparseRows
	m := &linear{loss: loss, in: in, cpu: cpu}
	m.layout, err = newLayout(
		trivium.Spec{Name: "w", Shape: []int{in.Columns(), 1}, Decay: 1, RowSparse: sparse, Columns: in.Name},
		trivium.Spec{Name: "b", Shape: []int{1}},
	)
	if err != nil {
		return nil, err
	}
	m.workers = make([]leafWorker, cpu.Threads())
	for i := range m.workers {
		w := &m.workers[i]
		m.trees = append(m.trees, &w.tree)
		w.derive = func(first int, z []float32) { m.derive(w.first+first, z) }
	}
	m.leaves, m.sums, m.scores = m.runLeaves, m.runSums, m.runScores
	if in.Form == trivium.CSR {
		m.begun = m.runBegun
		m.sparse = newColumnParts(in.Columns(), sparse)
	}
	return m, nil
}

func (m *linear) Layout() *trivium.Layout { return m.layout }

// ReadsRows implements trivium.RowReader.
func (m *linear) ReadsRows() bool { return m.in.Form == trivium.Dense }

// Init sets all parameters to zero, as the evaluation has it for regressions.
func (m *linear) Init(_ uint64, p trivium.Params) { clear(p.Flat) }

func (m *linear) Outputs() trivium.Outputs { return m.loss.outputs() }

func (m *linear) Grad(_ context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	if err := m.begin(p, b); err != nil {
		return 0, 0, err
	}
	if err := m.rows.begin(m.loss, &b); err != nil {
		return 0, 0, err
	}
	m.call.weights = b.Weights
	if m.in.Form == trivium.CSR {
		m.sparseGrad(g)
	} else {
		m.denseGrad(g.Tensor(0))
	}
	g.Tensor(1)[0] = kernel.Sum(m.cpu.ISA, m.rows.deriv)
	if ready != nil {
		ready(0)
		ready(1)
	}
	return sum64(m.rows.loss), b.WeightSum(), nil
}

// begin checks b and remembers what the tiles need.
func (m *linear) begin(p trivium.Params, b trivium.Batch) error {
	x, err := rowsOrInput(&b, m.in)
	if err != nil {
		return err
	}
	m.call = linearCall{x: x, w: p.Tensor(0), bias: p.Tensor(1)[0], rows: b.Rows}
	return nil
}

// denseGrad lets the threads take runs of leaves, the longest first; then each adds what all have in some of the columns.
func (m *linear) denseGrad(g []float32) {
	c := &m.call
	leaves := (c.rows + kernel.LeafRows - 1) / kernel.LeafRows
	c.parts = max(1, min(len(m.workers), leaves))
	c.out = g
	m.cuts = cutLeaves(m.cuts[:0], leaves, c.parts)
	// Any thread may take any runs: one vector for each, and those of the run that is under way.
	most := len(m.cuts) - 1 + bits.Len(uint(leaves))
	for _, t := range m.trees {
		t.Reset(len(c.w))
		t.Reserve(most)
	}
	m.cpu.Pool.Run(len(m.cuts)-1, m.leaves)
	m.cpu.Pool.Run(c.parts, m.sums)
}

// cutLeaves appends where runs begin, and the end. Each run is 2^k leaves that start at a multiple of 2^k, one vector of a tree, and
// two thirds of an even share of what is left: few vectors, and threads that end together though some are slower.
func cutLeaves(cuts []int, leaves, threads int) []int {
	at := 0
	for at < leaves {
		cuts = append(cuts, at)
		share := (leaves - at) * 2 / (3 * threads)
		if threads == 1 {
			share = leaves
		}
		run := 1
		for 2*run <= min(share, leaves-at) {
			run *= 2
		}
		at += run
	}
	return append(cuts, leaves)
}

func (m *linear) runSums(i, _ int) {
	c := &m.call
	const line = 16 // no two threads write one cache line
	lines := (len(c.out) + line - 1) / line
	from, to := i*lines/c.parts*line, min((i+1)*lines/c.parts*line, len(c.out))
	kernel.SumLeaves(m.cpu.ISA, m.trees, from, c.out[from:to])
}

func (m *linear) runLeaves(i, worker int) {
	c, w := &m.call, &m.workers[worker]
	from, to := m.cuts[i], m.cuts[i+1]
	n := len(c.w)
	w.tree.Skip(from)
	w.first = from * kernel.LeafRows
	rows := min(to*kernel.LeafRows, c.rows) - w.first
	if c.x.Rows != nil {
		kernel.LinearRows(m.cpu.ISA, c.x.Rows[w.first:w.first+rows], c.w, c.bias, w.derive, &w.tree)
		return
	}
	kernel.LinearLeaves(m.cpu.ISA, rows, n, c.x.Values[w.first*n:], n, c.w, c.bias, w.derive, &w.tree)
}

// derive turns the margins z of the rows from first on into derivatives, in place, and keeps losses and derivatives.
func (m *linear) derive(first int, z []float32) {
	to := first + len(z)
	var weights []float32
	if m.call.weights != nil {
		weights = m.call.weights[first:to]
	}
	d := m.rows.deriv[first:to]
	m.loss.point(m.rows.loss[first:to], d, z, m.rows.target[first:to], weights)
	copy(z, d)
}

// sparseGrad adds row by row, on one thread: to divide so few cells costs more than it saves.
func (m *linear) sparseGrad(g trivium.Gradient) {
	c := &m.call
	c.g = g
	c.out = m.rows.deriv
	c.parts = max(1, min(4*m.cpu.Pool.Width(), c.rows/kernel.LeafRows)) // who makes room scores fewer
	m.cpu.Pool.Run(1+c.parts, m.begun)
	m.loss.point(m.rows.loss, m.rows.deriv, m.rows.deriv, m.rows.target, c.weights)
	x := kernel.CSR[float32]{Indptr: c.x.Ptr[:c.rows+1], Indices: c.x.Index, Values: c.x.Values}
	kernel.SparseMatMulT(m.cpu.ISA, g.Tensor(0), 1, x, m.rows.deriv, 1, 1, 0, len(c.w))
}

// runBegun is what the gradient of sparse rows waits for: one thread makes room in it, while others score the rows.
func (m *linear) runBegun(i, worker int) {
	if i > 0 {
		m.runScores(i-1, worker)
		return
	}
	c := &m.call
	m.sparse.cut(c.x.Index[c.x.Ptr[0]:c.x.Ptr[c.rows]], 1)
	m.sparse.names(c.g, 0)
	m.sparse.zero(c.g, 0, 0)
}

func (m *linear) runSparse(from, to int) {
	c := &m.call
	for r := from; r < to; r++ {
		lo, hi := c.x.Ptr[r], c.x.Ptr[r+1]
		if r+1 < to {
			kernel.FetchRows(c.w, c.x.Index[hi:c.x.Ptr[r+2]], 1)
		}
		c.out[r] = kernel.SparseDot(c.x.Index[lo:hi], c.x.Values[lo:hi], c.w) + c.bias
	}
}

func (m *linear) Predict(_ context.Context, p trivium.Params, b trivium.Batch, scores []float32) error {
	if err := m.begin(p, b); err != nil {
		return err
	}
	m.call.out = scores[:b.Rows]
	m.call.parts = max(1, min(len(m.workers), b.Rows/kernel.LeafRows))
	m.cpu.Pool.Run(m.call.parts, m.scores)
	return nil
}

func (m *linear) runScores(i, _ int) {
	c := &m.call
	from, to := i*c.rows/c.parts, (i+1)*c.rows/c.parts
	if m.in.Form == trivium.CSR {
		m.runSparse(from, to)
		return
	}
	n := len(c.w)
	out := c.out[from:to]
	if c.x.Rows == nil {
		kernel.Gemv(m.cpu.ISA, len(out), n, c.x.Values[from*n:], n, c.w, out)
	}
	for r := range out {
		if c.x.Rows != nil { // the bits of Gemv
			out[r] = kernel.Dot(m.cpu.ISA, c.x.Rows[from+r], c.w)
		}
		out[r] += c.bias
	}
}

func (m *linear) Loss(b trivium.Batch, scores []float32) (lossSum, weightSum float64, err error) {
	return m.rows.sum(m.loss, &b, scores)
}

func (m *linear) Scores(b *graph.Builder, inputs map[string]graph.Value) (graph.Value, error) {
	x, err := flatInput(inputs, m.in)
	if err != nil {
		return graph.Value{}, err
	}
	w := b.Variable("w", graph.F32, []int{m.in.Columns(), 1}, graph.Zeros())
	bias := b.Variable("b", graph.F32, []int{1}, graph.Zeros())
	return graph.Add(graph.MatMul(x, w.Read()), bias.Read()), b.Err()
}

// sum64 adds in row order: the losses of a batch are few, and their sum is what a user compares.
func sum64(x []float32) float64 {
	var s float64
	for _, v := range x {
		s += float64(v)
	}
	return s
}
