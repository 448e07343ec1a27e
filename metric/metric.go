// Package metric measures predictions: accuracy, log-loss, AUC, precision, recall, F1, the confusion matrix, RMSE, MAE, R² and top-k.
//
// A metric is a trivium.Metric: an accumulator that weighs rows by their sample weights (one of weight 0 is as if it were not there), is
// merged with others of its kind, and travels between processes. The order in which rows and accumulators come is the caller's; equal
// orders give equal bits, and AUC gives them for every order. [Metrics] are those that a program brings.
//
//	m, err := metric.New("auc", predictor.Outputs())
//	for each batch { predictor.Predict(ctx, params, batch, scores); err = m.Add(outputs, batch, scores) }
//	auc := m.Value()
package metric

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/elementary"
	"github.com/trivium-ml/trivium/wire"
)

// New returns an empty metric of that name for a model with these outputs: accuracy, logloss, auc, precision, recall, f1, confusion,
// top2 to top1000, rmse, mae or r2. AUC is for two classes. Precision, recall and F1 are those of class 1 where there are two, and of more
// the mean over the classes that occur, in labels or predictions (macro average). Of a model with a score for each of two classes, the
// difference counts. A model whose scores are margins has no logloss.
func New(name string, o trivium.Outputs) (trivium.Metric, error) {
	if k, ok := topK(name); ok {
		if o.Task != trivium.MultiClass {
			return nil, fmt.Errorf("metric: %s wants a model of several classes, this one is for %v", name, o.Task)
		}
		return &mean{name: name, outputs: o, higher: true, row: topRow(k)}, nil
	}
	k, ok := kinds[name]
	if !ok {
		return nil, unknown(name, Names())
	}
	if !slices.Contains(k.tasks, o.Task) || name == "auc" && classes(o) != 2 {
		return nil, fmt.Errorf("metric: %s does not fit a model for %v; %s would", name, o.Task, strings.Join(Default(o), " or "))
	}
	if name == "logloss" && o.Margin {
		return nil, fmt.Errorf("metric: logloss is of probabilities, and the scores of this model are margins, which make none; %s would do", strings.Join(Default(o), " or "))
	}
	return k.make(name, o)
}

