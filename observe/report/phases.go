package report

import "github.com/trivium-ml/trivium/observe/svg"

// Phases are the nine phases of a step, in their order, as parts of a svg.Stack that look the same on every page: work is plain, what
// travels is hatched, waiting is vermilion.
func Phases() []svg.Part {
	return []svg.Part{
		{Name: "load", Hue: 6, Flat: true},
		{Name: "compute", Hue: 1, Flat: true},
		{Name: "serialise", Hue: 4},
		{Name: "push", Hue: 3},
		{Name: "pull", Hue: 5},
		{Name: "wait-barrier", Hue: 2},
		{Name: "wait-stale", Hue: 7},
		{Name: "apply", Hue: 8, Flat: true},
		{Name: "other", Hue: 8},
	}
}
