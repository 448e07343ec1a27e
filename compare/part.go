package compare

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium"
)

// A Part is what is wanted of the full run: the tables that have one of each of these. An empty list leaves all.
type Part struct {
	Workers []int   `json:"workers,omitempty"`
	Batches []Batch `json:"batches,omitempty"`
	Links   []Link  `json:"links,omitempty"` // by their rates
}

// has reports whether a table is in the part.
func (x *Part) has(g *group) bool {
	return (len(x.Workers) == 0 || slices.Contains(x.Workers, g.work)) &&
		(len(x.Batches) == 0 || slices.Contains(x.Batches, g.batch)) &&
		(len(x.Links) == 0 || slices.ContainsFunc(x.Links, func(l Link) bool { return l.Mbit == g.link.Mbit }))
}

// shaped reports whether a shaped link is asked for.
func (x *Part) shaped() bool {
	return slices.ContainsFunc(x.Links, func(l Link) bool { return l.Mbit > 0 })
}

// String is empty of all.
func (x *Part) String() string {
	var words []string
	add := func(what, list string) {
		if list != "" {
			words = append(words, what+" "+list)
		}
	}
	add("workers", listed(x.Workers))
	add("batch", listed(x.Batches))
	var links []string
	for _, l := range x.Links {
		if l.Mbit > 0 {
			links = append(links, l.String())
		} else {
			links = append(links, "unshaped")
		}
	}
	add("links", listed(links))
	return strings.Join(words, "; ")
}

// combinations are the parts of one value of each list.
func (x *Part) combinations() []Part {
	list := cross([]Part{{}}, x.Workers, func(p *Part, n int) { p.Workers = []int{n} })
	list = cross(list, x.Batches, func(p *Part, b Batch) { p.Batches = []Batch{b} })
	return cross(list, x.Links, func(p *Part, l Link) { p.Links = []Link{l} })
}

// cross gives each of list each of those values, where there are some.
func cross[T any](list []Part, values []T, set func(*Part, T)) (out []Part) {
	if len(values) == 0 {
		return list
	}
	for _, x := range list {
		for _, v := range values {
			set(&x, v)
			out = append(out, x)
		}
	}
	return out
}

// Choose makes p the full run, or that part of it which p.Workers, p.Batches and p.Links name. Where the full run lacks a table of some combination of
// these, or has none of a task or a system there that was named too, as tasks and systems say, p stays all combinations of what they name: so
// nothing that is named is left out. A comparison of the same workers, batches and links that p.Dir holds stays what it is: systems that are
// added do not make another of it, and one that it has no table for is an error.
func (p *Plan) Choose(tasks, systems bool) error {
	only := Part{p.Workers, p.Batches, p.Links}
	part, kept := p.keeps(&only)
	why := ""
	if only.String() != "" {
		why = p.lacking(&only, tasks, systems)
	}
	switch {
	case kept && !part || !kept && why != "":
		return nil
	case why != "":
		return fmt.Errorf("%s holds the full run's tables of %s, among which is %s: name another directory for that", p.Dir, only.String(), why)
	}
	p.Full, p.Only = true, only
	p.Workers, p.Batches, p.Links = nil, nil, nil
	return nil
}

// keeps says whether p.Dir holds a comparison of what only names, and whether that is a part of the full run.
func (p *Plan) keeps(only *Part) (part, kept bool) {
	if p.Dir == "" {
		return false, false
	}
	old, err := readPlan(p.Dir)
	if err != nil || old.Quick { // it is none, or one that is refused later
		return false, false
	}
	if old.Full {
		kept = old.Only.String() == only.String()
		return kept, kept
	}
	now := *p
	now.defaults()
	return false, listed(old.Workers) == listed(now.Workers) && listed(old.Batches) == listed(now.Batches) && listed(old.Links) == listed(now.Links)
}

// lacking says what the full run does not have of what is named: of each combination a table, in which the tasks and systems are, each system
// with each task, that would be there if it were measured by itself. It is empty of a run that has all.
func (p *Plan) lacking(only *Part, tasks, systems bool) string {
	if twice(only.Workers) || twice(only.Batches) || twice(only.Links) {
		return "a value that is named twice" // which validate refuses
	}
	if len(only.Workers) == 0 && slices.ContainsFunc(only.Batches, func(b Batch) bool { return b != 100 && b != 500 && b != trivium.FullBatch }) {
		return "no table of that batch with as many workers as there are elsewhere" // what the scaling's workers make of 1500 rows is not meant
	}
	full := *p
	full.Links, full.Only = []Link{{Apart: true}}, Part{}
	groups := full.paper()
	for _, one := range only.combinations() {
		itself := *p
		itself.Full, itself.Workers, itself.Batches, itself.Links = false, one.Workers, one.Batches, one.Links
		itself.defaults()
		had := slices.DeleteFunc(slices.Clone(groups), func(g group) bool { return !one.has(&g) })
		if len(had) == 0 {
			return "none of " + one.String()
		}
		names := func(*group) []string { return nil }
		switch {
		case tasks && systems:
			names = namesOfPairs
		case tasks:
			names = namesOfTask
		case systems:
			names = namesOfRows
		}
		if name := lacks(had, itself.groups(), names); name != "" {
			return fmt.Sprintf("no %s, of %s", name, one.String())
		}
	}
	return ""
}

// twice reports whether a value is in list more than once.
func twice[T comparable](list []T) bool {
	for i, x := range list {
		if slices.Contains(list[:i], x) {
			return true
		}
	}
	return false
}

// lacks is a name that is in want and in none of had; empty: there is none.
func lacks(had, want []group, names func(*group) []string) string {
	there := map[string]bool{}
	for i := range had {
		for _, name := range names(&had[i]) {
			there[name] = true
		}
	}
	for i := range want {
		for _, name := range names(&want[i]) {
			if !there[name] {
				return name
			}
		}
	}
	return ""
}

func namesOfTask(g *group) []string { return []string{g.task.Name} }

func namesOfRows(g *group) (names []string) {
	for _, c := range g.cells {
		names = append(names, c.System)
	}
	return names
}

func namesOfPairs(g *group) (names []string) {
	for _, c := range g.cells {
		names = append(names, c.System+" on "+g.task.Name)
	}
	return names
}

// untouched says which tasks have no table in the part of the full run that is wanted; empty: all have.
func (p *Plan) untouched(groups []group) string {
	var names []string
	for _, t := range p.Tasks {
		if !slices.ContainsFunc(groups, func(g group) bool { return g.task.Name == t.Name }) {
			names = append(names, t.Name)
		}
	}
	if !p.Full || len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("the full run has no table of %s with %s: --tasks asks for all combinations", strings.Join(names, ", "), p.Only.String())
}
