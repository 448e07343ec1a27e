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
type pace struct {
	rule trivium.Optimizer // without the job's schedule
	part part
}

// A pacer has the paces of rows that take from 1 to n steps where one optimizer takes one.
type pacer struct{ paces []pace }

// pacesBetween is how many paces there are from one number of steps to the next: a row has the nearest.
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

// newPacer returns that of a job's rule; nil: it forgets nothing, or there is one worker.
func newPacer(job *trivium.Job, isa kernel.ISA, workers int) (*pacer, error) {
	betas := memory(job.Optimizer.Name)
	if betas == nil || workers < 2 {
		return nil, nil
	}
	p := &pacer{}
	j := *job
	j.Optimizer.Schedule = ""
	for i := range pacesBetween*(workers-1) + 1 {
		by := 1 + float64(i)/pacesBetween
		params := maps.Clone(betas)
		maps.Copy(params, job.Optimizer.Params)
		for name := range betas {
			params[name] = elementary.Pow(params[name], 1/by)
		}
		j.Optimizer.Params = params
		rule, err := optim.New(j.Optimizer, isa)
		if err != nil {
			return nil, &train.JobError{Err: err}
		}
		p.paces = append(p.paces, pace{rule, newPart(&j, rule)})
	}
	return p, nil
}

// of returns the pace of a row that takes so many steps in the place of one.
func (p *pacer) of(by float64) *pace {
	return &p.paces[max(0, min(int(math.Round((by-1)*pacesBetween)), len(p.paces)-1))]
}

// paced makes the kth step of cells in this run, which had base updates before it and take `by` steps an update: this share of what the
// rule makes of g.
func (u *updater) paced(k, base int64, by float64, share float32, l *trivium.Layout, from int, p, g, out []float32, slots [][]float32) {
	x := u.pacer.of(by)
	if u.scheduled {
		share *= u.scheduledShare(base + int64(math.Ceil(float64(k)/by)))
	}
	n := int64(math.Round(float64(base)*by)) + k
	state := slots[1 : 1+u.rule.Slots()]
	last, product := slots[len(slots)-2], slots[len(slots)-1]
	x.part.remember(l, from, p, g, last, product, k == 1)
	x.rule.Apply(n, l, from, p, g, out, state)
	x.part.scale(u.isa, out, state[x.part.squares], product, share, by)
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
