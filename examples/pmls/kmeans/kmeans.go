// Package kmeans finds the centres of k groups of points in batches, on tables: PMLS's k-means.
//
// A centre moves towards each point that is nearest to it by 1 / the points that it has had (Sculley 2010). That is their mean, so the
// table holds their sum and, in the same row, their number: what workers add commutes, and a stale read costs a few assignments, never a
// wrong mean. Two rows may be of different rounds, and a sum over another round's number is no mean. Ties go to the lower centre; a centre
// without points stays where it began. A point of weight w is w points, and one of weight 0 is none.
package kmeans

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train/server"
)

// New returns the model for data of that schema; its argument is the number of centres, as in "kmeans:4".
func New(args string, s trivium.Schema, _ *tensor.CPU) (trivium.Model, error) {
	k, err := strconv.Atoi(args)
	if err != nil || k < 1 || k > 1<<20 {
		return nil, &nn.ArgumentError{Err: fmt.Errorf("kmeans: want the number of centres, as in kmeans:4, found %q", args)}
	}
	return build(k, nil, s)
}

// From returns a model that begins with those centres, one after the other.
func From(centres []float32, s trivium.Schema) (*Model, error) {
	n := width(s)
	if n == 0 || len(centres) == 0 || len(centres)%n != 0 {
		return nil, fmt.Errorf("kmeans: %d numbers are no centres of %d", len(centres), n)
	}
	return build(len(centres)/n, centres, s)
}

// width is the number of coordinates; 0: the data is not of points.
func width(s trivium.Schema) int {
	if len(s.Inputs) != 1 || s.Inputs[0].Form != trivium.Dense {
		return 0
	}
	in := trivium.Input{Shape: s.Inputs[0].Shape}
	return in.RowLen()
}

func build(k int, centres []float32, s trivium.Schema) (*Model, error) {
	m := &Model{k: k, n: width(s), start: centres}
	if m.n == 0 {
		return nil, errors.New("kmeans: wants one dense input")
	}
	var err error
	m.layout, err = trivium.NewLayout(
		trivium.Spec{Name: "centres", Shape: []int{k, m.n + 1}}, // the sum of the points of each, its start among them, then their number; each times its weight
	)
	return m, err
}

// A Model is centres. It implements server.Program.
type Model struct {
	k, n   int
	layout *trivium.Layout
	start  []float32 // nil: rows by chance

	table ps.Table[float64] // in which any number of points is exact
	ids   []int64

	rows, add    []float64 // the worker's copy, and what it adds in a round
	centres      []float32
	loss, weight float64
}

// Layout implements trivium.Model.
func (m *Model) Layout() *trivium.Layout { return m.layout }

// Init implements trivium.Model. The centres are chosen among the rows, in Begin.
func (m *Model) Init(_ uint64, p trivium.Params) { clear(p.Flat) }

// Grad implements trivium.Model: there is none.
func (m *Model) Grad(context.Context, trivium.Params, trivium.Batch, trivium.Gradient, func(int)) (lossSum, weightSum float64, err error) {
	return 0, 0, errors.New("kmeans: centres are means, on tables: train it with --topology server")
}

// Tables implements server.Program.
func (m *Model) Tables() []ps.Spec {
	// By hash, so that no row of up to 65,536 cells is cut in two between servers.
	return []ps.Spec{{Name: "centres", Rows: int64(m.k), Cols: int64(m.n) + 1, Cell: ps.Float64, Partition: ps.Hash}}
}

var stream = draw.Stream("pmls/kmeans")

// Begin implements server.Beginner: rank 0 chooses the centres that there are to begin with.
func (m *Model) Begin(ctx context.Context, w *ps.Worker, p server.Part) (err error) {
	if m.table, err = ps.TableOf[float64](w, "centres"); err != nil {
		return err
	}
	m.ids = m.ids[:0]
	for c := range m.k {
		m.ids = append(m.ids, int64(c))
	}
	m.rows, m.add, m.centres = make([]float64, m.k*(m.n+1)), make([]float64, m.k*(m.n+1)), make([]float32, m.k*m.n)
	if p.Rank != 0 || p.Rounds > 0 {
		return nil
	}
	if m.start == nil {
		err = m.choose(ctx, p)
	}
	for c := range len(m.start) / m.n {
		m.put(c, m.start[c*m.n:(c+1)*m.n], 1)
	}
	return errors.Join(err, m.tell())
}

