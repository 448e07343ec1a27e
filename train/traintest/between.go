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
