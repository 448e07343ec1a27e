package metric

import (
	"fmt"
	"math"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/wire"
)

// r2 is the coefficient of determination: 1 less the squared errors as a share of what always predicting the labels' mean would make. Of
// several labels a row it is the mean over them, as in scikit-learn. Where all labels are equal it is not defined.
type r2 struct {
	outputs trivium.Outputs
	weight  float64
	columns []spread
}

// A spread is of one label of the rows. Deviations are summed from the mean as it moves (Welford 1962; merged as in Chan, Golub and LeVeque
// 1983): the difference of two large sums would lose them where labels are far from 0.
type spread struct {
	mean, deviation, err float64 // deviation and err are sums of squares
}

func newR2(_ string, o trivium.Outputs) (trivium.Metric, error) {
	return &r2{outputs: o, columns: make([]spread, o.Width)}, nil
}

func (m *r2) Name() string         { return "r2" }
func (m *r2) HigherIsBetter() bool { return true }

func (m *r2) Reset() {
	m.weight = 0
	clear(m.columns)
}

func (m *r2) Value() float64 {
	var sum float64
	for _, c := range m.columns {
		if c.deviation == 0 {
			return math.NaN()
		}
		sum += 1 - c.err/c.deviation
	}
	return sum / float64(len(m.columns))
}

func (m *r2) Add(o trivium.Outputs, b trivium.Batch, scores []float32) error {
	return eachRow(m.Name(), m.outputs, o, &b, scores, func(i int, w float64, s []float32) error {
		l := &b.Labels
		if err := realLabels(o, l, i); err != nil {
			return err
		}
		m.weight += w
		for k := range m.columns {
			c, y := &m.columns[k], float64(l.Real[i*l.Width+k])
			e, d := float64(s[k])-y, y-c.mean
			c.mean += float64(d * (w / m.weight))
			c.deviation += float64(w * float64(d*(y-c.mean)))
			c.err += float64(w * float64(e*e))
		}
		return nil
	})
}

func (m *r2) Merge(other trivium.Metric) error {
	x, ok := other.(*r2)
	if !ok || x.outputs != m.outputs {
		return mergeError(m.Name(), other)
	}
	if x.weight == 0 {
		return nil
	}
	all := m.weight + x.weight
	for k := range m.columns {
		c, y := &m.columns[k], x.columns[k]
		d := y.mean - c.mean
		c.mean += float64(d * (x.weight / all)) // in nothing it is x's to the last bit: labels that are all equal do not deviate
		c.deviation += y.deviation + float64(d*d*m.weight*x.weight/all)
		c.err += y.err
	}
	m.weight = all
	return nil
}

func (m *r2) AppendBinary(p []byte) ([]byte, error) {
	p = wire.AppendFloat64(header(p, m.Name()), m.weight)
	for _, c := range m.columns {
		p = wire.AppendFloat64(wire.AppendFloat64(wire.AppendFloat64(p, c.mean), c.deviation), c.err)
	}
	return p, nil
}

func (m *r2) UnmarshalBinary(p []byte) error {
	r := open(m.Name(), p)
	weight, columns := r.Float64("weight"), make([]spread, len(m.columns))
	for k := range columns {
		columns[k] = spread{r.Float64("mean"), r.Float64("deviation"), r.Float64("error")}
	}
	if err := r.Done(); err != nil {
		return err
	}
	m.weight, m.columns = weight, columns
	return nil
}

// realLabels refuses labels of row i that are not as many real numbers as there are scores.
func realLabels(o trivium.Outputs, l *trivium.Labels, i int) error {
	if l.Kind != trivium.Real || l.Width != o.Width || len(l.Real) < (i+1)*l.Width {
		return fmt.Errorf("wants %d real labels a row, found %d of kind %v", o.Width, l.Width, l.Kind)
	}
	return nil
}
