package train_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/metric"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/traintest"
)

// says is a model that says other things of its scores than it makes.
type says struct {
	trivium.Model
	trivium.Predictor
	outputs trivium.Outputs
}

func (m says) Outputs() trivium.Outputs { return m.outputs }

// TestEvaluatorRefusesOutputs: a model of a program's own that forgot the width of its scores, or has logits where one log-odds is read, is
// refused before anything is made of them.
func TestEvaluatorRefusesOutputs(t *testing.T) {
	splits, err := traintest.Sources()["toy"](t.Context(), trivium.Data{})
	if err != nil {
		t.Fatal(err)
	}
	env := traintest.Env(t, 1, false)
	m, err := env.Models.Build("toy", splits.Train.Schema(), env.CPU)
	if err != nil {
		t.Fatal(err)
	}
	for o, fits := range map[trivium.Outputs]bool{
		{Task: trivium.Regression}:            false,
		{Task: trivium.MultiClass, Width: -3}: false,
		{Task: trivium.Binary, Width: 2}:      false,
		{Task: trivium.Binary, Width: 1}:      true,
		{Task: trivium.MultiClass, Width: 3}:  true,
	} {
		_, err := train.NewEvaluator(says{m, m.(trivium.Predictor), o}, nil, nil, 0)
		if fits != (err == nil) || err != nil && !strings.Contains(err.Error(), "scores a row") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestMetricsAgainstOtherLabels: a model of a program's own that forgot to say that it tells classes apart is refused before an epoch is
// trained, and not by the first evaluation; a metric of the program's own may make something of it.
func TestMetricsAgainstOtherLabels(t *testing.T) {
	env := traintest.Env(t, 1, false)
	toy := env.Models["toy"]
	env.Models["says"] = func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
		m, err := toy(args, s, cpu)
		if err != nil {
			return nil, err
		}
		return says{m, m.(trivium.Predictor), trivium.Outputs{Width: s.Labels.Width}}, nil
	}
	env.Metrics["class"] = func(o trivium.Outputs) (trivium.Metric, error) {
		return metric.Mean("class", o, true, func(l *trivium.Labels, i int, _ []float32) (float64, error) {
			return float64(l.Class[i]), nil
		}), nil
	}
	job := traintest.Job()
	job.Model, job.Epochs = "says", 1
	r, err := local.New(env, local.Options{}).Train(t.Context(), job)
	const want = "train: the valid rows cannot be measured of a model for regression: metric: rmse: row 0: wants 3 real labels a row"
	if _, ok := errors.AsType[*train.JobError](err); !ok || !strings.Contains(err.Error(), want) || r.Steps != 0 {
		t.Errorf("%v after %d updates, want %s", err, r.Steps, want)
	}
	job.Metrics = []string{"class"}
	if r, err := local.New(env, local.Options{}).Train(t.Context(), job); err != nil || r.Metrics["valid.class"] != 1 {
		t.Errorf("%v: valid.class is %v", err, r.Metrics["valid.class"])
	}
}

// terse is a program's own data set whose schema does not say how many labels a row has.
type terse struct{ data.Dataset }

func (d terse) Schema() trivium.Schema {
	s := d.Dataset.Schema()
	s.Labels.Width = 0
	return s
}

// TestMetricsOfUnsaidWidth: such rows are trained on and measured.
func TestMetricsOfUnsaidWidth(t *testing.T) {
	env := traintest.Env(t, 1, false)
	env.Models["mine"] = func(_ string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
		s.Labels.Width = 1
		return nn.Linear("", s, cpu)
	}
	schema := trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{1}}}, Labels: trivium.LabelSpec{Kind: trivium.Real, Width: 1}}
	rows := data.Memory(schema, trivium.Batch{
		Rows: 4, Inputs: []trivium.Input{{Name: "x", Shape: []int{1}, Values: []float32{1, 2, 3, 4}}},
		Labels: trivium.Labels{Kind: trivium.Real, Width: 1, Real: []float32{2, 4, 6, 8}},
	})
	env.Sources["mine"] = func(context.Context, trivium.Data) (*data.Splits, error) {
		return &data.Splits{Train: terse{rows}, Valid: terse{rows}}, nil
	}
	job := traintest.Job()
	job.Model, job.Data, job.Epochs, job.Metrics = "mine", trivium.Data{Source: "mine"}, 1, nil
	r, err := local.New(env, local.Options{}).Train(t.Context(), job)
	if _, there := r.Metrics["valid.rmse"]; err != nil || !there {
		t.Errorf("%v: measured are %v", err, r.Metrics)
	}
}
