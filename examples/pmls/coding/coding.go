// Package coding writes each row of data as a sum of a few parts, x ≈ s·A, on tables: PMLS's non-negative matrix factorisation, whose
// numbers are all 0 or more, and its sparse coding, whose codes s are mostly 0.
//
// The parts A, a row each, are a table. The code of a row stays with the worker that has the row. In a round a worker reads the parts, takes
// some steps on the code of each of its rows (projected, or proximal: Beck and Teboulle 2009), and then adds one step of all its rows on the
// parts. What holds for the parts (no negative cell; no row longer than 1) the server restores once a round is in. A row of weight w is w
// rows in the step on the parts and in the loss, and one of weight 0 is none; its own code it has as if it were alone.
package coding

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/train/server"
)

// Options of the models.
type Options struct {
	Parts  int
	Rate   float64 // of the steps on codes and on parts
	Lambda float64 // of sparse coding: what a code's size costs
	Inner  int     // steps on a code a round
}

// most is of arguments: a step beyond it is none that a float32 survives.
const most = 1e9

// parse reads the arguments of a model: the number of parts, and KEY=X, as in "coding:20,lambda=0.1".
func parse(name, args string, o Options) (Options, error) {
	var errs []error
	for _, word := range strings.Split(args, ",") {
		key, value, found := strings.Cut(word, "=")
		if word == "" {
			continue
		}
		if !found {
			key, value = "parts", word
		}
		x, err := strconv.ParseFloat(value, 64)
		whole := x == math.Trunc(x) && x >= 1 && x <= 1<<20
		switch {
		case err != nil || !(x >= 0 && x <= most):
			errs = append(errs, fmt.Errorf("%s: %s: want a number of 0 or more, of at most %g, found %q", name, key, most, value))
		case key == "parts" && whole:
			o.Parts = int(x)
		case key == "inner" && whole:
			o.Inner = int(x)
		case key == "rate":
			o.Rate = x
		case key == "lambda" && o.Lambda > 0:
			o.Lambda = x
		default:
			errs = append(errs, fmt.Errorf("%s: %q is none of its arguments, such as 3,rate=0.02,inner=10", name, word))
		}
	}
	return o, errors.Join(errs...)
}

// NMF returns non-negative matrix factorisation: "nmf:3" has three parts.
func NMF(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
	o, err := parse("nmf", args, Options{Parts: 8, Rate: 0.02, Inner: 10})
	if err != nil {
		return nil, &nn.ArgumentError{Err: err}
	}
	return build(&Model{Options: o, name: "nmf", keep: ps.NonNegative()}, s, cpu)
}

// Sparse returns sparse coding: "coding:20,lambda=0.1" has twenty parts.
func Sparse(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
	o, err := parse("coding", args, Options{Parts: 20, Rate: 0.05, Lambda: 0.1, Inner: 10})
	if err != nil {
		return nil, &nn.ArgumentError{Err: err}
	}
	return build(&Model{Options: o, name: "coding", keep: ps.RowNorm(1)}, s, cpu)
}

func build(m *Model, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
	if len(s.Inputs) != 1 || s.Inputs[0].Form != trivium.Dense {
		return nil, fmt.Errorf("%s: wants one dense input", m.name)
	}
	in := trivium.Input{Shape: s.Inputs[0].Shape}
	m.n, m.isa = in.RowLen(), kernel.Best()
	if cpu != nil {
		m.isa = cpu.ISA
	}
	var err error
	m.layout, err = trivium.NewLayout(trivium.Spec{Name: "parts", Shape: []int{m.Parts, m.n}})
	return m, err
}

// A Model is parts. It implements server.Program.
type Model struct {
	Options
	name   string
	keep   ps.Constraint
	n      int
	isa    kernel.ISA
	layout *trivium.Layout

	table        ps.Table[float32]
	seed         uint64
	ids          []int64
	parts, step  []float32
	codes        map[int64][]float32 // of this worker's rows, by ID
	rest         []float32           // of a row: what its code does not say
	loss, weight float64
}

// Layout implements trivium.Model.
func (m *Model) Layout() *trivium.Layout { return m.layout }

var partStream, codeStream = draw.Stream("pmls/parts"), draw.Stream("pmls/codes")

// Init implements trivium.Model: uniform in (0, 1), or by any direction, of length 1.
func (m *Model) Init(seed uint64, p trivium.Params) {
	for i := range p.Flat {
		if m.nonNegative() {
			p.Flat[i] = (1 + draw.Unit(seed, partStream, uint64(i))) / 2
		} else {
			p.Flat[i] = float32(draw.Normal(seed, partStream, uint64(i)))
		}
	}
	for a := 0; a < len(p.Flat) && !m.nonNegative(); a += m.n {
		part := p.Flat[a : a+m.n]
		norm := float32(math.Sqrt(float64(kernel.SumSquares(m.isa, part))))
		for i := range part {
			part[i] /= norm
		}
	}
}

