package traintest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/metric"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/wire"
)

// Optimizers returns "ball", a program's own: momentum by hand, a cell at a time. Its state has no names, and it tells no rate.
func Optimizers() optim.Optimizers {
	return optim.Optimizers{"ball": func(spec trivium.OptimizerSpec, _ kernel.ISA) (trivium.Optimizer, error) {
		if spec.Schedule != "" {
			return nil, errors.New("it takes no schedule")
		}
		return ball{float32(spec.Rate)}, nil
	}}
}

type ball struct{ rate float32 }

func (ball) Slots() int        { return 1 }
func (ball) Elementwise() bool { return true }

func (b ball) Apply(_ int64, _ *trivium.Layout, _ int, p, g, u []float32, slots [][]float32) {
	const momentum float32 = 0.9
	v := slots[0]
	for i := range p {
		v[i] = float32(v[i]*momentum) + g[i]
		u[i] = float32(v[i] * -b.rate)
	}
}

// Metrics returns "misses", a program's own: the share of the rows, by weight, of which another class has the highest score.
func Metrics() metric.Metrics {
	return metric.Metrics{"misses": func(o trivium.Outputs) (trivium.Metric, error) {
		if o.Task != trivium.MultiClass {
			return nil, errors.New("it counts classes")
		}
		return new(misses), nil
	}}
}

type misses struct{ wrong, weight float64 }

func (*misses) Name() string         { return "misses" }
func (*misses) HigherIsBetter() bool { return false }
func (m *misses) Reset()             { *m = misses{} }
func (m *misses) Value() float64     { return m.wrong / m.weight }

func (m *misses) Add(o trivium.Outputs, b trivium.Batch, scores []float32) error {
	for i := range b.Rows {
		row, best := scores[i*o.Width:(i+1)*o.Width], 0
		for k, s := range row {
			if s > row[best] {
				best = k
			}
		}
		weight := 1.0
		if b.Weights != nil {
			weight = float64(b.Weights[i])
		}
		if m.weight += weight; best != int(b.Labels.Class[i]) {
			m.wrong += weight
		}
	}
	return nil
}

func (m *misses) Merge(other trivium.Metric) error {
	x := other.(*misses)
	m.wrong, m.weight = m.wrong+x.wrong, m.weight+x.weight
	return nil
}

func (m *misses) AppendBinary(p []byte) ([]byte, error) {
	return wire.AppendFloat64(wire.AppendFloat64(p, m.wrong), m.weight), nil
}

func (m *misses) UnmarshalBinary(p []byte) error {
	r := wire.NewReader("misses", p)
	m.wrong, m.weight = r.Float64("wrong"), r.Float64("weight")
	return r.Done()
}

// own tests the strategy with an optimizer and a metric of the program's own: the bits are those of the optimizer that ships.
func own(t *testing.T, open func(env train.Env) trivium.Strategy) {
	ctx := context.Background()
	job := Job()
	job.Exact = true
	job.Metrics, job.Stop = []string{"accuracy"}, trivium.EarlyStop{Metric: "valid.accuracy", Patience: 2}
	want, err := local.New(Env(t, 1, true), local.Options{}).Train(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	job.Optimizer.Name = "ball"
	job.Metrics, job.Stop.Metric = []string{"misses"}, "valid.misses"
	got, err := open(Env(t, 1, true)).Train(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	for _, split := range []string{"valid", "test"} { // else they are the same
		if a, b := got.Metrics[split+".misses"], 1-want.Metrics[split+".accuracy"]; !(a-b <= 1e-12 && b-a <= 1e-12) {
			t.Errorf("%s.misses is %v, want %v", split, a, b)
		}
		delete(got.Metrics, split+".misses")
		delete(want.Metrics, split+".accuracy")
	}
	Same(t, "an optimizer of the program's own", got, want)
	job.Optimizer.Name, job.Metrics = "bell", []string{"misess"}
	if _, err := open(Env(t, 1, true)).Train(ctx, job); err == nil || !strings.Contains(err.Error(), `no optimizer is called "bell"; did you mean "ball"?`) {
		t.Errorf("error %v, want the nearest name", err)
	}
	job.Optimizer.Name = "ball"
	if _, err := open(Env(t, 1, true)).Train(ctx, job); err == nil || !strings.Contains(err.Error(), `no metric is called "misess"; did you mean "misses"?`) {
		t.Errorf("error %v, want the nearest name", err)
	}
}
