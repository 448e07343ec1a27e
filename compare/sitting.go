package compare

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trivium-ml/trivium/observe/host"
)

// A Sitting is a process that measured trials of a plan, from its first one on. A long plan takes several, on as many days, and the machine
// need not be as it was: a report says from how many its trials come.
type Sitting struct {
	Began     time.Time `json:"began"`
	Kernel    string    `json:"kernel,omitempty"`
	Frequency string    `json:"frequency,omitempty"` // policy of the processor
}

// sit begins this process's sitting, with its first trial, and returns its number, from 1.
func (r *runner) sit() (int, error) {
	if r.sitting > 0 {
		return r.sitting, nil
	}
	facts, _ := host.Describe(host.Options{}) // what could not be read is empty
	d := r.dir
	d.record.Sittings = append(d.record.Sittings, Sitting{r.plan.now().UTC().Truncate(time.Second), facts.Kernel, frequencyPolicy("/sys/devices/system/cpu")})
	r.sitting = len(d.record.Sittings)
	return r.sitting, d.save()
}

// changed says what of a system is not as it was when the finished trials were measured; empty: nothing, or there are none.
func (d *directory) changed(system string, now Facts) string {
	old, known := d.record.Facts[system]
	if !known || maps.Equal(old, now) {
		return ""
	}
	done, _ := finishedTrials(d.path)
	if !slices.ContainsFunc(done, func(name string) bool { ok, _ := filepath.Match("*-"+system+"-r*", name); return ok }) {
		return ""
	}
	names := maps.Clone(old)
	maps.Copy(names, now)
	var words []string
	for _, n := range slices.Sorted(maps.Keys(names)) {
		if old[n] != now[n] {
			words = append(words, fmt.Sprintf("%s %s then, %s now", n, cmp.Or(old[n], "not there"), cmp.Or(now[n], "not there")))
		}
	}
	return fmt.Sprintf("%s is another (%s)", system, strings.Join(words, ", "))
}

// stranded says which unfinished comparison beside p's fresh folder is the same but for the program: a user who built it anew in the middle
// would else wonder why it begins at the first trial.
func (p *Plan) stranded() string {
	mine := p.record()
	for _, dir := range slices.Backward(comparisons(filepath.Dir(p.Dir))) {
		old, err := readPlan(dir)
		if err != nil || old.Build == mine.Build {
			continue
		}
		same := *old
		same.Build = mine.Build
		done, err := finishedTrials(dir)
		if err != nil || len(done) == 0 || len(mine.settledAs(&same).differs(&same)) > 0 {
			continue
		}
		if _, err := ReadReport(dir); err == nil {
			continue
		}
		return fmt.Sprintf("%s holds %d trials of the same comparison by another build of this program; trials of two builds are not mixed, so this one begins anew (that build goes on with them; `compare show %s` prints them)", dir, len(done), dir)
	}
	return ""
}

// late are the systems with a repeat of a later sitting than some other row's next repeat has in the same table; where one repeat is all,
// than that of another row.
func (r *Report) late() []string {
	names := map[string]bool{}
	for _, t := range r.Tables {
		began := map[int]int{} // the first sitting of a repeat
		for _, x := range t.Rows {
			for _, one := range x.Trials {
				if first, ok := began[one.Repeat]; !ok || one.Result.Sitting < first {
					began[one.Repeat] = one.Result.Sitting
				}
			}
		}
		for _, x := range t.Rows {
			for _, one := range x.Trials {
				next := one.Repeat + 1
				if r.Repeats == 1 {
					next = 1
				}
				if other, ok := began[next]; ok && one.Result.Sitting > other {
					names[x.System] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// sittings are the doubts that several of them raise.
func (r *Report) sittings(say func(format string, args ...any)) {
	used := map[int]bool{}
	mixed := 0
	for _, t := range r.Tables {
		of := map[int]bool{}
		for _, x := range t.Rows {
			for _, one := range x.Trials {
				used[one.Result.Sitting], of[one.Result.Sitting] = true, true
			}
		}
		if len(of) > 1 {
			mixed++
		}
	}
	if len(used) < 2 {
		return
	}
	var began []string
	for _, i := range slices.Sorted(maps.Keys(used)) {
		if i > 0 && i <= len(r.Sittings) {
			began = append(began, r.Sittings[i-1].Began.Format("2006-01-02 15:04"))
		}
	}
	say("The trials come from %d sittings (begun %s UTC), between which the machine may have changed. In %d of %d tables the repeats are of more than one; every repeat takes all rows of a table in turn, so that a change falls on all of them alike.",
		len(used), strings.Join(began, ", "), mixed, len(r.Tables))
	if late := r.late(); len(late) > 0 {
		say("Not interleaved with the rest: %s. Repeats of these rows were measured in a later sitting, and not in turn with the others', as happens where a system is installed in between: a change of the machine falls on them alone.", strings.Join(late, ", "))
	}
	for i, s := range r.Sittings {
		first := r.Sittings[0]
		if i > 0 && used[i+1] && (s.Kernel != first.Kernel || s.Frequency != first.Frequency) {
			say("Between sittings 1 and %d the system changed: kernel %s, then %s; processor frequency %s, then %s.", i+1, first.Kernel, s.Kernel, first.Frequency, s.Frequency)
		}
	}
}
