package app

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/rundir"
)

type runsShow struct {
	Name string `arg:"" name:"run" help:"A run: its folder, its name, the beginning of its name, or last."`
	runsFlags
	JSON bool `name:"json" help:"Print one JSON object."`
}

func (v *runsShow) Run(s *session) error {
	r, err := findRun(v.Out, v.Name)
	if err != nil {
		return err
	}
	s.warn(r)
	if v.JSON {
		return json.NewEncoder(s.out).Encode(r.fields())
	}
	fields := texts(r.fields())
	w := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		fmt.Fprintf(w, "%s\t%s\n", k, fields[k])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if r.Result != nil {
		s.showPhases(r.Result)
		return nil
	}
	return s.showSoFar(r)
}

// soFar is how far a run has come that has no result yet, or never will, as far as its measurements reached the disk.
func (r *run) soFar() (rundir.Result, error) {
	open, err := rundir.Open(r.Dir)
	if err != nil {
		return rundir.Result{}, err
	}
	var last []observe.Frame
	for _, source := range open.Sources {
		last = append(last, open.Last[source.String()])
	}
	return rundir.Summarise(last...), nil
}

// showSoFar says how far a run without a result has come.
func (s *session) showSoFar(r *run) error {
	result, err := r.soFar()
	if err != nil {
		return misused(err)
	}
	if result.Steps == 0 {
		return nil
	}
	line := fmt.Sprintf("so far %s, %s in updates, %s samples/s", quantity.Count(result.Steps, "update"), quantity.Seconds(result.Seconds),
		quantity.Short(result.SamplesPerSec))
	for _, m := range slices.Sorted(maps.Keys(result.Metrics)) {
		line += "  " + m + " " + figure(result.Metrics[m])
	}
	fmt.Fprintf(s.out, "\n%s\n", line)
	s.showPhases(&result)
	return nil
}

// showPhases draws where the time of the steps went, and says whom it was waited for.
func (s *session) showPhases(r *rundir.Result) {
	var total time.Duration
	for _, d := range r.Phases {
		total += d
	}
	if total == 0 {
		return
	}
	fmt.Fprintf(s.out, "\nwhere the time of %s updates went, %.3f s in all\n", thousands(r.Steps), total.Seconds())
	phases := slices.Sorted(maps.Keys(r.Phases))
	slices.SortStableFunc(phases, func(a, b string) int { return cmp.Compare(r.Phases[b], r.Phases[a]) })
	for _, p := range phases {
		share := float64(r.Phases[p]) / float64(total)
		if r.Phases[p] > 0 {
			fmt.Fprintf(s.out, "  %-14s %5.1f %%  %s\n", p, 100*share, strings.Repeat("#", int(math.Round(40*share))))
		}
	}
	s.showWaits(r.Waited)
}

// shownWaits is how many workers showWaits names.
const shownWaits = 3

// showWaits says whom workers have waited for, longest first.
func (s *session) showWaits(by []time.Duration) {
	var all, rest time.Duration
	var ranks []int
	for rank, d := range by {
		if all += d; d > 0 {
			ranks = append(ranks, rank)
		}
	}
	if len(ranks) == 0 {
		return
	}
	slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(by[b], by[a]) })
	var words []string
	for _, rank := range ranks[:min(len(ranks), shownWaits)] {
		words = append(words, fmt.Sprintf("for worker %d: %.3f s", rank, by[rank].Seconds()))
	}
	words[0] += fmt.Sprintf(" of %.3f s", all.Seconds())
	if n := len(ranks) - len(words); n > 0 {
		for _, rank := range ranks[shownWaits:] {
			rest += by[rank]
		}
		words = append(words, fmt.Sprintf("for %s: %.3f s", quantity.Count(n, "other"), rest.Seconds()))
	}
	fmt.Fprintf(s.out, "\nwaited %s\n", strings.Join(words, ", "))
}
