package compare

import (
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/internal/quantity"
)

// threats are the reasons for doubt that the recorded facts give.
func (r *Report) threats() {
	say := func(format string, args ...any) { r.Threats = append(r.Threats, fmt.Sprintf(format, args...)) }
	crowded, measured := 0, map[string]bool{}
	for _, t := range r.Tables {
		for _, x := range t.Rows {
			if x.Crowded {
				crowded++
			}
			measured[x.System] = measured[x.System] || len(x.Trials) > 0
		}
	}
	if crowded > 0 {
		say("Of %s the busy threads are more than the %s: what is shown is partly the scheduler. Such a row is grey, and carries no verdict. Where its workers are more than the cores, and wait for one another after each step, Trivium chooses among the row's cores which computes where; peers leave that to the system.", quantity.Count(crowded, "row"), quantity.Count(r.Cores, "core"))
	}
	r.Threats = append(r.Threats, r.atHand()...)
	r.sittings(say)
	if least, _ := r.repeatsOf(r.Tables); !canProve(least, least, r.judged()) {
		say("Too few for verdicts after correction: %s.", r.repeats(r.Tables...))
	}
	say("All repeats of a row begin with the same initial weights and take the rows of the data in the same order: an interval says how far the time of this one way to the target varies, and not how far the way would with another seed.")
	if r.Frequency != "" {
		say("Processor frequency: %s.", r.Frequency)
	}
	for _, x := range r.speeds() {
		switch {
		case x.off():
			say("The link of %s was measured at %s: what is shown at that rate is of another.", x.Link, mbitWord(x.Mbit))
		case x.NotMeasured != "" && x.Link.Mbit > 0:
			say("Whether the link of %s has that rate was not measured: %s.", x.Link, strings.TrimSuffix(x.NotMeasured, "."))
		}
	}
	if strings.HasPrefix(r.Control, "bbr") {
		say("The system's congestion control of TCP is %s, which paces what is sent. Trivium's connections between near ends begin with reno, and are not paced; peers' have what the system chose.", r.Control)
	}
	for _, t := range r.Tables {
		if t.Data == generatedSource {
			say("Digits are generated where MNIST is not at hand: the same shapes and the same arithmetic, and other pictures.")
			break
		}
	}
	var drawn []string
	for _, t := range r.Tables {
		if _, ok := data.Generators()[t.Data]; ok && t.Own && t.Data != generatedSource && !slices.Contains(drawn, t.Data) {
			drawn = append(drawn, t.Data)
			say("The data of %s is generated (%s), and read from no file: of another set the order of the rows may be another.", t.Task, t.Data)
		}
	}
	if measured["server-asp"] && (measured["mxnet-async"] || measured["tensorflow-async"]) {
		say(wholeSteps)
	}
	if loose := r.loosePeers(); len(loose) > 0 {
		say(copiedMeanwhile, strings.Join(loose, ", "))
	}
	if slices.ContainsFunc(r.Tables, func(t *Table) bool {
		return strings.HasPrefix(t.Model, "mlp") && slices.ContainsFunc(t.Rows, func(x *Row) bool { return x.Peer && len(x.Trials) > 0 })
	}) {
		say(leftOut)
	}
	if tuned, lone := unshipped(measured); len(tuned)+len(lone) > 0 {
		words := ""
		if len(tuned) > 0 {
			words = fmt.Sprintf("Untouched defaults were not measured: %s. ", strings.Join(tuned, ", "))
		}
		if len(lone) > 0 {
			words += fmt.Sprintf("There is no row with untouched defaults of %s: what its settings do is not shown. ", strings.Join(lone, ", or of "))
		}
		say("%sWhat was tried of each system, and what the harness costs it as far as that is known, is in the setup.", words)
	}
	for _, n := range r.Notes {
		say("%s.", strings.TrimSuffix(n, "."))
	}
	say("One machine: what holds between processes of one host need not hold between hosts. There the payloads of Trivium's frames carry checksums, which they do not here.")
}

// judged is the number of verdicts that are given together.
func (r *Report) judged() int {
	n := 0
	if r.Best != nil {
		for i := range r.Best.Behind {
			if x := &r.Best.Behind[i]; !x.Crowded {
				n++
			}
		}
		return pairsOf(n)
	}
	for _, c := range r.Claims {
		if c.P > 0 {
			n++
		}
	}
	return n
}

