package compare

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/trivium-ml/trivium/internal/finite"
)

// tolerance of the equality proof, times 1 + loss.
const tolerance = 0.001

// judge evaluates what was kept: the way to the target, and, for a row that must, the proof that it computed what local does.
func (r *runner) judge(ctx context.Context, e *evaluator, g *group, system System, spec Spec, ref *reference, repeat int, result *Result, keep []Event) error {
	exact := system.About().Exact()
	proof := proofs(spec.Snapshots)
	if !exact && repeat > 1 { // the curve is drawn of the first repeat; of the others it is enough that they end well
		proof = proof[max(0, len(proof)-1):]
	}
	result.Best = math.NaN()
	defer func() { result.Best = orZero(result.Best) }() // also of a row that failed before its first place: JSON has no NaN
	// The samples of a place are those of as many updates of this row.
	job := g.task.Job
	if job.Batch = spec.Effective(); system.About().Clocks > 0 {
		job.Batch = perClock(e.rows(), int64(system.About().Clocks))
	}
	for _, k := range keep {
		inProof := slices.Contains(proof, k.Update)
		if result.Reached && !inProof {
			continue
		}
		p, err := e.read(k.Path)
		if err != nil {
			result.Error = fmt.Sprintf("its parameters after update %d: %v", k.Update, err)
			return nil
		}
		pt := Point{Update: k.Update, Seconds: k.Seconds, Samples: samplesOf(&job, e.rows(), k.Update), Loss: math.NaN()}
		if pt.Value, err = e.value(ctx, p, g.task.Target); err != nil {
			return err
		}
		if inProof {
			if g.task.Target.Split == "train" && g.task.Target.Metric == "loss" {
				pt.Loss = pt.Value
			} else if pt.Loss, err = e.loss(ctx, p); err != nil {
				return err
			}
			if !finite.Is(pt.Loss) {
				result.Error = fmt.Sprintf("diverged at update %d", k.Update)
				return nil
			}
		}
		result.Curve = append(result.Curve, pt)
		if g.task.Target.better(pt.Value, result.Best) {
			result.Best = pt.Value
		}
		if !result.Reached && g.task.Target.Met(pt.Value) {
			result.Reached, result.SecondsToTarget, result.SamplesToTarget = true, pt.Seconds, pt.Samples
		}
		if exact && inProof {
			prove(result, pt, ref.Losses[k.Update])
		}
	}
	if uneven(system.Name(), system.About().Mode) {
		result.SamplesToTarget = 0
	}
	if exact {
		complete(result, proof)
	}
	return nil
}

// complete takes the proof from a row that computes what local does at some of the updates of the proof, and saved no parameters of another that it
// came to.
func complete(result *Result, proof []int64) {
	switch result.Proof {
	case "":
		result.Proof = "no parameters were saved: nothing is proven"
	case proven:
		for _, u := range proof {
			if u <= result.Updates && !slices.ContainsFunc(result.Curve, func(p Point) bool { return p.Update == u }) {
				result.Proof = fmt.Sprintf("no parameters of update %d were saved: it is not proven", u)
				return
			}
		}
	}
}

// prove compares a loss with local's, NaN where local has diverged.
func prove(result *Result, p Point, want float64) {
	if !finite.Is(want) {
		result.Proof = fmt.Sprintf("not the same computation: %.4g at update %d, where local has diverged", p.Loss, p.Update)
		return
	}
	deviation := math.Abs(p.Loss-want) / (1 + math.Abs(want)) // a loss of a user's model may be below 0, and below -1
	result.Deviation = max(result.Deviation, deviation)
	switch {
	case deviation > tolerance && (result.Proof == "" || result.Proof == proven):
		result.Proof = fmt.Sprintf("not the same computation: %.4g against %.4g at update %d", p.Loss, want, p.Update)
	case result.Proof == "":
		result.Proof = proven
	}
}

// proven is the Proof of a row that computes what local does.
const proven = "equal"
