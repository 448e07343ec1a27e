package rundir

import (
	"time"

	"github.com/trivium-ml/trivium/observe"
)

// Summarise returns a Result with the totals of the last frames of a run's sources: steps, samples, rates, phases, waits, evaluations.
// How and when the run ended is for the caller to add. Seconds and the rate are those of the slowest source: ranks work side by side.
func Summarise(last ...observe.Frame) Result {
	r := Result{Metrics: map[string]float64{}, Phases: map[string]time.Duration{}}
	for i := range last {
		f := &last[i]
		r.Steps = max(r.Steps, int64(f.Counter(observe.Steps)))
		r.Samples += int64(f.Counter(observe.Samples))
		r.Seconds = max(r.Seconds, float64(f.Counter(observe.WallTime))/1e9)
		for _, p := range observe.Phases() {
			r.Phases[p.String()] += time.Duration(f.Counter(observe.PhaseTime(p)))
		}
		r.AddWaited(f.Waited)
		for _, v := range f.Values {
			r.Metrics[v.Name] = v.Value
		}
	}
	if r.Seconds > 0 {
		r.SamplesPerSec = float64(r.Samples) / r.Seconds
	}
	return r
}
