package compare

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium"
)

// A Cell is one row of one table: what is repeated.
type Cell struct {
	Task    string `json:"task"`
	Batch   Batch  `json:"batch"`
	Workers int    `json:"workers"`
	Servers int    `json:"servers,omitempty"`
	Link    Link   `json:"link,omitzero"`
	System  string `json:"system"`

	index int // of the system
}

// ID names the cell's files.
func (c Cell) ID() string {
	s := fmt.Sprintf("%s-b%s-w%d", c.Task, c.Batch, c.Workers)
	if c.Link.Mbit > 0 {
		s += fmt.Sprintf("-%dmbit", c.Link.Mbit)
	}
	return s + "-" + c.System
}

// A Group is the cells of one table: they differ in the system alone.
type group struct {
	task  Task
	batch Batch
	work  int
	link  Link
	cells []Cell
}

// groups are the tables of the plan, in the order in which they are measured. A full run has those that the evaluation names: (a) all
// rows and tasks with 3 workers, batch 100 and 500; (b) scaling on mlp1; (c) the sweep of SSP; (d) the full batch; (e) the shaped rates.
func (p *Plan) groups() []group {
	var list []group
	add := func(t Task, b Batch, workers int, link Link, only func(System) bool) {
		g := group{task: t.At(b), batch: b, work: workers, link: link}
		for i, s := range p.Systems {
			a := s.About()
			if only != nil && !only(s) || b == trivium.FullBatch && !a.Full || b != trivium.FullBatch && a.Whole || !suits(s, t) {
				continue
			}
			c := Cell{Task: t.Name, Batch: b, Workers: workers, Servers: a.Server, Link: link, System: s.Name(), index: i}
			if a.Alone {
				c.Workers = 1
			}
			g.cells = append(g.cells, c)
		}
		same := func(o group) bool {
			return o.task.Name == g.task.Name && o.batch == b && o.work == workers && o.link == link
		}
		if i := slices.IndexFunc(list, same); i >= 0 {
			for _, c := range g.cells {
				if !slices.Contains(list[i].cells, c) {
					list[i].cells = append(list[i].cells, c)
				}
			}
		} else if len(g.cells) > 0 {
			list = append(list, g)
		}
	}
	if !p.Full {
		for _, t := range p.Tasks {
			batches := p.Batches
			if t.Own {
				batches = []Batch{Batch(t.Job.Batch)}
			}
			for _, link := range p.Links {
				for _, w := range p.Workers {
					for _, b := range batches {
						add(t, b, w, link, nil)
					}
				}
			}
		}
		return list
	}
	base := p.Links[0]
	sweep := func(s System) bool {
		return slices.Contains([]string{"server-bsp", "server-asp"}, strings.TrimSuffix(s.Name(), slow)) || strings.HasPrefix(s.Name(), "server-ssp")
	}
	few := func(s System) bool {
		return s.About().Peer || slices.Contains([]string{"local", "server-bsp", "allreduce"}, s.Name())
	}
	main := func(s System) bool { // the others are of the sweep alone
		return s.Name() != "server-ssp5" && !strings.HasSuffix(s.Name(), slow)
	}
	named := func(t Task, names ...string) bool {
		return slices.Contains(names, strings.TrimSuffix(t.Name, "-10k"))
	}
	for _, t := range p.Tasks {
		add(t, 100, 3, base, main)
		if !strings.HasSuffix(t.Name, "-10k") { // its targets are for batch 100 alone
			add(t, 500, 3, base, main)
		}
	}
	for _, t := range p.Tasks {
		if named(t, "mlp1") {
			for _, w := range []int{1, 2, 5} {
				add(t, 100, w, base, few)
				if !strings.HasSuffix(t.Name, "-10k") { // as many rows an update as 3 workers with 500 have
					add(t, Batch(1500/w), w, base, few)
				}
			}
		}
		if named(t, "logistic", "mlp1") {
			add(t, 100, 3, base, sweep)
		}
		add(t, trivium.FullBatch, 3, base, few)
		if named(t, "logistic", "mlp2") && base.Apart {
			for _, rate := range []int{750, 1000, 10000} {
				add(t, 100, 3, Link{Mbit: rate, Apart: true}, few)
			}
		}
	}
	return list
}

// suits reports whether a system trains a task: per-sample SGD with clocks is how PMLS trains its regression, and a peer may have classes
// for some models alone.
func suits(s System, t Task) bool {
	if p, ok := s.(*peer); ok && !p.trains(t.Job.Model) {
		return false
	}
	return s.About().Clocks == 0 || strings.HasPrefix(t.Job.Model, "logistic")
}
