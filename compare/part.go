package compare

import (
	"slices"
	"strings"
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
// nothing that is named is left out.
func (p *Plan) Choose(tasks, systems bool) {
	only := Part{p.Workers, p.Batches, p.Links}
	if only.String() != "" && !p.covers(&only, tasks, systems) {
		return
	}
	p.Full, p.Only = true, only
	p.Workers, p.Batches, p.Links = nil, nil, nil
}

// covers reports whether the full run has all that is named: of each combination a table, in which the tasks and systems are that would be there
// if it were measured by itself.
func (p *Plan) covers(only *Part, tasks, systems bool) bool {
	if twice(only.Workers) || twice(only.Batches) || twice(only.Links) {
		return false // which validate refuses
	}
	full := *p
	full.Links, full.Only = []Link{{Apart: true}}, Part{}
	groups := full.paper()
	for _, one := range only.combinations() {
		itself := *p
		itself.Full, itself.Workers, itself.Batches, itself.Links = false, one.Workers, one.Batches, one.Links
		itself.defaults()
		had := slices.DeleteFunc(slices.Clone(groups), func(g group) bool { return !one.has(&g) })
		if len(had) == 0 || tasks && lacks(had, itself.groups(), namesOfTask) || systems && lacks(had, itself.groups(), namesOfRows) {
			return false
		}
	}
	return true
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

// lacks reports whether some of the names that are in want are in none of had.
func lacks(had, want []group, names func(*group) []string) bool {
	there := map[string]bool{}
	for i := range had {
		for _, name := range names(&had[i]) {
			there[name] = true
		}
	}
	for i := range want {
		if slices.ContainsFunc(names(&want[i]), func(name string) bool { return !there[name] }) {
			return true
		}
	}
	return false
}

func namesOfTask(g *group) []string { return []string{g.task.Name} }

func namesOfRows(g *group) (names []string) {
	for _, c := range g.cells {
		names = append(names, c.System)
	}
	return names
}
