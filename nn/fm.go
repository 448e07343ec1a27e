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
// parallel; the gradient is computed column by column, each with one owner who meets its rows in order, so that threads change no bit.
type fm struct {
	loss    pointLoss
	factors int
	in      trivium.InputSpec
	layout  *trivium.Layout
	cpu     *tensor.CPU

	rows    rowScratch
	sums    []float32 // rows × factors: Σ_j v_jf x_j
	columns columnIndex
	call    fmCall
	score   func(i, worker int) // m.runScore, bound once
	column  func(i, worker int) // m.runColumn, bound once
}

type fmCall struct {
	x      *trivium.Input
	bias   float32
	w, v   []float32
	gw, gv []float32
	rows   int
	out    []float32
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
		trivium.Spec{Name: "w", Shape: []int{in.Columns(), 1}, Decay: 1, RowSparse: sparse},
		trivium.Spec{Name: "v", Shape: []int{in.Columns(), k[0]}, Decay: 1, RowSparse: sparse},
		trivium.Spec{Name: "b", Shape: []int{1}},
	)
	if err != nil {
		return nil, err
	}
	m.score, m.column = m.runScore, m.runColumn
	m.columns = newColumnIndex(in.Columns())
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
	if need := b.Rows * m.factors; cap(m.sums) < need {
		m.sums = make([]float32, need)
	}
	m.sums = m.sums[:b.Rows*m.factors]
	m.call = fmCall{x: x, bias: p.Tensor(fmB)[0], w: p.Tensor(fmW), v: p.Tensor(fmV), rows: b.Rows}
	return nil
}

// fmTile is the number of rows, or columns, of a tile: a row of 15 entries with 8 factors costs about 100 ns, a hand-over about 1 µs.
const fmTile = 64

func (m *fm) Grad(_ context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	if err := m.begin(p, &b); err != nil {
		return 0, 0, err
	}
	if n := m.call.x.Ptr[b.Rows] - m.call.x.Ptr[0]; n > math.MaxInt32 {
		return 0, 0, fmt.Errorf("nn: input %q: %d entries in one batch, of which fm counts %d at most; a smaller batch has fewer", m.in.Name, n, math.MaxInt32)
	}
	if err := m.rows.begin(m.loss, &b); err != nil {
		return 0, 0, err
	}
	z := m.rows.deriv
	m.call.out = z
	m.cpu.Pool.Run((b.Rows+fmTile-1)/fmTile, m.score)
	m.loss.point(m.rows.loss, m.rows.deriv, z, m.rows.target, b.Weights)

	m.columns.build(m.call.x, b.Rows)
	if m.layout.Spec(fmW).RowSparse {
		g.Touch(fmW, m.columns.ids)
		g.Touch(fmV, m.columns.ids)
	} else {
		clear(g.Tensor(fmW))
		clear(g.Tensor(fmV))
	}
	m.call.gw, m.call.gv = g.Tensor(fmW), g.Tensor(fmV)
	m.cpu.Pool.Run((len(m.columns.ids)+fmTile-1)/fmTile, m.column)
	g.Tensor(fmB)[0] = kernel.Sum(m.cpu.ISA, m.rows.deriv)
	if ready != nil {
		for i := range m.layout.Tensors() {
			ready(i)
		}
	}
	return sum64(m.rows.loss), b.WeightSum(), nil
}

// runScore scores a tile of rows. Products are rounded before they are added, everywhere, so no instruction set changes a bit.
func (m *fm) runScore(tile, _ int) {
	c, k := &m.call, m.factors
	for r := tile * fmTile; r < min((tile+1)*fmTile, c.rows); r++ {
		s := m.sums[r*k : (r+1)*k]
		// The factors lie far apart, and are waited for all at once so, and not one row after the other.
		var sum float32
		for _, j := range c.x.Index[c.x.Ptr[r]:c.x.Ptr[r+1]] {
			sum += c.w[j] + c.v[int(j)*k]
		}
		s[0] = sum // of no use, but the compiler does not know
		clear(s)
		score := c.bias
		var squares float32
		for e := c.x.Ptr[r]; e < c.x.Ptr[r+1]; e++ {
			j, x := int(c.x.Index[e]), c.x.Values[e]
			score += float32(c.w[j] * x)
			for f, v := range c.v[j*k : (j+1)*k] {
				vx := float32(v * x)
				s[f] += vx
				squares += float32(vx * vx)
			}
		}
		var pairs float32
		for _, a := range s {
			pairs += float32(a * a)
		}
		c.out[r] = score + float32(0.5*(pairs-squares))
	}
}

// runColumn computes the gradient of a tile of columns: d score / d w_j = x_j, and d score / d v_jf = x_j (s_f − v_jf x_j).
func (m *fm) runColumn(tile, _ int) {
	c, k, cols := &m.call, m.factors, &m.columns
	values := c.x.Values[c.x.Ptr[0]:]
	for i := tile * fmTile; i < min((tile+1)*fmTile, len(cols.ids)); i++ {
		j := int(cols.ids[i])
		gv, v := c.gv[j*k:(j+1)*k], c.v[j*k:(j+1)*k]
		var gw float32
		for _, e := range cols.entries[cols.start[i]:cols.start[i+1]] {
			x := values[e.at]
			dx := float32(m.rows.deriv[e.row] * x)
			gw += dx
			s := m.sums[int(e.row)*k:]
			for f := range gv {
				gv[f] += float32(dx * (s[f] - float32(v[f]*x)))
			}
		}
		c.gw[j] = gw
	}
}

func (m *fm) Predict(_ context.Context, p trivium.Params, b trivium.Batch, scores []float32) error {
	if err := m.begin(p, &b); err != nil {
		return err
	}
	m.call.out = scores[:b.Rows]
	m.cpu.Pool.Run((b.Rows+fmTile-1)/fmTile, m.score)
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

// A columnIndex lists the entries of a sparse batch by column: columns ascending, and rows ascending within a column.
type columnIndex struct {
	ids     []int32 // columns that occur, ascending
	start   []int32 // len(ids)+1 offsets into entries
	entries []columnEntry
	place   []int32 // per column of the data: first its count, then where its next entry goes; all zero between calls
	seen    *kernel.Seen
}

type columnEntry struct {
	row int32
	at  int32 // of the entry, counted from the batch's first: a batch may be a view of more entries than an int32 counts
}

func newColumnIndex(columns int) columnIndex {
	return columnIndex{place: make([]int32, columns), seen: kernel.NewSeen(columns)}
}

func (ci *columnIndex) build(x *trivium.Input, rows int) {
	base := x.Ptr[0]
	all := x.Index[base:x.Ptr[rows]]
	for _, c := range all {
		ci.place[c]++
	}
	ci.ids = kernel.Touched(ci.ids[:0], all, ci.seen)
	ci.start = append(ci.start[:0], 0)
	var at int32
	for _, c := range ci.ids {
		n := ci.place[c]
		ci.place[c] = at
		at += n
		ci.start = append(ci.start, at)
	}
	if cap(ci.entries) < int(at) {
		ci.entries = make([]columnEntry, at)
	}
	ci.entries = ci.entries[:at]
	for r := range rows {
		for e := x.Ptr[r]; e < x.Ptr[r+1]; e++ {
			c := x.Index[e]
			ci.entries[ci.place[c]] = columnEntry{int32(r), int32(e - base)}
			ci.place[c]++
		}
	}
	for _, c := range ci.ids {
		ci.place[c] = 0
	}
}
