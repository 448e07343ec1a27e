// Command ownoptimizer is trivium with an optimizer and a metric of its own:
// ownoptimizer train logistic --data adult --valid 0.1 --optimizer lion --metrics brier,auc --stop-metric valid.brier --patience 3 --workers 2 --processes
package main

import (
	"cmp"
	"errors"
	"math"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/app"
	"github.com/trivium-ml/trivium/metric"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

func main() {
	app.Main(app.Options{Optimizers: optim.Optimizers{"lion": newLion}, Metrics: metric.Metrics{"brier": brier}})
}

// A lion steps by the sign of its momentum (Chen et al. 2023, algorithm 2).
type lion struct {
	rate                func(step int64) float64
	beta1, beta2, decay float32
}

func newLion(spec trivium.OptimizerSpec, isa kernel.ISA) (trivium.Optimizer, error) {
	if spec.L1 != 0 || spec.L2 != 0 || spec.ClipValue != 0 || spec.ClipNorm != 0 || len(spec.Params) > 0 {
		return nil, errors.New("it takes a rate, a schedule and a decay")
	}
	sgd, err := optim.New(trivium.OptimizerSpec{Rate: cmp.Or(spec.Rate, 0.003), Schedule: spec.Schedule}, isa)
	return &lion{optim.RateOf(sgd), 0.9, 0.99, float32(spec.Decay)}, err
}

func (o *lion) Slots() int              { return 1 }
func (o *lion) SlotNames() []string     { return []string{"mean"} }
func (o *lion) Elementwise() bool       { return true }
func (o *lion) Rate(step int64) float64 { return o.rate(step) }
func (o *lion) Apply(step int64, l *trivium.Layout, from int, p, g, u []float32, slots [][]float32) {
	for i := range l.Tensors() {
		spec := l.Spec(i)
		a, b := l.Range(i)
		rate, decay := float32(o.rate(step))*spec.Rate, o.decay*spec.Decay
		for k := max(a, from) - from; k < min(b, from+len(p))-from && spec.Tie == ""; k++ {
			g, m := g[k], slots[0][k] // u may be g
			slots[0][k] = float32(o.beta2*m) + float32((1-o.beta2)*g)
			u[k] = -rate * (sign(float32(o.beta1*m)+float32((1-o.beta1)*g)) + float32(decay*p[k]))
		}
	}
}

func sign(x float32) float32 {
	if x == 0 {
		return 0
	}
	return float32(math.Copysign(1, float64(x)))
}

// brier is the mean squared error of the probability of class 1 (Brier 1950).
func brier(o trivium.Outputs) (trivium.Metric, error) {
	if o.Task != trivium.Binary {
		return nil, errors.New("it wants a model of two classes")
	}
	return metric.Mean("brier", o, false, func(l *trivium.Labels, i int, scores []float32) (float64, error) {
		if l.Kind != trivium.Class {
			return 0, errors.New("it wants classes")
		}
		d := 1/(1+math.Exp(-float64(scores[0]))) - float64(l.Class[i])
		return d * d, nil
	}), nil
}
