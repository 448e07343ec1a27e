// Package mf factorises a matrix of which some entries are known, X ≈ L·R, by stochastic gradient descent on tables: PMLS's matrix
// factorisation.
//
// A row of data is one entry: its row and its column, each the one column of a sparse input, and its value, the label. The tables L and R
// have a row of rank numbers for each. A worker reads the rows that its entries need once a round, takes a step for each entry on its copy,
// and adds what they came to. An entry of weight w has a step w times as large, and one of weight 0 none.
package mf

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
	"github.com/trivium-ml/trivium/train/server"
)

// Options of the model. The step of pass t, from 0, is Rate·(Offset + t)^−Power.
type Options struct {
	Rank                int
	Rate, Offset, Power float64
	L2                  float64 // of the entries' rows
	Mean                float64 // added to every prediction: what the entries are around
	Start               float64 // L and R begin uniform in (−Start, Start)
}

// DefaultOptions suit ratings from 1 to 5.
func DefaultOptions() Options {
	return Options{Rank: 4, Rate: 0.05, Offset: 1, Power: 0.3, L2: 0.2, Mean: 1.8, Start: 0.3}
}

// most is of arguments: a step beyond it is none that a float32 survives.
const most = 1e9

// Parse reads the arguments of a model: a rank, and KEY=X, as in "mf:8,rate=0.05,l2=0.1".
func Parse(args string) (o Options, err error) {
	o = DefaultOptions()
	var errs []error
	for _, word := range strings.Split(args, ",") {
		key, value, found := strings.Cut(word, "=")
		if word == "" {
			continue
		}
		if !found {
			key, value = "rank", word
		}
		x, err := strconv.ParseFloat(value, 64)
		to, ok := map[string]*float64{"rate": &o.Rate, "offset": &o.Offset, "power": &o.Power, "l2": &o.L2, "mean": &o.Mean, "start": &o.Start}[key]
		switch {
		case err != nil || x != x || math.Abs(x) > most:
			errs = append(errs, fmt.Errorf("mf: %s: want a number of at most %g, found %q", key, most, value))
		case key == "rank":
			if o.Rank = int(x); x < 1 || x > 1<<16 || x != math.Trunc(x) {
				errs = append(errs, fmt.Errorf("mf: rank: want a whole number from 1 to 65536, found %q", value))
			}
		case !ok:
			errs = append(errs, fmt.Errorf("mf: want a rank, rate, offset, power, l2, mean or start, found %q", word))
		case x < 0 && key != "mean" && key != "power", x == 0 && key == "offset":
			errs = append(errs, fmt.Errorf("mf: %s: want a number %s, found %q", key, map[bool]string{true: "above 0", false: "of 0 or more"}[key == "offset"], value))
		default:
			*to = x
		}
	}
	return o, errors.Join(errs...)
}

// New returns the model for data of that schema.
func New(args string, s trivium.Schema, _ *tensor.CPU) (trivium.Model, error) {
	o, err := Parse(args)
	if err != nil {
		return nil, &nn.ArgumentError{Err: err}
	}
	if len(s.Inputs) != 2 || s.Inputs[0].Form != trivium.CSR || s.Inputs[1].Form != trivium.CSR || s.Labels.Kind != trivium.Real || s.Labels.Width != 1 {
		return nil, errors.New("mf: wants two sparse inputs, of which each row names one column, and a real label")
	}
	m := &Model{Options: o}
	m.layout, err = trivium.NewLayout(
		trivium.Spec{Name: "L", Shape: []int{s.Inputs[0].Shape[0], o.Rank}},
		trivium.Spec{Name: "R", Shape: []int{s.Inputs[1].Shape[0], o.Rank}},
	)
	return m, err
}

// A Model is a factorisation. It implements server.Program.
type Model struct {
	Options
	layout       *trivium.Layout
	l, r         factor
	part         server.Part
	loss, weight float64
}

// Layout implements trivium.Model.
func (m *Model) Layout() *trivium.Layout { return m.layout }

var stream = draw.Stream("pmls/mf")

// Init implements trivium.Model.
func (m *Model) Init(seed uint64, p trivium.Params) {
	for i := range p.Flat {
		p.Flat[i] = float32(m.Start) * draw.Unit(seed, stream, uint64(i))
	}
}

// Grad implements trivium.Model: there is none.
func (m *Model) Grad(context.Context, trivium.Params, trivium.Batch, trivium.Gradient, func(int)) (lossSum, weightSum float64, err error) {
	return 0, 0, errors.New("mf: entries are stepped one by one, on tables: train it with --topology server")
}

// Tables implements server.Program.
func (m *Model) Tables() []ps.Spec {
	var specs []ps.Spec
	for i, name := range []string{"L", "R"} {
		specs = append(specs, ps.Spec{Name: name, Rows: int64(m.layout.Rows(i)), Cols: int64(m.Rank)})
	}
	return specs
}

