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

	index int    // of the system
	part  string // of the full run, which asked for it first
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

// groups are the tables of the plan, in the order of the report. A full run has those that the evaluation names: (a) all rows and tasks with
// 3 workers, batch 100 and 500; (b) scaling on mlp1, at equal batch of each worker and of all; (c) the sweep of SSP; (d) the full batch;
// (e) the shaped rates.
func (p *Plan) groups() []group {
	if p.Full {
		return p.paper()
	}
	var list tables
	for _, t := range p.Tasks {
		batches := p.Batches
		if t.Own {
			batches = []Batch{Batch(t.Job.Batch)}
		}
		for _, link := range p.Links {
			for _, w := range p.Workers {
				for _, b := range batches {
					list.add(p, "", t, b, w, link, nil)
				}
			}
		}
	}
	return list
}

// paper are the tables of the full run, or of the part of it that is wanted.
func (p *Plan) paper() []group {
	var list tables
	base := p.Links[0]
	for _, t := range p.Tasks {
		list.add(p, partRows, t, 100, 3, base, isMain)
		if !tenth(t) && slices.Contains(t.Batches, 500) {
			list.add(p, partRows, t, 500, 3, base, isMainWithBatch)
		}
	}
	for _, t := range p.Tasks {
		named := func(names ...string) bool { return slices.Contains(names, strings.TrimSuffix(t.Name, "-10k")) }
		if named("mlp1") {
			for _, w := range []int{1, 2, 5} {
				list.add(p, partScaling, t, 100, w, base, scales)
				if !tenth(t) { // as many rows an update as 3 workers with 500 have
					list.add(p, partScaling, t, Batch(1500/w), w, base, func(name string, a About) bool {
						return scales(name, a) && (w == 1 || !a.Alone) // a row of one process would have other rows an update
					})
				}
			}
		}
		if named("logistic", "mlp1") {
			list.add(p, partSweep, t, 100, 3, base, sweeps)
		}
		if slices.Contains(t.Batches, trivium.FullBatch) {
			list.add(p, partFull, t, trivium.FullBatch, 3, base, takesAll)
		}
		if named("logistic", "mlp2") && (base.Apart || p.Only.shaped()) { // who asks for them is told why there are none
			for _, rate := range []int{750, 1000, 10000} {
				list.add(p, partLinks, t, 100, 3, Link{Mbit: rate, Apart: true}, crosses)
			}
		}
	}
	return slices.DeleteFunc(list, func(g group) bool { return !p.Only.has(&g) })
}

// tenth: of MNIST's test images, for which there are targets at batch 100 and the full batch alone.
func tenth(t Task) bool { return strings.HasSuffix(t.Name, "-10k") }

// The parts of the full run.
const (
	partRows    = "all rows and tasks, 3 workers"
	partScaling = "1, 2 and 5 workers on mlp1"
	partSweep   = "the sweep of staleness"
	partFull    = "the full batch"
	partLinks   = "the shaped links"
)

// Which rows the parts have: each asks for those that its question is about, and a row that two parts ask for is measured once.

// isMain: all but those that are of the sweep alone.
func isMain(name string, _ About) bool {
	return name != "server-ssp5" && !strings.HasSuffix(name, slow)
}

// isMainWithBatch: of these, those that the batch changes; per-sample SGD is in the table of batch 100 alone.
func isMainWithBatch(name string, a About) bool { return isMain(name, a) && a.Clocks == 0 }

// scales: a synchronous row of each topology, beside the other systems' as they are tuned; the paper's figure 12 has no others.
func scales(name string, a About) bool {
	return basic(name) || a.Peer && a.Mode == Sync && !strings.HasSuffix(name, untouched)
}

// sweeps: the parameter server at every bound, without a straggler and with one.
func sweeps(name string, _ About) bool {
	return slices.Contains([]string{"server-bsp", "server-asp"}, strings.TrimSuffix(name, slow)) || strings.HasPrefix(name, "server-ssp")
}

// takesAll: Spark's way, beside ours.
func takesAll(name string, _ About) bool {
	return basic(name) || name == "spark" || name == "spark-mllib"
}

// crosses: the rows whose topologies a link tells apart, each beside the other systems of its topology, and the codec that is to pay on a slow one.
func crosses(name string, _ About) bool {
	return basic(name) || name == "allreduce-topk" || slices.ContainsFunc(twins, func(w twin) bool { return w.peer == name && basic(w.row) })
}

func basic(name string) bool {
	return slices.Contains([]string{"local", "server-bsp", "allreduce"}, name)
}

// Tables are groups under construction.
type tables []group

// add adds the cells of those systems that only wants: to the table of the same task, batch, workers and link where there is one. A row of
// one process is the same whatever the workers and the link of the others are, so it has one cell for all of these tables.
func (list *tables) add(p *Plan, part string, t Task, b Batch, workers int, link Link, only func(name string, a About) bool) {
	g := group{task: t.At(b), batch: b, work: workers, link: link}
	for i, s := range p.Systems {
		a := s.About()
		if only != nil && !only(s.Name(), a) || b == trivium.FullBatch && !a.Full || b != trivium.FullBatch && a.Whole || !suits(s, t) {
			continue
		}
		c := Cell{Task: t.Name, Batch: b, Workers: workers, Servers: a.Server, Link: link, System: s.Name(), index: i, part: part}
		if a.Alone {
			c.Workers, c.Link = 1, Link{Apart: link.Apart}
		}
		g.cells = append(g.cells, c)
	}
	i := slices.IndexFunc(*list, func(o group) bool {
		return o.task.Name == g.task.Name && o.batch == b && o.work == workers && o.link == link
	})
	switch {
	case i >= 0:
		for _, c := range g.cells {
			if !slices.ContainsFunc((*list)[i].cells, func(o Cell) bool { return o.System == c.System }) {
				(*list)[i].cells = append((*list)[i].cells, c)
			}
		}
	case len(g.cells) > 0:
		*list = append(*list, g)
	}
}

// suits reports whether a system trains a task: per-sample SGD with clocks is how PMLS trains its regression, and a peer may have a program for
// some models alone.
func suits(s System, t Task) bool {
	if p, ok := s.(*peer); ok && !p.trains(t.Job.Model) {
		return false
	}
	return s.About().Clocks == 0 || strings.HasPrefix(t.Job.Model, "logistic")
}

// unprogrammed says which of the other systems have no program for a task, and so no row of it; empty: all have one for all.
func (p *Plan) unprogrammed() string {
	var words []string
	for _, t := range p.Tasks {
		var names []string
		for _, s := range p.Systems {
			if x, ok := s.(*peer); ok && !x.trains(t.Job.Model) && !slices.Contains(names, x.peerSpec.Name) {
				names = append(names, x.peerSpec.Name)
			}
		}
		if len(names) > 0 {
			words = append(words, fmt.Sprintf("for %s (%s)", t.Name, listed(names)))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return "no program " + strings.Join(words, ", ")
}