func (m *Model) nonNegative() bool { return m.keep.Kind == ps.KeepNonNegative }

// Grad implements trivium.Model: there is none.
func (m *Model) Grad(context.Context, trivium.Params, trivium.Batch, trivium.Gradient, func(int)) (lossSum, weightSum float64, err error) {
	return 0, 0, fmt.Errorf("%s: codes stay with their rows, parts are a table: train it with --topology server", m.name)
}

// Tables implements server.Program.
func (m *Model) Tables() []ps.Spec {
	return []ps.Spec{{Name: "parts", Rows: int64(m.Parts), Cols: int64(m.n), Keep: m.keep}}
}

// Keeps implements server.Keeper.
func (m *Model) Keeps() string { return "the code" }

// Begin implements server.Beginner.
func (m *Model) Begin(_ context.Context, w *ps.Worker, p server.Part) (err error) {
	m.table, err = ps.TableOf[float32](w, "parts")
	m.seed, m.codes = p.Job.Seed, map[int64][]float32{}
	m.parts, m.step, m.rest = make([]float32, m.Parts*m.n), make([]float32, m.Parts*m.n), make([]float32, m.n)
	for k := range m.Parts {
		m.ids = append(m.ids, int64(k))
	}
	return err
}

// RoundLoss implements server.Scorer: over the rows of the round, the squared error and what the code's size costs, each times
// the weight of its row.
func (m *Model) RoundLoss() (lossSum, weightSum float64) { return m.loss, m.weight }

// Round implements server.Program.
func (m *Model) Round(ctx context.Context, _ *ps.Worker, b trivium.Batch) error {
	m.loss, m.weight = 0, b.WeightSum()
	if b.Rows == 0 {
		return nil
	}
	if _, err := m.table.GetRows(ctx, m.ids, m.parts); err != nil {
		return err
	}
	if m.nonNegative() { // the worker's own last step may not have been to the server yet
		for i, x := range m.parts {
			m.parts[i] = max(x, 0)
		}
	}
	clear(m.step)
	rate := float32(2 * m.Rate)
	for r := range b.Rows {
		w := weight(&b, r)
		if w == 0 { // its numbers may be any, and nothing times infinity is no number
			continue
		}
		x := b.Inputs[0].Values[r*m.n : (r+1)*m.n]
		code := m.codeOf(b.IDs[r])
		for range m.Inner {
			m.subtract(x, code)
			for k := range code {
				s := code[k] + rate*kernel.Dot(m.isa, m.rest, m.part(m.parts, k))
				code[k] = m.shrink(s, float32(m.Rate*m.Lambda))
			}
		}
		m.subtract(x, code)
		m.loss += float64(w) * float64(kernel.SumSquares(m.isa, m.rest))
		for k, s := range code {
			m.loss += float64(w) * m.Lambda * math.Abs(float64(s))
			if s != 0 {
				kernel.Axpy(m.isa, m.part(m.step, k), rate*s*w, m.rest)
			}
		}
	}
	for k := range m.Parts {
		if err := m.table.DenseInc(int64(k), 0, m.part(m.step, k)); err != nil {
			return err
		}
	}
	return nil
}

// weight is what row r of b weighs.
func weight(b *trivium.Batch, r int) float32 {
	if b.Weights == nil {
		return 1
	}
	return b.Weights[r]
}

// codeOf returns the code of a row: at first uniform in (0, 1), or 0.
func (m *Model) codeOf(id int64) []float32 {
	code := m.codes[id]
	if code == nil {
		code = make([]float32, m.Parts)
		for k := range code {
			if m.nonNegative() {
				code[k] = (1 + draw.Unit(m.seed, codeStream, uint64(id)*uint64(m.Parts)+uint64(k))) / 2
			}
		}
		m.codes[id] = code
	}
	return code
}

func (m *Model) part(of []float32, k int) []float32 { return of[k*m.n : (k+1)*m.n] }

// subtract makes rest what code does not say of x.
func (m *Model) subtract(x, code []float32) {
	copy(m.rest, x)
	for k, s := range code {
		if s != 0 {
			kernel.Axpy(m.isa, m.rest, -s, m.part(m.parts, k))
		}
	}
}

// shrink is the projection of a code's cell, or its proximal step.
func (m *Model) shrink(s, by float32) float32 {
	switch {
	case m.nonNegative():
		return max(s, 0)
	case s > by:
		return s - by
	case s < -by:
		return s + by
	}
	return 0
}

var (
	_ server.Program  = (*Model)(nil)
	_ server.Beginner = (*Model)(nil)
	_ server.Keeper   = (*Model)(nil)
	_ server.Scorer   = (*Model)(nil)
)