// Begin implements server.Beginner.
func (m *Model) Begin(_ context.Context, w *ps.Worker, p server.Part) (err error) {
	m.part = p
	if m.l.table, err = ps.TableOf[float32](w, "L"); err != nil {
		return err
	}
	m.r.table, err = ps.TableOf[float32](w, "R")
	return err
}

// RoundLoss implements server.Scorer: the sum of squared errors, each before its step and times the weight of its entry.
func (m *Model) RoundLoss() (lossSum, weightSum float64) { return m.loss, m.weight }

// Round implements server.Program.
func (m *Model) Round(ctx context.Context, _ *ps.Worker, b trivium.Batch) error {
	m.loss, m.weight = 0, b.WeightSum()
	if b.Rows == 0 {
		return nil
	}
	rows, cols := &b.Inputs[0], &b.Inputs[1]
	if err := errors.Join(m.l.read(ctx, rows, m.Rank), m.r.read(ctx, cols, m.Rank)); err != nil {
		return err
	}
	step := float32(2 * m.Rate * math.Pow(m.Offset+float64(m.part.Epoch()), -m.Power))
	l2 := float32(m.L2)
	for i := range b.Rows {
		w := weight(&b, i)
		if w == 0 { // its label may be any, and nothing times infinity is no number
			continue
		}
		l, r := m.l.row(rows.Index[rows.Ptr[i]]), m.r.row(cols.Index[cols.Ptr[i]])
		e := b.Labels.Real[i] - float32(m.Mean)
		for k, x := range l {
			e -= x * r[k]
		}
		m.loss += float64(w) * float64(e) * float64(e)
		step := step * w
		for k, x := range l {
			l[k] += step * (e*r[k] - l2*x)
			r[k] += step * (e*x - l2*r[k])
		}
	}
	return errors.Join(m.l.add(), m.r.add())
}

// weight is what entry i of b weighs.
func weight(b *trivium.Batch, i int) float32 {
	if b.Weights == nil {
		return 1
	}
	return b.Weights[i]
}

// A factor is L or R: its table, and the worker's copy of the rows that a round needs.
type factor struct {
	table ps.Table[float32]
	rank  int
	at    map[int32]int // of the copies
	ids   []int64
	copy  []float32
	old   []float32
}

// read copies the rows that a batch names.
func (f *factor) read(ctx context.Context, in *trivium.Input, rank int) error {
	f.rank, f.at, f.ids = rank, map[int32]int{}, f.ids[:0]
	for i := range len(in.Ptr) - 1 {
		if in.Ptr[i+1] != in.Ptr[i]+1 {
			return fmt.Errorf("mf: input %q: row %d names %d columns, want one", in.Name, i, in.Ptr[i+1]-in.Ptr[i])
		}
		id := in.Index[in.Ptr[i]]
		if _, ok := f.at[id]; !ok {
			f.at[id] = len(f.ids)
			f.ids = append(f.ids, int64(id))
		}
	}
	if n := len(f.ids) * rank; cap(f.copy) < n {
		f.copy, f.old = make([]float32, n), make([]float32, n)
	}
	f.copy = f.copy[:len(f.ids)*rank]
	_, err := f.table.GetRows(ctx, f.ids, f.copy)
	f.old = append(f.old[:0], f.copy...)
	return err
}

func (f *factor) row(id int32) []float32 {
	at := f.at[id]
	return f.copy[at*f.rank : (at+1)*f.rank]
}

// add tells the table what became of the copies.
func (f *factor) add() error {
	for i := range f.old {
		f.old[i] = f.copy[i] - f.old[i]
	}
	for i, id := range f.ids {
		if err := f.table.DenseInc(id, 0, f.old[i*f.rank:(i+1)*f.rank]); err != nil {
			return err
		}
	}
	return nil
}

// Outputs implements trivium.Predictor.
func (m *Model) Outputs() trivium.Outputs { return trivium.Outputs{Task: trivium.Regression, Width: 1} }

// Predict implements trivium.Predictor.
func (m *Model) Predict(_ context.Context, p trivium.Params, b trivium.Batch, scores []float32) error {
	rows, cols := &b.Inputs[0], &b.Inputs[1]
	for i := range b.Rows {
		l := p.Tensor(0)[int(rows.Index[rows.Ptr[i]])*m.Rank:][:m.Rank]
		r := p.Tensor(1)[int(cols.Index[cols.Ptr[i]])*m.Rank:][:m.Rank]
		x := float32(m.Mean)
		for k := range l {
			x += l[k] * r[k]
		}
		scores[i] = x
	}
	return nil
}

// Loss implements trivium.Predictor: squared errors, each times the weight of its entry.
func (*Model) Loss(b trivium.Batch, scores []float32) (lossSum, weightSum float64, err error) {
	for i, x := range b.Labels.Real {
		if w := float64(weight(&b, i)); w != 0 {
			e := float64(scores[i] - x)
			lossSum += w * e * e
		}
	}
	return lossSum, b.WeightSum(), nil
}

var (
	_ server.Program    = (*Model)(nil)
	_ server.Beginner   = (*Model)(nil)
	_ server.Scorer     = (*Model)(nil)
	_ trivium.Predictor = (*Model)(nil)
)