// put counts x, of weight w, as a point of centre c in what is added.
func (m *Model) put(c int, x []float32, w float64) {
	row := m.add[c*(m.n+1) : (c+1)*(m.n+1)]
	for i, y := range x {
		row[i] += w * float64(y)
	}
	row[m.n] += w
}

// tell adds the rows of those centres that points were put to.
func (m *Model) tell() error {
	for c := range m.k {
		row := m.add[c*(m.n+1) : (c+1)*(m.n+1)]
		if row[m.n] == 0 {
			continue
		}
		if err := m.table.DenseInc(int64(c), 0, row); err != nil {
			return err
		}
	}
	return nil
}

// choose puts to the centres rows that are far from those that are chosen, in the spirit of k-means++ (Arthur and Vassilvitskii 2007): of
// eight by chance the farthest. Each counts as what it weighs, so that weights may be of any scale.
func (m *Model) choose(ctx context.Context, p server.Part) error {
	var b trivium.Batch
	var chosen []float32
	for c := range m.k {
		var best []float32
		var heavy float64
		far := float32(-1)
		for try := range uint64(8) {
			if err := m.draw(ctx, &b, p, uint64(c)*8+try); err != nil {
				return err
			}
			x := b.Inputs[0].Values
			d := float32(0)
			if c > 0 {
				_, d = m.nearest(chosen, x)
			}
			if d > far {
				best, heavy, far = append(best[:0], x...), weight(&b, 0), d
			}
		}
		chosen = append(chosen, best...)
		m.put(c, best, heavy)
	}
	return nil
}

// draw reads a row by chance, or the next that weighs something.
func (m *Model) draw(ctx context.Context, b *trivium.Batch, p server.Part, i uint64) error {
	rows := p.Train.Rows()
	at := int64(draw.Below(p.Job.Seed, stream, i, uint64(rows)))
	for range rows {
		if err := p.Train.Read(ctx, b, at, at+1); err != nil || weight(b, 0) > 0 {
			return err
		}
		at = (at + 1) % rows
	}
	return errors.New("kmeans: no row weighs more than 0")
}

// weight is what row r of b weighs.
func weight(b *trivium.Batch, r int) float64 {
	if b.Weights == nil {
		return 1
	}
	return float64(b.Weights[r])
}

// nearest returns the centre next to x, and the square of its distance.
func (m *Model) nearest(centres, x []float32) (centre int, square float32) {
	for c := range len(centres) / m.n {
		var d float32
		for i, y := range centres[c*m.n : (c+1)*m.n] {
			e := x[i] - y
			d += e * e
		}
		if c == 0 || d < square {
			centre, square = c, d
		}
	}
	return centre, square
}

// RoundLoss implements server.Scorer: the sum of squared distances to the centres, each times the weight of its point.
func (m *Model) RoundLoss() (lossSum, weightSum float64) { return m.loss, m.weight }

// Round implements server.Program.
func (m *Model) Round(ctx context.Context, _ *ps.Worker, b trivium.Batch) error {
	m.loss, m.weight = 0, b.WeightSum()
	if _, err := m.table.GetRows(ctx, m.ids, m.rows); err != nil {
		return err
	}
	clear(m.add)
	for c := range m.k {
		m.move(c)
	}
	for r := range b.Rows {
		w := weight(&b, r)
		if w == 0 { // its numbers may be any, and nothing times infinity is no number
			continue
		}
		x := b.Inputs[0].Values[r*m.n : (r+1)*m.n]
		c, d := m.nearest(m.centres, x)
		m.loss += w * float64(d)
		m.put(c, x, w)
		m.move(c)
	}
	return m.tell()
}

// move puts centre c where its points are.
func (m *Model) move(c int) {
	at := c * (m.n + 1)
	n := m.rows[at+m.n] + m.add[at+m.n]
	for i := range m.n {
		m.centres[c*m.n+i] = float32((m.rows[at+i] + m.add[at+i]) / n)
	}
}

var (
	_ server.Program  = (*Model)(nil)
	_ server.Beginner = (*Model)(nil)
	_ server.Scorer   = (*Model)(nil)
)