// Names returns the names that New knows, sorted; top5 stands for all of its kind.
func Names() []string {
	names := []string{"top5"}
	for n := range kinds {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Default returns the metrics that suit a model with these outputs.
func Default(o trivium.Outputs) []string {
	switch o.Task {
	case trivium.Binary:
		return []string{"accuracy", "auc"}
	case trivium.MultiClass:
		return []string{"accuracy"}
	}
	return []string{"rmse", "r2"}
}

// Best returns the best value of the metrics of that name: none is above 1, or below 0 where the lowest is best. The names are those that New
// knows.
func Best(name string) (best float64, known bool) {
	if _, ok := topK(name); ok {
		return 1, true
	}
	k, ok := kinds[name]
	return k.best, ok
}

type kind struct {
	best  float64 // 1: the highest is best; 0: the lowest
	tasks []trivium.Task
	make  func(name string, o trivium.Outputs) (trivium.Metric, error)
}

var (
	classifiers = []trivium.Task{trivium.Binary, trivium.MultiClass}
	kinds       = map[string]kind{
		"accuracy": {1, classifiers, func(n string, o trivium.Outputs) (trivium.Metric, error) {
			return &mean{name: n, outputs: o, higher: true, row: hit}, nil
		}},
		"logloss": {0, classifiers, func(n string, o trivium.Outputs) (trivium.Metric, error) {
			return &mean{name: n, outputs: o, row: logLoss}, nil
		}},
		"rmse": {0, []trivium.Task{trivium.Regression}, func(n string, o trivium.Outputs) (trivium.Metric, error) {
			return &mean{name: n, outputs: o, row: squaredError, root: true}, nil
		}},
		"mae": {0, []trivium.Task{trivium.Regression}, func(n string, o trivium.Outputs) (trivium.Metric, error) {
			return &mean{name: n, outputs: o, row: absoluteError}, nil
		}},
		"r2": {1, []trivium.Task{trivium.Regression}, newR2},
		"auc": {1, classifiers, func(_ string, o trivium.Outputs) (trivium.Metric, error) {
			return &AUC{outputs: o}, nil
		}},
		"precision": {1, classifiers, newPerClass},
		"recall":    {1, classifiers, newPerClass},
		"f1":        {1, classifiers, newPerClass},
		"confusion": {1, classifiers, newConfusion},
	}
)

// topK reads a name such as "top5".
func topK(name string) (k int, ok bool) {
	digits, ok := strings.CutPrefix(name, "top")
	if !ok {
		return 0, false
	}
	k, err := strconv.Atoi(digits)
	return k, err == nil && k >= 2 && k <= 1000 && strconv.Itoa(k) == digits
}

// A mean is the weighted mean of a figure of each row: two sums.
type mean struct {
	name         string
	outputs      trivium.Outputs
	higher, root bool
	row          func(o trivium.Outputs, l *trivium.Labels, i int, scores []float32) (float64, error)
	sum, weight  float64
}

func (m *mean) Name() string         { return m.name }
func (m *mean) HigherIsBetter() bool { return m.higher }
func (m *mean) Reset()               { m.sum, m.weight = 0, 0 }

func (m *mean) Value() float64 {
	v := m.sum / m.weight // 0/0 is NaN: not defined over nothing
	if m.root {
		v = math.Sqrt(v)
	}
	return v
}

func (m *mean) Add(o trivium.Outputs, b trivium.Batch, scores []float32) error {
	return eachRow(m.name, m.outputs, o, &b, scores, func(i int, w float64, s []float32) error {
		v, err := m.row(o, &b.Labels, i, s)
		m.sum += float64(w * v)
		m.weight += w
		return err
	})
}

func (m *mean) Merge(other trivium.Metric) error {
	x, ok := other.(*mean)
	if !ok || x.name != m.name {
		return mergeError(m.name, other)
	}
	m.sum += x.sum
	m.weight += x.weight
	return nil
}

func (m *mean) AppendBinary(p []byte) ([]byte, error) {
	p = header(p, m.name)
	return wire.AppendFloat64(wire.AppendFloat64(p, m.sum), m.weight), nil
}

func (m *mean) UnmarshalBinary(p []byte) error {
	r := open(m.name, p)
	sum, weight := r.Float64("sum"), r.Float64("weight")
	if err := r.Done(); err != nil {
		return err
	}
	m.sum, m.weight = sum, weight
	return nil
}

// eachRow calls f for each row of b that has a weight, with that and its scores, after checking that they fit.
func eachRow(name string, want, o trivium.Outputs, b *trivium.Batch, scores []float32, f func(i int, w float64, scores []float32) error) error {
	if o != want {
		return fmt.Errorf("metric: %s was made for %v of %d scores a row, found %v of %d", name, want.Task, want.Width, o.Task, o.Width)
	}
	if len(scores) != b.Rows*o.Width {
		return fmt.Errorf("metric: %s: %d rows of %d scores want %d, found %d", name, b.Rows, o.Width, b.Rows*o.Width, len(scores))
	}
	for i := range b.Rows {
		w := 1.0
		if b.Weights != nil {
			if w = float64(b.Weights[i]); !(w >= 0) || math.IsInf(w, 1) {
				return fmt.Errorf("metric: %s: row %d: the weight is %v, want a number of 0 or more", name, i, w)
			}
			if w == 0 { // it counts for nothing: of a score that is no number too
				continue
			}
		}
		if err := f(i, w, scores[i*o.Width:(i+1)*o.Width]); err != nil {
			return fmt.Errorf("metric: %s: row %d: %w", name, i, err)
		}
	}
	return nil
}

// class returns the class of row i for a classifier with n classes. Real labels of a binary model are classes 0 and 1.
func class(l *trivium.Labels, i, n int) (int, error) {
	switch {
	case l.Kind == trivium.Class && i < len(l.Class):
		if c := int(l.Class[i]); c >= 0 && c < n {
			return c, nil
		}
		return 0, fmt.Errorf("class %d is outside 0 to %d", l.Class[i], n-1)
	case l.Kind == trivium.Real && l.Width == 1 && n == 2 && i < len(l.Real):
		if y := l.Real[i]; y == 0 || y == 1 {
			return int(y), nil
		}
		return 0, fmt.Errorf("label %v is neither 0 nor 1", l.Real[i])
	}
	return 0, fmt.Errorf("wants class labels, found %v", l.Kind)
}

// classes returns the number of classes of a classifier.
func classes(o trivium.Outputs) int {
	if o.Task == trivium.Binary {
		return 2
	}
	return o.Width
}

// predicted returns the class with the largest score, the first of equals, and for a binary model whether the odds of class 1 are
// above even. Where a score is NaN it is -1, which is no class and so never right.
func predicted(o trivium.Outputs, scores []float32) int {
	if o.Task == trivium.Binary {
		switch {
		case scores[0] > 0:
			return 1
		case scores[0] <= 0:
			return 0
		}
		return -1
	}
	best := 0
	for k, s := range scores {
		if s != s {
			return -1
		}
		if s > scores[best] {
			best = k
		}
	}
	return best
}

func hit(o trivium.Outputs, l *trivium.Labels, i int, scores []float32) (float64, error) {
	c, err := class(l, i, classes(o))
	if err == nil && predicted(o, scores) == c {
		return 1, nil
	}
	return 0, err
}

// topRow returns the row figure of top-k: is the class among the k largest scores? Of equal scores the earlier class comes first.
func topRow(k int) func(trivium.Outputs, *trivium.Labels, int, []float32) (float64, error) {
	return func(o trivium.Outputs, l *trivium.Labels, i int, scores []float32) (float64, error) {
		c, err := class(l, i, o.Width)
		if err != nil {
			return 0, err
		}
		before := 0
		for j, s := range scores {
			if s != s {
				return 0, nil
			}
			if s > scores[c] || s == scores[c] && j < c {
				before++
			}
		}
		if before < k {
			return 1, nil
		}
		return 0, nil
	}
}

// logLoss is -log of the probability that the scores give to the label, in nats.
func logLoss(o trivium.Outputs, l *trivium.Labels, i int, scores []float32) (float64, error) {
	c, err := class(l, i, classes(o))
	if err != nil {
		return 0, err
	}
	if o.Task == trivium.Binary {
		s := float64(scores[0])
		if c == 1 {
			s = -s
		}
		return math.Max(s, 0) + elementary.Log1p(elementary.Exp(-math.Abs(s))), nil // log(1+exp(s)) without overflow
	}
	most := float64(slices.Max(scores))
	var sum float64
	for _, s := range scores {
		sum += elementary.Exp(float64(s) - most)
	}
	return elementary.Log(sum) + most - float64(scores[c]), nil
}

func squaredError(o trivium.Outputs, l *trivium.Labels, i int, scores []float32) (float64, error) {
	return meanOver(o, l, i, scores, func(d float64) float64 { return d * d })
}

func absoluteError(o trivium.Outputs, l *trivium.Labels, i int, scores []float32) (float64, error) {
	return meanOver(o, l, i, scores, math.Abs)
}

func meanOver(o trivium.Outputs, l *trivium.Labels, i int, scores []float32, f func(float64) float64) (float64, error) {
	if err := realLabels(o, l, i); err != nil {
		return 0, err
	}
	var sum float64
	for k, s := range scores {
		sum += float64(f(float64(s) - float64(l.Real[i*l.Width+k])))
	}
	return sum / float64(o.Width), nil
}

// version begins every encoded metric.
const version = 1

func header(p []byte, name string) []byte { return wire.AppendString(append(p, version), name) }

func open(name string, p []byte) *wire.Reader {
	r := wire.NewReader("metric "+name, p)
	if v := r.Uvarint("version", math.MaxUint64); r.Err() == nil && v != version {
		r.Fail("version", fmt.Errorf("want %d, found %d", version, v))
	}
	if found := r.String("name", max(32, len(name))); r.Err() == nil && found != name {
		r.Fail("name", fmt.Errorf("want %q, found %q", name, found))
	}
	return r
}

func mergeError(name string, other trivium.Metric) error {
	if other == nil {
		return errors.New("metric: " + name + " cannot take in nothing")
	}
	return fmt.Errorf("metric: %s cannot take in %s", name, other.Name())
}
