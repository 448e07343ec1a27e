package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/metric"
)

// An Evaluator measures a model on data sets: the mean loss, and metrics by name.
type Evaluator struct {
	predictor trivium.Predictor
	outputs   trivium.Outputs
	known     metric.Metrics
	names     []string
	batch     int
	shards    int
	scores    []float32
}

// An Evaluation is what an Evaluator found.
type Evaluation struct {
	Loss    float64 // mean over the rows
	Weight  float64 // of the rows
	Rows    int64
	Metrics []trivium.Metric
	lossSum float64
}

var errNoPredictor = errors.New("train: the model makes no predictions (it is no trivium.Predictor), so it cannot be evaluated")

// NewEvaluator returns an Evaluator of these metrics (none: those that suit the model's task), which known has or package metric, or every
// mistake in their names. A model whose Outputs nothing can be made of is an error too.
// In exact mode, shards is the number of virtual shards, and the result does not depend on who scores which; else it is 0.
func NewEvaluator(m trivium.Model, known metric.Metrics, metrics []string, shards int) (*Evaluator, error) {
	p, ok := m.(trivium.Predictor)
	if !ok {
		return nil, errNoPredictor
	}
	e := &Evaluator{predictor: p, outputs: p.Outputs(), known: known, names: metrics, batch: 256, shards: max(shards, 1)}
	if o := e.outputs; o.Width < 1 || o.Task == trivium.Binary && o.Width != 1 {
		return e, fmt.Errorf("train: the model says that it makes %d scores a row for %v: want 1 for binary, and 1 or more for other tasks", o.Width, o.Task)
	}
	if len(metrics) == 0 {
		e.names = metric.Default(e.outputs)
	}
	_, err := e.empty()
	return e, err
}

// CheckData says why m cannot be trained on rows of schema s, where the model can tell: the first update would.
func CheckData(m trivium.Model, s trivium.Schema) error {
	if fitting, ok := m.(interface{ Fits(trivium.Schema) error }); ok {
		return fitting.Fits(s)
	}
	return nil
}

// CheckShards says that each worker cannot have rows of its own, where they are fewer than the workers.
func CheckShards(rows int64, workers int) error {
	if rows > 0 && rows < int64(workers) {
		return fmt.Errorf("train: %d training rows are too few for %d workers, of whom each trains on its own: give --workers %d", rows, workers, rows)
	}
	return nil
}

// CheckMetrics says what of the metrics that job asks for does not fit m: Open would, once all else is there.
func CheckMetrics(m trivium.Model, known metric.Metrics, job *trivium.Job) error {
	_, err := evaluatorOf(m, known, job)
	return err
}

// evaluatorOf returns what measures m as job asks. There is none, and no error, where m makes no predictions and job asks for none.
func evaluatorOf(m trivium.Model, known metric.Metrics, job *trivium.Job) (*Evaluator, error) {
	shards := 0
	if job.Exact {
		shards = job.VirtualShards()
	}
	_, stop, _ := strings.Cut(job.Stop.Metric, ".")
	e, err := NewEvaluator(m, known, job.Metrics, shards)
	switch {
	case e == nil && len(job.Metrics) == 0 && (stop == "" || job.Stop.Metric == "train."+lossName):
		return nil, nil
	case err == nil && stop != "" && stop != lossName && !slices.Contains(e.names, stop):
		return NewEvaluator(m, known, append(slices.Clone(e.names), stop), shards)
	}
	return e, err
}

func (e *Evaluator) empty() (*Evaluation, error) {
	s := new(Evaluation)
	var errs []error
	for _, name := range e.names {
		m, err := e.known.New(name, e.outputs)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.Metrics = append(s.Metrics, m)
	}
	return s, errors.Join(errs...)
}

// suits says which of e's metrics cannot be measured against labels l, which they say of a row of zeros: else the first evaluation would, after an
// epoch. Those of a program's own are not asked.
func (e *Evaluator) suits(l trivium.LabelSpec) error {
	if l.Kind == trivium.NoLabel || l.Kind == trivium.Real && l.Width < 1 { // the schema, of a program's own data set, does not say
		return nil
	}
	b := trivium.Batch{Rows: 1, Labels: trivium.Labels{Kind: l.Kind, Width: l.Width}}
	switch l.Kind {
	case trivium.Class:
		b.Labels.Class = []int32{0}
	case trivium.Real:
		b.Labels.Real = make([]float32, l.Width)
	case trivium.MultiHot:
		b.Labels.Ptr = []int64{0, 0}
	}
	s, err := e.empty()
	errs := []error{err}
	for _, m := range s.Metrics {
		if _, own := e.known[m.Name()]; !own {
			errs = append(errs, m.Add(e.outputs, b, make([]float32, e.outputs.Width)))
		}
	}
	return errors.Join(errs...)
}

