package compare

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium/internal/quantity"
)

// fit is the time a sample of a row on logistic, as a + b/batch, where a sample is one of all workers together and the batch that of all in
// an update: what each sample costs, and what each step does. Empty: it was not run at two batches by as many workers.
func (r *Report) fit(system string) string {
	for _, t := range r.Tables {
		if text := r.fitAt(system, t.Workers); text != "" {
			return text
		}
	}
	return ""
}

func (r *Report) fitAt(system string, workers int) string {
	type point struct{ batch, micros float64 }
	var list []point
	crowded := ","
	for _, t := range r.Tables {
		x := t.row(system)
		if system == "" || t.Task != "logistic" || t.Workers != workers || t.Batch < 1 || t.Link.Mbit > 0 || x == nil || x.Good == 0 {
			continue
		}
		list = append(list, point{float64(x.Effective), 1e6 / x.Rate.Median})
		if x.Crowded {
			crowded = ", oversubscribed,"
		}
	}
	slices.SortFunc(list, func(a, b point) int { return cmp.Compare(a.batch, b.batch) })
	if len(list) < 2 {
		return ""
	}
	first, last := list[0], list[len(list)-1]
	if first.batch == last.batch {
		return ""
	}
	b := (first.micros - last.micros) / (1/first.batch - 1/last.batch)
	a := first.micros - b/first.batch
	return fmt.Sprintf("here%s with the samples of %s counted together, a sample costs %.3g µs and a step %.3g ms, so that %.0f %% of the cost at %.0f rows an update is the samples'",
		crowded, quantity.Count(workers, "worker"), a, b/1000, 100*a/first.micros, first.batch)
}
