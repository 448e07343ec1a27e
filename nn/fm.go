package nn

import (
	"context"
	"fmt"
	"math"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// fm is a factorisation machine of degree 2 (Rendle 2010, equations 1 and 5):
//
//	score = b + Σ_j w_j x_j + ½ Σ_f [ (Σ_j v_jf x_j)² − Σ_j v_jf² x_j² ]
//
// over the entries of a sparse row. Labels of 2 classes are learnt by log-loss, one real label by squared error. Rows are scored in
// parallel; of the gradient each thread has some columns, whose rows it meets in order, so that threads change no bit.
type fm struct {
	loss    pointLoss
	factors int
	in      trivium.InputSpec
	layout  *trivium.Layout
	cpu     *tensor.CPU

	rows    rowScratch
	sums    []float32 // rows × 2 factors: those of kernel.FactorSums
	parts   columnParts
	call    fmCall
	score   func(i, worker int) // m.runScore, bound once
	begun   func(i, worker int) // m.runBegun, bound once
	columns func(i, worker int) // m.runColumns, bound once
}

// An fmCall is what the tiles of one call of Grad or Predict work on.
type fmCall struct {
	x    kernel.CSR[float32]
	bias float32
	w, v []float32
	g    trivium.Gradient
	tile int       // rows that a thread takes at a time
	out  []float32 // scores
}

const (
	fmW = iota // tensors of the layout
	fmV
	fmB
)

// fmSpread is the largest initial factor: small, so that the first scores are those of the linear part.
const fmSpread = 0.1

// FM is a factorisation machine with the given number of factors, by default 8.
func FM(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
	k, err := sizes(args, "a number of factors")
	if err != nil {
		return nil, err
	}
	if len(k) == 0 {
		k = []int{8}
	}
	if len(k) > 1 {
		return nil, wrongArguments("takes one number of factors, found %q", args)
	}
	in, err := oneInput(s)
	if err != nil {
		return nil, err
	}
	if in.Form != trivium.CSR {
		return nil, fmt.Errorf("takes sparse rows (libsvm, or a table with hashed columns), input %q is %v", in.Name, in.Form)
	}
	m := &fm{factors: k[0], in: in, cpu: cpu, loss: squaredLoss{}}
	if s.Labels.Kind == trivium.Class {
		m.loss = logLoss{cpu.ISA}
		err = twoClasses(s.Labels)
	} else if s.Labels.Kind != trivium.Real || s.Labels.Width != 1 {
		err = badLabels("takes labels of 2 classes or one real label a row, the data has %s", labelsOf(s.Labels))
	}
	if err != nil {
		return nil, err
	}
	sparse := in.Columns() >= sparseRows
	m.layout, err = newLayout(
		trivium.Spec{Name: "w", Shape: []int{in.Columns(), 1}, Decay: 1, RowSparse: sparse, Columns: in.Name},
		trivium.Spec{Name: "v", Shape: []int{in.Columns(), k[0]}, Decay: 1, RowSparse: sparse, Columns: in.Name},
		trivium.Spec{Name: "b", Shape: []int{1}},
	)
	if err != nil {
		return nil, err
	}
	m.score, m.begun, m.columns = m.runScore, m.runBegun, m.runColumns
	m.parts = newColumnParts(in.Columns(), sparse)
	return m, nil
}

func (m *fm) Layout() *trivium.Layout { return m.layout }

func (m *fm) Init(seed uint64, p trivium.Params) {
	clear(p.Flat)
	uniform(p.Tensor(fmV), seed, 1, fmSpread/math.Sqrt(float64(m.factors)))
}

func (m *fm) Outputs() trivium.Outputs { return m.loss.outputs() }

func (m *fm) begin(p trivium.Params, b *trivium.Batch) error {
	x, err := input(b, m.in)
	if err != nil {
		return err
	}
	if need := 2 * b.Rows * m.factors; cap(m.sums) < need {
		m.sums = make([]float32, need)
	}
	c := &m.call
	c.x = kernel.CSR[float32]{Indptr: x.Ptr[:b.Rows+1], Indices: x.Index, Values: x.Values}
	c.bias, c.w, c.v = p.Tensor(fmB)[0], p.Tensor(fmW), p.Tensor(fmV)
	entries := x.Ptr[b.Rows] - x.Ptr[0]
	c.tile = int(max(1, fmTile*int64(b.Rows)/max(1, entries*int64(m.factors))))
	return nil
}

// tiles is how many tiles of rows there are.
func (c *fmCall) tiles() int { return (c.x.Rows() + c.tile - 1) / c.tile }

// fmTile is the number of factors of the entries of a tile of rows: some 10 µs, where a hand-over takes about 1.
const fmTile = 2048

func (m *fm) Grad(_ context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	if err := m.begin(p, &b); err != nil {
		return 0, 0, err
	}
	if err := m.rows.begin(m.loss, &b); err != nil {
		return 0, 0, err
	}
	z := m.rows.deriv
	m.call.out = z
	m.call.g = g
	m.cpu.Pool.Run(1+m.call.tiles(), m.begun)
	m.loss.point(m.rows.loss, m.rows.deriv, z, m.rows.target, b.Weights)
	m.parts.names(g, fmW)
	m.parts.names(g, fmV)
	m.cpu.Pool.Run(m.parts.parts(), m.columns)
	g.Tensor(fmB)[0] = kernel.Sum(m.cpu.ISA, m.rows.deriv)
	if ready != nil {
		for i := range m.layout.Tensors() {
			ready(i)
		}
	}
	return sum64(m.rows.loss), b.WeightSum(), nil
}

// runBegun is what the gradient waits for: one thread divides the columns, while others score the rows.
func (m *fm) runBegun(i, worker int) {
	if i > 0 {
		m.runScore(i-1, worker)
		return
	}
	x := &m.call.x
	m.parts.cut(x.Indices[x.Indptr[0]:x.Indptr[x.Rows()]], m.cpu.Pool.Width())
}

// runScore scores a tile of rows. While it is at one, what the next needs comes from memory.
func (m *fm) runScore(tile, _ int) {
	c, k := &m.call, m.factors
	from, to := tile*c.tile, min((tile+1)*c.tile, c.x.Rows())
	fetch := func(r int) {
		idx, _ := c.x.Row(r)
		kernel.FetchRows(c.v, idx, k)
		kernel.FetchRows(c.w, idx, 1)
	}
	fetch(from)
	for r := from; r < to; r++ {
		if r+1 < to {
			fetch(r + 1)
		}
		s := m.sums[2*k*r : 2*k*(r+1)]
		row := c.x
		row.Indptr = row.Indptr[r : r+2]
		kernel.FactorSums(m.cpu.ISA, s, row, c.v, k)
		var pairs float32
		for f, sum := range s[:k] {
			pairs += float32(sum*sum) - s[k+f]
		}
		idx, val := c.x.Row(r)
		c.out[r] = c.bias + kernel.SparseDot(idx, val, c.w) + float32(0.5*pairs)
	}
}

// runColumns computes the gradient of a part of the columns: d score / d w_j = x_j, and d score / d v_jf = x_j (s_f − v_jf x_j).
func (m *fm) runColumns(part, _ int) {
	c := &m.call
	from, to := m.parts.zero(c.g, fmW, part)
	m.parts.zero(c.g, fmV, part)
	kernel.SparseMatMulT(m.cpu.ISA, c.g.Tensor(fmW), 1, c.x, m.rows.deriv, 1, 1, from, to)
	kernel.FactorGrads(m.cpu.ISA, c.g.Tensor(fmV), c.x, m.rows.deriv, m.sums, c.v, m.factors, from, to)
}

func (m *fm) Predict(_ context.Context, p trivium.Params, b trivium.Batch, scores []float32) error {
	if err := m.begin(p, &b); err != nil {
		return err
	}
	m.call.out = scores[:b.Rows]
	m.cpu.Pool.Run(m.call.tiles(), m.score)
	return nil
}

func (m *fm) Loss(b trivium.Batch, scores []float32) (lossSum, weightSum float64, err error) {
	return m.rows.sum(m.loss, &b, scores)
}

func (m *fm) Scores(b *graph.Builder, inputs map[string]graph.Value) (graph.Value, error) {
	x, err := flatInput(inputs, m.in)
	if err != nil {
		return graph.Value{}, err
	}
	w := b.Variable("w", graph.F32, []int{m.in.Columns(), 1}, graph.Zeros()).Read()
	v := b.Variable("v", graph.F32, []int{m.in.Columns(), m.factors}, graph.Zeros()).Read()
	bias := b.Variable("b", graph.F32, []int{1}, graph.Zeros()).Read()
	sums := graph.MatMul(x, v)
	squares := graph.MatMul(graph.Square(x), graph.Square(v))
	pairs := graph.Sum(graph.Sub(graph.Square(sums), squares), []int{1}, true)
	half := b.Scalar(graph.F32, 0.5)
	return graph.Add(graph.Add(graph.MatMul(x, w), bias), graph.Mul(half, pairs)), b.Err()
}
