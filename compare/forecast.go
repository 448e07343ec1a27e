package compare

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/trivium-ml/trivium/internal/quantity"
)

// A Forecast is what a plan has still to do.
type Forecast struct {
	Trials  int           `json:"trials"`
	Faults  int           `json:"faults,omitempty"` // for each of which there is a trial beside those
	Time    time.Duration `json:"-"`                // of all that is not finished
	Parts   []Share       `json:"parts,omitempty"`  // of the full run: what asks for them; a trial that two ask for counts for the first
	Systems []Share       `json:"systems"`          // the longest first
	Absent  []string      `json:"absent,omitempty"` // rows that are not here, which are left out, with why
}

// MarshalJSON has times as numbers of seconds.
func (f Forecast) MarshalJSON() ([]byte, error) {
	type plain Forecast
	return json.Marshal(struct {
		plain
		Seconds float64 `json:"seconds"`
	}{plain(f), f.Time.Seconds()})
}

// A Share is a part of a Forecast.
type Share struct {
	Name   string        `json:"name"`
	Trials int           `json:"trials"`
	Time   time.Duration `json:"-"`
}

// MarshalJSON has the time as a number of seconds.
func (s Share) MarshalJSON() ([]byte, error) {
	type plain Share
	return json.Marshal(struct {
		plain
		Seconds float64 `json:"seconds"`
	}{plain(s), s.Time.Seconds()})
}

func (f Forecast) brief() string {
	var what []string
	if f.Trials > 0 {
		what = append(what, quantity.Count(f.Trials, "trial"))
	}
	if f.Faults > 0 {
		what = append(what, quantity.Count(f.Faults, "fault"))
	}
	if what == nil {
		return "there is no trial to do"
	}
	return fmt.Sprintf("%s, about %v; it may be interrupted at any time, and goes on from there", strings.Join(what, " and "), inRound(f.Time))
}

// inRound is d as exactly as an estimate may say it.
func inRound(d time.Duration) time.Duration {
	switch {
	case d >= time.Hour:
		return d.Round(time.Minute)
	case d >= time.Minute:
		return d.Round(10 * time.Second)
	}
	return d.Round(time.Second)
}

// String is the forecast with what takes how much of it.
func (f Forecast) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, f.brief())
	for _, list := range [][]Share{f.Parts, f.Systems} {
		if len(list) < 2 {
			continue
		}
		fmt.Fprintln(&b)
		tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, s := range list {
			fmt.Fprintf(tab, "  %s\t%s\t%v\n", s.Name, quantity.Count(s.Trials, "trial"), inRound(s.Time))
		}
		_ = tab.Flush() // a Builder has no errors
	}
	for _, why := range f.Absent {
		fmt.Fprintf(&b, "\nnot counted, since it is not here: %s\n", why)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// forecast is what is still to do.
func (r *runner) forecast() Forecast {
	f := Forecast{Time: r.left()}
	add := func(list *[]Share, name string, n int, d time.Duration) {
		i := slices.IndexFunc(*list, func(s Share) bool { return s.Name == name })
		if i < 0 {
			i = len(*list)
			*list = append(*list, Share{Name: name})
		}
		(*list)[i].Trials += n
		(*list)[i].Time += d
	}
	for _, c := range r.cells() {
		one, n := r.remains(c, 1)
		if r.absent[c.System] != nil || n == 0 {
			continue
		}
		f.Trials += n
		if c.part != "" {
			add(&f.Parts, c.part, n, one*time.Duration(n))
		}
		name, _, _ := strings.Cut(c.System, "-")
		add(&f.Systems, name, n, one*time.Duration(n))
	}
	for _, b := range r.dueBlows() {
		f.Faults++
		one := r.plan.estimateBlow(&b)
		if b.cell.part != "" {
			add(&f.Parts, "faults", 1, one)
		}
		name, _, _ := strings.Cut(b.cell.System, "-")
		add(&f.Systems, name, 1, one)
	}
	var reasons []string
	names := map[string][]string{}
	for _, s := range r.plan.Systems {
		if err := r.absent[s.Name()]; err != nil {
			if why := err.Error(); names[why] == nil {
				reasons = append(reasons, why)
			}
			names[err.Error()] = append(names[err.Error()], s.Name())
		}
	}
	for _, why := range reasons {
		f.Absent = append(f.Absent, listed(names[why])+": "+why)
	}
	slices.SortStableFunc(f.Systems, func(a, b Share) int { return int(b.Time - a.Time) })
	return f
}
