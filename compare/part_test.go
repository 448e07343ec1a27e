package compare

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// chosen is the plan of a user who names that: of the paper's tasks and all rows, or of those that are named.
func chosen(t *testing.T, part Part, tasks, systems []string) Plan {
	t.Helper()
	p := paperPlan(t, Sources{})
	p.Full, p.Workers, p.Batches, p.Links = false, part.Workers, part.Batches, part.Links
	if len(tasks) > 0 {
		p.Tasks = slices.DeleteFunc(p.Tasks, func(x Task) bool { return !slices.Contains(tasks, x.Name) })
	}
	if len(systems) > 0 {
		p.Systems = slices.DeleteFunc(p.Systems, func(x System) bool { return !slices.Contains(systems, x.Name()) })
	}
	if err := p.Choose(len(tasks) > 0, len(systems) > 0); err != nil {
		t.Fatal(err)
	}
	p.defaults()
	p.Dir = t.TempDir()
	return p
}

// cellsOf are the cells of each table of a plan whose processes have networks of their own.
func cellsOf(p Plan) map[string]string {
	for i, l := range p.Links {
		p.Links[i].Apart = l.Apart || l.Mbit == 0
	}
	tables := map[string]string{}
	for _, g := range p.groups() {
		var list []string
		for _, c := range g.cells {
			list = append(list, fmt.Sprint(c.ID(), " ", c.Link.Apart))
		}
		slices.Sort(list)
		tables[g.title()] = listed(list)
	}
	return tables
}

// TestPartOfFullRun: workers, batches and links that are named choose tables of the full run, which are as they are there.
func TestPartOfFullRun(t *testing.T) {
	full := cellsOf(chosen(t, Part{}, nil, nil))
	for _, c := range []struct {
		part Part
		want func(task, batch, workers, mbit string) bool
		some string // that is among them
	}{
		{Part{}, func(task, batch, workers, mbit string) bool { return true }, "mlp1 1500 1"},
		{Part{Workers: []int{3}}, func(task, batch, workers, mbit string) bool { return workers == "3" }, "logistic full 3"},
		{Part{Workers: []int{2, 5}}, func(task, batch, workers, mbit string) bool { return workers == "2" || workers == "5" }, "mlp1 750 2"},
		{Part{Batches: []Batch{500, -1}}, func(task, batch, workers, mbit string) bool { return batch == "500" || batch == "full" }, "mlp2 500 3"},
		{Part{Links: []Link{{Mbit: 750, Apart: true}}}, func(task, batch, workers, mbit string) bool { return mbit == "750" }, "logistic 100 3 750"},
		{Part{Links: []Link{{}}}, func(task, batch, workers, mbit string) bool { return mbit == "" }, "softmax 100 3"},
		{Part{Workers: []int{3}, Batches: []Batch{100, 500}, Links: []Link{{}}}, func(task, batch, workers, mbit string) bool {
			return workers == "3" && (batch == "100" || batch == "500") && mbit == ""
		}, "mlp1 500 3"},
	} {
		p := chosen(t, c.part, nil, nil)
		if err := p.validate(); err != nil || !p.Full { // also before it is known that namespaces are permitted
			t.Errorf("%s: full %v, %v", c.part.String(), p.Full, err)
		}
		got := cellsOf(p)
		for name, cells := range full {
			words := append(strings.Fields(name), "")
			switch there, ok := got[name]; {
			case ok != c.want(words[0], words[1], words[2], words[3]):
				t.Errorf("%s: that %s is there is %v", c.part.String(), name, ok)
			case ok && there != cells:
				t.Errorf("%s: %s has %s, and in the full run %s", c.part.String(), name, there, cells)
			}
			delete(got, name)
		}
		if len(got) > 0 {
			t.Errorf("%s: no tables of the full run are %v", c.part.String(), got)
		}
		if _, ok := cellsOf(p)[c.some]; !ok {
			t.Errorf("%s: %s is not there", c.part.String(), c.some)
		}
	}
}

