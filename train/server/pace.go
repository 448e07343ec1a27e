package server

import (
	"maps"
	"math"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/elementary"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/train"
)

// A pace is a rule for a server that steps as gradients arrive: several times where one optimizer of all workers steps once.
//
// Adam and RMSProp average squared gradients over a time that is told in steps: 1/(1 - β) of them. Of n gradients an update that is an nth
// of the updates, so the server would forget n times as fast as local. Where gradients are stale, n·(s + 1) in a row may be of the same
// parameters, and what it then divides by is no measure of how the gradient swings: a high rate overshoots. With the nth root of β the time
// is as many updates as under local. The correction of Adam's first steps counts gradients then, and a schedule still updates. Adam's mean of
// gradients keeps its β: n times as long it overshoots more where gradients are stale, and is no closer to local where they are not.
//
// Of a row that a worker with an optimizer of its own touches in every third of its updates, on average, one step of that optimizer is in the
// place of three: see ownRule.
type pace struct {
	part
	rule   trivium.Optimizer        // without the job's schedule
	rate   func(step int64) float64 // nil: it tells none
	weight float64                  // of a gradient, and of what is added to it, so that what is kept is as long as one optimizer's
}

func newPace(job *trivium.Job, rule trivium.Optimizer, weight float64) pace {
	return pace{newPart(job, rule), rule, optim.RateOf(rule), weight}
}

// A pacer has the paces of rows that take from `least` to as many times as many steps as there are workers where one optimizer takes one.
type pacer struct {
	least float64
	paces []pace
}

// pacesBetween is how many paces there are from `least` to twice that, and so on: a row has the nearest.
const pacesBetween = 4

// memory are the parameters that say how long rules remember squares.
func memory(name string) map[string]float64 {
	switch name {
	case "adam", "adamw":
		return map[string]float64{"beta2": 0.999}
	case "rmsprop":
		return map[string]float64{"rho": 0.99}
	}
	return nil
}

// newPacer returns that of a job's rule, of which these parameters say how long it remembers.
func newPacer(job *trivium.Job, isa kernel.ISA, workers int, least float64, betas map[string]float64) (*pacer, error) {
	p := &pacer{least: least}
	j := *job
	j.Optimizer.Schedule, j.Optimizer.ClipNorm = "", 0 // who steps parts of a model has clipped the whole
	for i := range pacesBetween*(workers-1) + 1 {
		by, weight := least*(1+float64(i)/pacesBetween), 1.0
		params := map[string]float64{}
		maps.Copy(params, betas)
		maps.Copy(params, job.Optimizer.Params)
		for name := range betas {
			beta := params[name]
			params[name] = elementary.Pow(beta, 1/by)
			if name == "momentum" { // a velocity sums up what it does not forget, while means weigh that by themselves
				weight = (1 - params[name]) / (1 - beta)
			}
		}
		if job.Optimizer.Name == "adagrad" {
			weight = math.Sqrt(1 / by)
		}
		j.Optimizer.Params = params
		j.Optimizer.L1, j.Optimizer.L2, j.Optimizer.ClipValue = weight*job.Optimizer.L1, weight*job.Optimizer.L2, weight*job.Optimizer.ClipValue
		rule, err := optim.New(j.Optimizer, isa)
		if err != nil {
			return nil, &train.JobError{Err: err}
		}
		p.paces = append(p.paces, newPace(&j, rule, weight))
	}
	return p, nil
}

// of returns the pace of a row that takes so many steps in the place of one.
func (p *pacer) of(by float64) *pace {
	return &p.paces[max(0, min(int(math.Round((by/p.least-1)*pacesBetween)), len(p.paces)-1))]
}

// paced makes the kth step of cells in this run, which had base updates before it and take `by` steps an update: this share of what the
// rule makes of g.
func (u *updater) paced(k, base int64, by float64, share float32, l *trivium.Layout, from int, p, g, out []float32, slots [][]float32) {
	x := u.pacer.of(by)
	if u.scheduled {
		share *= u.scheduledShare(base + int64(math.Ceil(float64(k)/by)))
	}
	n := int64(math.Round(float64(base)*by)) + k
	state := u.state(slots)
	last, product := u.kept(slots)
	x.remember(u.isa, l, from, p, g, last, product, k == 1)
	x.rule.Apply(n, l, from, p, g, out, state)
	x.scale(u.isa, out, state, product, share, by)
}

// scheduledShare is the rate of that update, in parts of the rate without a schedule.
func (k *keeper) scheduledShare(update int64) float32 {
	scheduled, ok := k.rule.(*optim.Rule)
	plain, also := k.pacer.paces[0].rule.(*optim.Rule)
	if !ok || !also {
		return 1
	}
	return float32(scheduled.Rate(update) / plain.Rate(update))
}

// updatesOf is how many updates one optimizer would have made of a row that n workers' gradients stepped so often, of most that any was.
func updatesOf(steps, most int64, n int) int64 {
	return int64(math.Round(float64(steps) / together(float64(steps)/float64(max(1, most)), n)))
}
