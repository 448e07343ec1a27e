package metric

import (
	"fmt"
	"math"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/wire"
)

// A Confusion counts, by weight, how often each class was predicted for each class: all that precision, recall and F1 need. Under the
// name "confusion" its value is the accuracy, and String draws the matrix.
type Confusion struct {
	name    string
	outputs trivium.Outputs
	n       int
	counts  []float64 // n rows of n+1 columns: label, then prediction; the last column is for rows without a prediction (NaN)
}

func newConfusion(name string, o trivium.Outputs) trivium.Metric {
	n := classes(o)
	return &Confusion{name: name, outputs: o, n: n, counts: make([]float64, n*(n+1))}
}

// Name returns precision, recall, f1 or confusion.
func (c *Confusion) Name() string { return c.name }

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
	return eachRow(c.name, c.outputs, o, &b, scores, func(i int, w float64, s []float32) error {
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

// Merge adds m's counts, which may be those of another metric made of them.
func (c *Confusion) Merge(m trivium.Metric) error {
	x, ok := m.(*Confusion)
	if !ok || x.n != c.n {
		return mergeError(c.name, m)
	}
	for i, v := range x.counts {
		c.counts[i] += v
	}
	return nil
}

// sums returns the weight of class k's rows, of the predictions of k, and of those that are right.
func (c *Confusion) sums(k int) (labelled, predicted, right float64) {
	for j := range c.n + 1 {
		labelled += c.counts[k*(c.n+1)+j]
	}
	for j := range c.n {
		predicted += c.Count(j, k)
	}
	return labelled, predicted, c.Count(k, k)
}

// Value returns what the name asks for. A class that occurs but is never predicted has precision 0, one that is predicted but never
// occurs has recall 0; a class that does neither is left out of the mean.
func (c *Confusion) Value() float64 {
	if c.name == "confusion" {
		var right, all float64
		for k := range c.n {
			labelled, _, r := c.sums(k)
			right += r
			all += labelled
		}
		return right / all
	}
	if c.outputs.Task == trivium.Binary {
		return c.of(1)
	}
	var sum, n float64
	for k := range c.n {
		if labelled, predicted, _ := c.sums(k); labelled > 0 || predicted > 0 {
			sum += c.of(k)
			n++
		}
	}
	return sum / n
}

// of returns the metric of class k; NaN where nothing was added.
func (c *Confusion) of(k int) float64 {
	labelled, predicted, right := c.sums(k)
	var whole float64
	switch c.name {
	case "precision":
		whole = predicted
	case "recall":
		whole = labelled
	default: // F1, the harmonic mean of both
		whole = (labelled + predicted) / 2
	}
	if whole == 0 && c.total() > 0 {
		return 0
	}
	return right / whole
}

func (c *Confusion) total() (sum float64) {
	for _, v := range c.counts {
		sum += v
	}
	return sum
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
	return wire.AppendFloat64s(header(p, c.name), c.counts), nil
}

// UnmarshalBinary replaces c's counts by those in p, of as many classes.
func (c *Confusion) UnmarshalBinary(p []byte) error {
	r := open(c.name, p)
	counts := r.Float64s("counts", len(c.counts))
	if r.Err() == nil && len(counts) != len(c.counts) {
		r.Fail("counts", fmt.Errorf("want %d, of %d classes; found %d", len(c.counts), c.n, len(counts)))
	}
	for _, v := range counts {
		if !(v >= 0) || math.IsInf(v, 1) {
			r.Fail("counts", fmt.Errorf("%v is no weight", v))
		}
	}
	if err := r.Done(); err != nil {
		return err
	}
	copy(c.counts, counts)
	return nil
}