// TestNoPartOfFullRun: what the full run does not have is measured at all combinations, and nothing that is named is left out.
func TestNoPartOfFullRun(t *testing.T) {
	shaped := []Link{{Mbit: 750, Apart: true}}
	for _, c := range []struct {
		part           Part
		tasks, systems []string
		want           string // the tables; empty: it is a part
	}{
		{Part{Workers: []int{4}}, []string{"mlp1"}, nil, "mlp1 100 4"},
		{Part{Workers: []int{1, 3}, Batches: []Batch{500}}, []string{"mlp1"}, nil, "mlp1 500 1, mlp1 500 3"},
		{Part{Workers: []int{5}, Links: shaped}, []string{"mlp2"}, nil, "mlp2 100 5 750"},
		{Part{Links: shaped}, []string{"softmax", "mlp2"}, nil, "mlp2 100 2 750, softmax 100 2 750"},
		{Part{Links: shaped}, []string{"logistic", "mlp2"}, nil, ""},
		{Part{Workers: []int{3}, Batches: []Batch{500}}, []string{"mlp1"}, []string{"local", "server-ssp5"}, "mlp1 500 3"},
		{Part{Workers: []int{3}, Batches: []Batch{100}}, []string{"mlp1"}, []string{"local", "server-ssp5"}, ""},
		{Part{Workers: []int{2}}, []string{"mlp1"}, []string{"local", "server-asp"}, "mlp1 100 2"},
		{Part{Workers: []int{3}, Batches: []Batch{100, 500}}, []string{"logistic", "mlp2"}, []string{"local", "server-bsp", "allreduce"}, ""},
		{Part{Workers: []int{3}}, []string{"softmax", "mlp1"}, []string{"local", "server-ssp5"}, "mlp1 100 3, softmax 100 3"},
		{Part{Batches: []Batch{300}}, []string{"softmax", "mlp1"}, nil, "mlp1 300 2, softmax 300 2"},
		{Part{Batches: []Batch{1500}}, nil, nil, "logistic 1500 2, mlp1 1500 2, mlp2 1500 2, softmax 1500 2"},
		{Part{Workers: []int{5}, Batches: []Batch{300}}, []string{"mlp1"}, nil, ""},
		// A row that is for logistic regression alone is missed in no table of another task.
		{Part{Workers: []int{3}, Batches: []Batch{100}}, []string{"logistic", "mlp2"}, []string{"local", "pmls-ssp3-clock10"}, ""},
		// What takes the full batch alone is missed at no other.
		{Part{Batches: []Batch{100, -1}}, []string{"logistic"}, []string{"local", "spark-mllib"}, ""},
	} {
		p := chosen(t, c.part, c.tasks, c.systems)
		name := fmt.Sprint(c.part.String(), " of ", c.tasks, c.systems)
		if p.Full != (c.want == "") {
			t.Errorf("%s: full %v", name, p.Full)
			continue
		}
		if p.Full {
			continue
		}
		var got []string
		for _, g := range p.groups() {
			got = append(got, g.title())
			for _, s := range c.systems {
				if !slices.ContainsFunc(g.cells, func(x Cell) bool { return x.System == s }) {
					t.Errorf("%s: %s lacks %s", name, g.title(), s)
				}
			}
		}
		if slices.Sort(got); listed(got) != c.want {
			t.Errorf("%s: %s, want %s", name, listed(got), c.want)
		}
	}
	p := chosen(t, Part{Workers: []int{3, 3}}, nil, nil)
	if err := p.validate(); err == nil || !strings.Contains(err.Error(), "workers 3 is named twice") {
		t.Errorf("named twice: %v", err)
	}
}

// TestDirTakesMoreSystems: systems that are added to a comparison do not make another of it: a part of the full run stays one, and says of which
// system it has no table; all combinations stay that.
func TestDirTakesMoreSystems(t *testing.T) {
	part := Part{Workers: []int{2}}
	again := func(old Plan, systems ...string) (Plan, error) {
		r := old.record()
		if err := errors.Join(os.MkdirAll(old.Dir, 0o700), writeJSON(filepath.Join(old.Dir, planFile), &r)); err != nil {
			t.Fatal(err)
		}
		p := paperPlan(t, Sources{})
		p.Full, p.Workers, p.Batches, p.Links, p.Dir = false, part.Workers, nil, nil, old.Dir
		p.Tasks = slices.DeleteFunc(p.Tasks, func(x Task) bool { return x.Name != "mlp1" })
		p.Systems = slices.DeleteFunc(p.Systems, func(x System) bool { return !slices.Contains(systems, x.Name()) })
		err := p.Choose(true, true)
		return p, err
	}
	whole := chosen(t, part, []string{"mlp1"}, []string{"local", "allreduce"})
	if p, err := again(whole, "local", "allreduce", "server-bsp"); err != nil || !p.Full || p.Only.String() != "workers 2" {
		t.Errorf("a row that is there: full %v, %v", p.Full, err)
	}
	if _, err := again(whole, "local", "allreduce", "server-asp"); err == nil || !strings.Contains(err.Error(), "no server-asp on mlp1, of workers 2: name another directory") {
		t.Errorf("a row that is not there: %v", err)
	}
	combined := chosen(t, part, []string{"mlp1"}, []string{"local", "server-asp"})
	if p, err := again(combined, "local"); err != nil || p.Full || combined.Full {
		t.Errorf("all combinations, without their reason: full %v, %v", p.Full, err)
	}
}

// TestTasksWithoutTable: a part of the full run says which tasks it has no table of.
func TestTasksWithoutTable(t *testing.T) {
	p := chosen(t, Part{Links: []Link{{Mbit: 750, Apart: true}}}, nil, nil)
	if got := p.untouched(p.groups()); !strings.Contains(got, "no table of softmax, mlp1 with links 750 Mbit/s") {
		t.Errorf("says %q", got)
	}
	p = chosen(t, Part{Workers: []int{3}}, nil, nil)
	if got := p.untouched(p.groups()); got != "" {
		t.Errorf("of all tasks it says %q", got)
	}
}

// TestPartIsKept: a part of the full run is not mixed with another, and is shown with its own tables.
func TestPartIsKept(t *testing.T) {
	p := chosen(t, Part{Workers: []int{2, 5}}, nil, nil)
	mine := p.record()
	whole := chosen(t, Part{}, nil, nil)
	other := whole.record()
	if why := listed(mine.differs(&other)); !strings.Contains(why, "its cells differ (the full run's then, the full run's of workers 2, 5 now)") {
		t.Errorf("it differs from the full run in %q", why)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(p.Dir, trialsDir), 0o700), writeJSON(filepath.Join(p.Dir, planFile), &mine)); err != nil {
		t.Fatal(err)
	}
	r, err := Rebuild(p.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, table := range r.Tables {
		got = append(got, fmt.Sprint(table.Task, " ", table.Batch, " ", table.Workers))
	}
	if slices.Sort(got); listed(got) != "mlp1 100 2, mlp1 100 5, mlp1 300 5, mlp1 750 2" {
		t.Errorf("its tables are %s", listed(got))
	}
}
