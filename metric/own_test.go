package metric_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/metric"
)

var oneScore = trivium.Outputs{Task: trivium.Regression, Width: 1}

// most is the name of a metric that is longer than any that ships.
const most = "mean absolute error in most of the rows"

func absolute(name string) metric.Builder {
	return func(o trivium.Outputs) (trivium.Metric, error) {
		return metric.Mean(name, o, false, func(l *trivium.Labels, i int, scores []float32) (float64, error) {
			if scores[0] < 0 {
				return 0, errors.New("a score below 0")
			}
			return math.Abs(float64(scores[0] - l.Real[i])), nil
		}), nil
	}
}

// TestMetrics: a metric of a program's own weighs rows, merges and travels as one that ships.
func TestMetrics(t *testing.T) {
	mine := metric.Metrics{most: absolute(most)}
	if names := mine.Names(); !slices.IsSorted(names) || !slices.Contains(names, most) || !slices.Contains(names, "mae") {
		t.Errorf("names %q", names)
	}
	batch := func(labels ...float32) trivium.Batch {
		return trivium.Batch{Rows: len(labels), Labels: trivium.Labels{Kind: trivium.Real, Width: 1, Real: labels}, Weights: []float32{1, 3}[:len(labels)]}
	}
	values := map[string]float64{}
	for _, name := range []string{most, "mae"} {
		a, err := mine.New(name, oneScore)
		if err != nil {
			t.Fatal(err)
		}
		b, err := mine.New(name, oneScore)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(a.Add(oneScore, batch(1, 2), []float32{3, 5}), b.Add(oneScore, batch(4), []float32{4.5})); err != nil {
			t.Fatal(err)
		}
		p, err := b.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		b.Reset()
		if err := errors.Join(b.UnmarshalBinary(p), a.Merge(b)); err != nil {
			t.Fatal(err)
		}
		if a.Name() != name || a.HigherIsBetter() {
			t.Errorf("%s: %q, higher is better: %v", name, a.Name(), a.HigherIsBetter())
		}
		values[name] = a.Value()
	}
	if want := (2.0 + 3*3 + 0.5) / 5; values[most] != want || values["mae"] != want {
		t.Errorf("%v, want %v", values, want)
	}
	m, err := mine.New(most, oneScore)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Add(oneScore, batch(1), []float32{-1}); err == nil || !strings.Contains(err.Error(), "row 0: a score below 0") {
		t.Errorf("error %v", err)
	}
}

func TestMetricsRefuse(t *testing.T) {
	for _, c := range []struct {
		mine metric.Metrics
		want string
	}{
		{metric.Metrics{"auc": absolute("auc")}, `the name of one that ships, "auc"`},
		{metric.Metrics{"top7": absolute("top7")}, `the name of one that ships, "top7"`},
		{metric.Metrics{"loss": absolute("loss")}, "measured beside all metrics"},
		{metric.Metrics{"": absolute("")}, "has no name"},
		{metric.Metrics{"x": nil}, "has no builder"},
		{metric.Metrics{"x": absolute("y")}, `x calls itself "y"`},
		{metric.Metrics{"x": func(trivium.Outputs) (trivium.Metric, error) { return nil, nil }}, "returned none"},
		{metric.Metrics{"x": func(trivium.Outputs) (trivium.Metric, error) { return nil, errors.New("not today") }}, "metric: x: not today"},
		{metric.Metrics{"xylophone": absolute("xylophone")}, `no metric is called "x"; there are accuracy`},
		{metric.Metrics{"xx": absolute("xx")}, `no metric is called "x"; did you mean "xx"?`},
	} {
		if _, err := c.mine.New("x", oneScore); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}
