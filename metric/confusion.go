package metric

import (
	"fmt"
	"math"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/wire"
)

// A Confusion counts, by weight, how often each class was predicted for each class. Its value is the accuracy, and String draws the
// matrix.
type Confusion struct {
	outputs trivium.Outputs
	n       int
	counts  []float64 // n rows of n+1 columns: label, then prediction; the last column is for rows without a prediction (NaN)
}

// maxMatrix is the number of classes up to which there is a matrix: 32 MiB.
const maxMatrix = 2048

func newConfusion(_ string, o trivium.Outputs) (trivium.Metric, error) {
	n := classes(o)
	if n > maxMatrix {
		return nil, fmt.Errorf("metric: confusion has a cell for each pair of classes: want %d classes at most, found %d", maxMatrix, n)
	}
	return &Confusion{outputs: o, n: n, counts: make([]float64, n*(n+1))}, nil
}

// Name returns confusion.
func (c *Confusion) Name() string { return "confusion" }

// HigherIsBetter returns true.
func (c *Confusion) HigherIsBetter() bool { return true }

// Reset sets all counts to 0.
func (c *Confusion) Reset() { clear(c.counts) }

// Classes returns the number of classes.
func (c *Confusion) Classes() int { return c.n }

// Count returns the weight of the rows of class label for which class prediction was predicted.
func (c *Confusion) Count(label, prediction int) float64 { return c.counts[label*(c.n+1)+prediction] }

// Add accounts for b's rows.
func (c *Confusion) Add(o trivium.Outputs, b trivium.Batch, scores []float32) error {
	return eachRow(c.Name(), c.outputs, o, &b, scores, func(i int, w float64, s []float32) error {
		label, err := class(&b.Labels, i, c.n)
		if err != nil {
			return err
		}
		p := predicted(o, s)
		if p < 0 {
			p = c.n
		}
		c.counts[label*(c.n+1)+p] += w
		return nil
	})
}

// Merge adds m's counts.
func (c *Confusion) Merge(m trivium.Metric) error {
	x, ok := m.(*Confusion)
	if !ok || x.n != c.n {
		return mergeError(c.Name(), m)
	}
	for i, v := range x.counts {
		c.counts[i] += v
	}
	return nil
}

// Value returns the accuracy: the share of the weight that lies on the diagonal.
func (c *Confusion) Value() float64 {
	var right, all float64
	for i, v := range c.counts {
		all += v
		if label, predicted := i/(c.n+1), i%(c.n+1); label == predicted {
			right += v
		}
	}
	return right / all
}

// String draws the matrix, a row a label and a column a prediction.
func (c *Confusion) String() string {
	var s strings.Builder
	s.WriteString("label \\ predicted")
	for k := range c.n {
		fmt.Fprintf(&s, "%10d", k)
	}
	for k := range c.n {
		fmt.Fprintf(&s, "\n%17d", k)
		for j := range c.n {
			fmt.Fprintf(&s, "%10.6g", c.Count(k, j))
		}
	}
	s.WriteByte('\n')
	return s.String()
}

// AppendBinary appends the encoded counts to p.
func (c *Confusion) AppendBinary(p []byte) ([]byte, error) {
	return wire.AppendFloat64s(header(p, c.Name()), c.counts), nil
}

// UnmarshalBinary replaces c's counts by those in p, of as many classes.
func (c *Confusion) UnmarshalBinary(p []byte) error {
	r := open(c.Name(), p)
	counts := weights(r, len(c.counts), c.n)
	if err := r.Done(); err != nil {
		return err
	}
	copy(c.counts, counts)
	return nil
}

// weights reads so many sums of weights, of n classes.
func weights(r *wire.Reader, want, n int) []float64 {
	p := r.Float64s("counts", want)
	if r.Err() == nil && len(p) != want {
		r.Fail("counts", fmt.Errorf("want %d, of %d classes; found %d", want, n, len(p)))
	}
	for _, v := range p {
		if !(v >= 0) || math.IsInf(v, 1) {
			r.Fail("counts", fmt.Errorf("%v is no weight", v))
		}
	}
	return p
}

// A perClass is precision, recall or F1: of class 1 where there are two, else the mean over the classes that occur.
type perClass struct {
	name    string
	outputs trivium.Outputs
	n       int
	sums    []float64 // by class: the weight of its rows, of the predictions of it, and of those that are right
}

func newPerClass(name string, o trivium.Outputs) (trivium.Metric, error) {
	n := classes(o)
	return &perClass{name: name, outputs: o, n: n, sums: make([]float64, 3*n)}, nil
}

func (c *perClass) Name() string         { return c.name }
func (c *perClass) HigherIsBetter() bool { return true }
func (c *perClass) Reset()               { clear(c.sums) }

func (c *perClass) Add(o trivium.Outputs, b trivium.Batch, scores []float32) error {
	return eachRow(c.name, c.outputs, o, &b, scores, func(i int, w float64, s []float32) error {
		label, err := class(&b.Labels, i, c.n)
		if err != nil {
			return err
		}
		c.sums[3*label] += w
		p := predicted(o, s)
		if p >= 0 {
			c.sums[3*p+1] += w
		}
		if p == label {
			c.sums[3*p+2] += w
		}
		return nil
	})
}

// Merge adds m's sums, which may be those of another of the three.
func (c *perClass) Merge(m trivium.Metric) error {
	x, ok := m.(*perClass)
	if !ok || x.n != c.n {
		return mergeError(c.name, m)
	}
	for i, v := range x.sums {
		c.sums[i] += v
	}
	return nil
}

// Value returns what the name asks for. A class that occurs but is never predicted has precision 0, one that is predicted but never
// occurs has recall 0; a class that does neither is left out of the mean.
func (c *perClass) Value() float64 {
	if c.n == 2 {
		var all float64
		for k := range c.n {
			all += c.sums[3*k]
		}
		if all == 0 {
			return math.NaN()
		}
		return c.of(1)
	}
	var sum, n float64
	for k := range c.n {
		if c.sums[3*k] > 0 || c.sums[3*k+1] > 0 {
			sum += c.of(k)
			n++
		}
	}
	return sum / n
}

// of returns the metric of class k.
func (c *perClass) of(k int) float64 {
	labelled, predicted, right := c.sums[3*k], c.sums[3*k+1], c.sums[3*k+2]
	var whole float64
	switch c.name {
	case "precision":
		whole = predicted
	case "recall":
		whole = labelled
	default: // F1, the harmonic mean of both
		whole = (labelled + predicted) / 2
	}
	if whole == 0 {
		return 0
	}
	return right / whole
}

func (c *perClass) AppendBinary(p []byte) ([]byte, error) {
	return wire.AppendFloat64s(header(p, c.name), c.sums), nil
}

func (c *perClass) UnmarshalBinary(p []byte) error {
	r := open(c.name, p)
	sums := weights(r, len(c.sums), c.n)
	if err := r.Done(); err != nil {
		return err
	}
	copy(c.sums, sums)
	return nil
}
