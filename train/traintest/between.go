package traintest

import "github.com/trivium-ml/trivium/observe"

// Between returns, of each two steps that follow one another, the part of the time from the begin of the first to that of the second which
// the first one's phases have not.
func Between(steps []observe.Step) []float64 {
	var parts []float64
	for k := range len(steps) - 1 {
		if a, b := steps[k], steps[k+1]; b.Step == a.Step+1 {
			took := b.Start - a.Start
			parts = append(parts, (took-a.Wall()).Seconds()/took.Seconds())
		}
	}
	return parts
}

// Steps is an observe.Sink that keeps the steps of each worker, by its rank.
type Steps map[int][]observe.Step

// Step keeps one.
func (s Steps) Step(of observe.Source, step observe.Step) error {
	if of.Role == observe.Worker {
		s[of.Rank] = append(s[of.Rank], step)
	}
	return nil
}

// Frame keeps nothing.
func (Steps) Frame(observe.Frame) error { return nil }

// Event keeps nothing.
func (Steps) Event(observe.Event) error { return nil }
