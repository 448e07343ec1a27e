package compare

import (
	"runtime"
	"slices"
	"strings"
	"testing"
)

// paperPlan is the full run with all rows there are, in namespaces.
func paperPlan(t *testing.T, s Sources) Plan {
	t.Helper()
	peers, err := Peers(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := Plan{Tasks: PaperTasks(Tasks(s)), Systems: append(Strategies(Host{}), peers...), Full: true, Repeats: 7, Links: []Link{{Apart: true}}}
	p.defaults()
	return p
}

// TestFullRun: the full run has the cells that the evaluation names, and no others.
func TestFullRun(t *testing.T) {
	p := paperPlan(t, Sources{})
	got := map[string][]string{} // systems of each table
	for _, g := range p.groups() {
		name := g.title()
		for _, c := range g.cells {
			if slices.Contains(got[name], c.System) {
				t.Errorf("%s has %s twice", name, c.System)
			}
			got[name] = append(got[name], c.System)
		}
	}
	synchronous := "local server-bsp allreduce horovod mxnet-sync pytorch-ddp spark tensorflow-sync tensorflow-mirrored"
	all := "local local-cores server-bsp server-bsp-worker server-ssp1 server-ssp3 server-ssp3-worker server-ssp10 server-asp server-asp-whole allreduce allreduce-shm allreduce-topk allreduce-f16 allreduce-local8 " +
		"horovod horovod-default mxnet-sync mxnet-async mxnet-sync-default pytorch-ddp pytorch-ddp-default spark spark-default tensorflow-sync tensorflow-async tensorflow-sync-default tensorflow-mirrored"
	sweep := " server-ssp5 server-bsp-slow server-ssp3-slow server-ssp10-slow server-asp-slow"
	perSample := " server-ssp3-clock1 server-ssp3-clock10 server-ssp3-clock100 pmls-ssp0 pmls-ssp1 pmls-ssp5 pmls-ssp10 pmls-ssp3-clock1 pmls-ssp3-clock10 pmls-ssp3-clock100 pmls-ssp3-shipped"
	links := "local server-bsp allreduce allreduce-topk horovod mxnet-sync pytorch-ddp tensorflow-mirrored"
	want := map[string]string{
		"logistic 100 3": all + sweep + perSample, "softmax 100 3": all, "mlp1 100 3": all + sweep, "mlp2 100 3": all,
		"mlp1 100 1": synchronous, "mlp1 100 2": synchronous, "mlp1 100 5": synchronous,
		"mlp1 1500 1": synchronous, "mlp1 750 2": synchronous[len("local "):], "mlp1 300 5": synchronous[len("local "):],
	}
	for _, task := range []string{"logistic", "softmax", "mlp1", "mlp2"} {
		want[task+" 500 3"] = all
		want[task+" full 3"] = "local server-bsp allreduce spark spark-mllib"
	}
	for _, task := range []string{"logistic", "mlp2"} {
		for _, rate := range []string{"750", "1000", "10000"} {
			want[task+" 100 3 "+rate] = links
		}
	}
	for name, systems := range got {
		list := strings.Fields(want[name])
		slices.Sort(list)
		slices.Sort(systems)
		if !slices.Equal(list, systems) {
			t.Errorf("%s has the rows\n%v, want\n%v", name, systems, list)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("there is no table %s", name)
	}
}

// TestFullRunJudges: where a claim is judged at shaped links, the full run has both of its rows at one.
func TestFullRunJudges(t *testing.T) {
	p := paperPlan(t, Sources{})
	groups := p.groups()
	shaped := 0
	for _, x := range rules {
		for _, pair := range x.pairs {
			if !pair.shaped {
				continue
			}
			shaped++
			has := func(g group, system string) bool {
				return slices.ContainsFunc(g.cells, func(c Cell) bool { return c.System == system })
			}
			if !slices.ContainsFunc(groups, func(g group) bool { return g.link.Mbit > 0 && has(g, pair.ahead) && has(g, pair.behind) }) {
				t.Errorf("%s: no shaped link has %s and %s", x.id, pair.ahead, pair.behind)
			}
		}
	}
	if shaped == 0 {
		t.Error("no claim is judged at shaped links")
	}
}

// title names a table of the test above.
func (g *group) title() string {
	words := []string{g.task.Name, g.batch.String(), Batch(g.work).String()}
	if g.link.Mbit > 0 {
		words = append(words, Batch(g.link.Mbit).String())
	}
	return strings.Join(words, " ")
}

// TestSharedTrials: a row that several tables ask for is one cell; that of one process is the same beside 1, 3 and 5 workers, and on every
// link.
func TestSharedTrials(t *testing.T) {
	p := paperPlan(t, Sources{})
	r := &runner{plan: &p, groups: p.groups()}
	asked, locals := 0, map[string]int{}
	for _, g := range r.groups {
		asked += len(g.cells)
	}
	list := r.cells()
	for _, c := range list {
		if c.System == "local" {
			locals[c.Task]++
		}
	}
	if asked-len(list) != 3+6 { // local beside 1, 2 and 5 workers; beside 3, at three rates, in two tasks
		t.Errorf("%d cells are asked for, and %d are measured", asked, len(list))
	}
	for task, n := range locals {
		want := 3 // batch 100, 500, full
		if task == "mlp1" {
			want++ // 1,500
		}
		if n != want {
			t.Errorf("%s: %d cells of local, want %d", task, n, want)
		}
	}
}

// TestPaperTasks: of MNIST, the best that there is.
func TestPaperTasks(t *testing.T) {
	for _, x := range []struct {
		sources Sources
		want    string
		from    string
	}{
		{Sources{}, "logistic softmax mlp1 mlp2", "digits"},
		{Sources{Tenth: "tenth"}, "logistic softmax-10k mlp1-10k mlp2-10k", "tenth"},
		{Sources{MNIST: "all", Tenth: "tenth"}, "logistic softmax mlp1 mlp2", "all"},
	} {
		var names []string
		for _, task := range PaperTasks(Tasks(x.sources)) {
			names = append(names, task.Name)
			if task.Name != "logistic" && task.Job.Data.Source != x.from {
				t.Errorf("%+v: %s is on %s", x.sources, task.Name, task.Job.Data.Source)
			}
		}
		if got := strings.Join(names, " "); got != x.want {
			t.Errorf("%+v: %s, want %s", x.sources, got, x.want)
		}
	}
}

// TestCrowded: a row is crowded that has more busy threads than there are cores: those that it is bound to; where the system binds no process,
// those of the machine; and no more than the control group has.
func TestCrowded(t *testing.T) {
	p := small(t, inMemory(), digits(), "local-cores", "allreduce")
	p.Links = []Link{{}}
	there := runtime.NumCPU()
	for _, c := range []struct {
		cores                   []int
		host                    string
		workers, want, threads  int
		allCores, allTheWorkers bool // crowded
	}{
		{[]int{0, 1, 2, 3}, "{}", 4, 4, 4, false, false},
		{[]int{0, 1, 2, 3}, "{}", 5, 4, 4, false, true},
		{nil, "{}", there + 1, there, there, false, true},
		{[]int{0, 1, 2, 3}, `{"cpu_limit":2.5}`, 2, 2, 4, true, false},
		{[]int{0, 1, 2, 3}, `{"cpu_limit":2.5}`, 3, 2, 4, true, true},
		{[]int{0}, `{"cpu_limit":0.5}`, 1, 1, 1, false, false},
	} {
		p.Cores, p.Workers = c.cores, []int{c.workers}
		r := newReport(&p, &record{Host: []byte(c.host)})
		rows := r.table(&p.groups()[0], &p).Rows
		if r.Cores != c.want || rows[0].Threads != c.threads || rows[0].Crowded != c.allCores || rows[1].Crowded != c.allTheWorkers {
			t.Errorf("%v, host %s, %d workers: %d cores, %d threads, crowded %v and %v; want %+v", c.cores, c.host, c.workers, r.Cores, rows[0].Threads, rows[0].Crowded, rows[1].Crowded, c)
		}
	}
}
