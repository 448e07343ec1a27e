package train

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/metric"
)

// A Stopper decides when a job has learned enough: Job.Stop at work.
type Stopper struct {
	stop          trivium.EarlyStop
	split, metric string
	higher        bool // is better
	compare       string
	target        float64
}

// NewStopper returns the Stopper of a job, or every mistake in what it says.
func NewStopper(s trivium.EarlyStop) (*Stopper, error) {
	p := &Stopper{stop: s}
	if s.Metric == "" {
		return p, nil
	}
	var errs []error
	var ok bool
	p.split, p.metric, ok = strings.Cut(s.Metric, ".")
	if !ok || p.metric == "" || p.split != "train" && p.split != "valid" && p.split != "test" {
		errs = append(errs, unknownSplit(s.Metric))
	}
	if s.Patience == 0 && s.Target == "" {
		errs = append(errs, fmt.Errorf("train: stop: %s is watched with neither patience nor target", s.Metric))
	}
	if s.Target != "" {
		for _, c := range []string{">=", "<=", ">", "<"} {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(s.Target), c); ok {
				v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
				if err == nil && finite.Is(v) {
					p.compare, p.target = c, v
				}
				break
			}
		}
		if p.compare != "" {
			if err := CheckTarget(p.metric, p.compare, p.target); err != nil {
				errs = append(errs, fmt.Errorf("train: stop.target: %w", err))
			}
		} else {
			errs = append(errs, fmt.Errorf("train: stop.target: want a comparison such as %q, found %q", ">= 0.9", s.Target))
		}
	}
	return p, errors.Join(errs...)
}

// CheckWatched refuses an early stop by a metric that neither known nor package metric has, which NewStopper takes for one of the program's own.
func CheckWatched(s trivium.EarlyStop, known metric.Metrics) error {
	if _, name, _ := strings.Cut(s.Metric, "."); name != "" && name != lossName {
		return known.CheckNames(name)
	}
	return nil
}

// CheckTarget refuses a target (>=, <=, > or <, and a value) that is met where a metric is bad, and one that no value of it meets. The metrics
// of a program of its own are its own affair.
func CheckTarget(name, compare string, value float64) error {
	best, known := metric.Best(name)
	higher := best > 0
	switch asks := compare[0] == '>'; {
	case !known && name != lossName:
		return nil
	case asks && !higher:
		return fmt.Errorf("%s is better the lower it is: want a target such as <= %v, found %s %v", name, value, compare, value)
	case !asks && higher:
		return fmt.Errorf("%s is better the higher it is: want a target such as >= %v, found %s %v", name, value, compare, value)
	case name == lossName: // the model says what its best is
		return nil
	case higher && value > best, !higher && value < best, value == best && len(compare) == 1:
		return fmt.Errorf("%s is at best %v, and never %s %v", name, best, compare, value)
	}
	return nil
}

// Next takes the value of an evaluation at update step into at, and returns trivium.Stopped, trivium.TargetMet or "" to go on.
// Improved says whether it is the best so far.
func (p *Stopper) Next(value float64, step int64, at *StopState) (reason trivium.Reason, improved bool) {
	gain := value
	if at.Best != nil {
		gain -= *at.Best
	}
	if !p.higher {
		gain = -gain
	}
	if finite.Is(value) && (at.Best == nil || gain > p.stop.MinDelta) {
		at.Best, at.BestStep, at.Bad, improved = &value, step, 0, true
	} else {
		at.Bad++
	}
	switch {
	case p.compare == ">=" && value >= p.target, p.compare == ">" && value > p.target,
		p.compare == "<=" && value <= p.target, p.compare == "<" && value < p.target:
		return trivium.TargetMet, improved
	case p.stop.Patience > 0 && at.Bad >= p.stop.Patience:
		return trivium.Stopped, improved
	}
	return "", improved
}

// A StopState is what early stopping remembers.
type StopState struct {
	Best     *float64 // nil: no evaluation had a value
	BestStep int64
	Bad      int // evaluations since without progress
}