// atHand are the reasons for doubt that a reader of the table alone should know too: that something else had the machine, and targets that are met
// before there is much to compare.
func (r *Report) atHand() (threats []string) {
	flagged, trials := map[string]int{}, 0
	for x := range r.results() {
		trials++
		for _, f := range x.Flags {
			flagged[kind(f)]++
		}
	}
	for _, k := range slices.Sorted(maps.Keys(flagged)) {
		threats = append(threats, fmt.Sprintf("%d of %d trials are flagged: %s.", flagged[k], trials, k))
	}
	for _, t := range r.Tables {
		if rows := t.metAtOnce(); len(rows) > 0 {
			threats = append(threats, fmt.Sprintf("In %s the target is met where it is first looked for, by %s: the time to it may be shorter than what is said, and is that of the first updates. A target that is harder to meet tells more.", t.title(), listed(rows)))
		}
	}
	return threats
}

// results walks the results of all trials, each once, though several tables may show it.
func (r *Report) results() iter.Seq[*Result] {
	return func(yield func(*Result) bool) {
		seen := map[trialOf]bool{}
		for _, t := range r.Tables {
			for _, x := range t.Rows {
				for i := range x.Trials {
					one := &x.Trials[i]
					of := trialOf{x.cell, one.Repeat}
					if seen[of] {
						continue
					}
					if seen[of] = true; !yield(&one.Result) {
						return
					}
				}
			}
		}
	}
}

// flagged is how many of the trials are.
func (r *Report) flagged() (flagged, trials int) {
	for x := range r.results() {
		trials++
		flagged += min(1, len(x.Flags))
	}
	return flagged, trials
}

// kind is a flag without the figures of its trial.
func kind(flag string) string {
	switch {
	case strings.HasPrefix(flag, "the machine was"):
		return "the machine was busy with something else before"
	case strings.HasPrefix(flag, "the control group"):
		return "the control group was throttled"
	case strings.HasPrefix(flag, "the processors"):
		return "the processors were throttled for heat"
	case strings.HasPrefix(flag, "other programs"):
		return fmt.Sprintf("other programs took more than %.0f %% of the cores", 100*foreignMost)
	case strings.HasPrefix(flag, "the hypervisor"):
		return fmt.Sprintf("the hypervisor took more than %.0f %% of the time", 100*stealMost)
	}
	return flag
}

// metAtOnce are the rows of which all good trials met the target at the first place where it was looked for.
func (t *Table) metAtOnce() (rows []string) {
	for _, x := range t.Rows {
		later := slices.ContainsFunc(x.Trials, func(one Repeat) bool {
			r := &one.Result
			return r.Error == "" && (!r.Reached || len(r.Curve) == 0 || r.SecondsToTarget > r.Curve[0].Seconds)
		})
		if x.Good > 0 && !later {
			rows = append(rows, x.System)
		}
	}
	return rows
}

// copiedMeanwhile is said of other systems' rows whose workers do not wait for one another: TensorFlow takes some 6 ms for a copy.
const copiedMeanwhile = "While parameters are copied for the losses of %s, worker 0 and the clock stand still, and the other workers go on: what they do meanwhile is on no clock, so the time to the target is too short, in favour of that system."

// loosePeers are those of these rows that were measured with several workers.
func (r *Report) loosePeers() (names []string) {
	for _, t := range r.Tables {
		for _, x := range t.Rows {
			if x.Peer && x.Mode == Async && x.Workers > 1 && x.Good > 0 && !slices.Contains(names, x.System) {
				names = append(names, x.System)
			}
		}
	}
	return names
}

// unshipped are the measured rows of other systems that stand beside none with untouched defaults: tuned, where there is such a row to measure,
// and lone, where there is none.
func unshipped(measured map[string]bool) (tuned, lone []string) {
	rows := map[string]bool{}
	if files, err := fs.Sub(peerFiles, "peers"); err == nil {
		specs, _ := knownPeers(files) // of those that travel in the program none is wrong
		for _, s := range specs {
			for _, x := range s.Rows {
				rows[x.Name] = true
			}
		}
	}
	for _, w := range twins {
		switch {
		case !measured[w.peer] || measured[w.asShipped()]:
		case rows[w.asShipped()]:
			tuned = append(tuned, w.peer)
		default:
			lone = append(lone, w.peer)
		}
	}
	return tuned, lone
}