// Evaluate measures p on ds.
func (e *Evaluator) Evaluate(ctx context.Context, p trivium.Params, ds data.Dataset) (*Evaluation, error) {
	rows := ds.Rows()
	var pending []*Evaluation // the tree of exact mode: see Tree
	for v := range e.shards {
		from, to := int64(v)*rows/int64(e.shards), int64(v+1)*rows/int64(e.shards)
		now, err := e.shard(ctx, p, ds, from, to)
		if err != nil {
			return nil, err
		}
		for size := v + 1; len(pending) > 0 && (size%2 == 0 || v == e.shards-1); size /= 2 {
			last := pending[len(pending)-1]
			pending = pending[:len(pending)-1]
			if err := last.merge(now); err != nil {
				return nil, err
			}
			now = last
		}
		pending = append(pending, now)
	}
	s := pending[0]
	s.Loss = s.lossSum / s.Weight
	return s, nil
}

// shard scores the rows [from, to), a batch at a time.
func (e *Evaluator) shard(ctx context.Context, p trivium.Params, ds data.Dataset, from, to int64) (*Evaluation, error) {
	s, err := e.empty()
	if err != nil || from == to {
		return s, err
	}
	part, err := data.Slice(ds, from, to)
	if err != nil {
		return nil, err
	}
	for b, err := range data.Batches(ctx, part, data.BatchOptions{Batch: e.batch}) {
		if err != nil {
			return nil, err
		}
		n := b.Rows * e.outputs.Width
		if len(e.scores) < n {
			e.scores = make([]float32, n)
		}
		scores := e.scores[:n]
		if err := e.predictor.Predict(ctx, p, *b, scores); err != nil {
			return nil, err
		}
		lossSum, weightSum, err := e.predictor.Loss(*b, scores)
		if err != nil {
			return nil, err
		}
		s.lossSum += lossSum
		s.Weight += weightSum
		s.Rows += int64(b.Rows)
		for _, m := range s.Metrics {
			if err := m.Add(e.outputs, *b, scores); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func (s *Evaluation) merge(o *Evaluation) error {
	s.lossSum += o.lossSum
	s.Weight += o.Weight
	s.Rows += o.Rows
	for i, m := range s.Metrics {
		if err := m.Merge(o.Metrics[i]); err != nil {
			return err
		}
	}
	return nil
}

// Values writes the loss and the metrics to m, as "split.loss" and so on.
func (s *Evaluation) Values(split string, m map[string]float64) {
	m[split+".loss"] = s.Loss
	for _, x := range s.Metrics {
		m[split+"."+x.Name()] = x.Value()
	}
}

// notFinite returns the first tensor of p with a cell that is not finite, or -1.
func notFinite(l *trivium.Layout, flat []float32, rows [][]int32) (tensor int) {
	for i := range l.Tensors() {
		from, to := l.Range(i)
		if rows == nil || rows[i] == nil {
			if finite.FirstNot(flat[from:to]) >= 0 {
				return i
			}
			continue
		}
		cols := l.Cols(i)
		for _, r := range rows[i] {
			if finite.FirstNot(flat[from+int(r)*cols:from+(int(r)+1)*cols]) >= 0 {
				return i
			}
		}
	}
	return -1
}

// largest returns the tensor of g with the cell of the largest magnitude.
func largest(l *trivium.Layout, g trivium.Gradient) (tensor int) {
	most := float32(-1)
	look := func(i int, v []float32) {
		for _, x := range v {
			if x = max(x, -x); x > most {
				most, tensor = x, i
			}
		}
	}
	for i := range l.Tensors() {
		if g.Rows[i] == nil {
			look(i, g.Tensor(i))
			continue
		}
		cols := l.Cols(i)
		for _, r := range g.Rows[i] { // the other cells hold anything
			look(i, g.Tensor(i)[int(r)*cols:(int(r)+1)*cols])
		}
	}
	return tensor
}

// tensorName names a tensor for an error.
func tensorName(l *trivium.Layout, i int) string {
	if i < 0 {
		return ""
	}
	return l.Spec(i).Name
}

// lossName is the metric that every evaluation has.
const lossName = "loss"

func unknownSplit(s string) error {
	return fmt.Errorf("train: stop.metric: want split.metric, such as valid.loss or test.accuracy; found %q", s)
}
