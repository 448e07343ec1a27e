package compare

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestThreatOfLoosePeers: another system's row whose workers go on while the clock stands still is named once; where there is none, nothing is
// said.
func TestThreatOfLoosePeers(t *testing.T) {
	rows := func(good int) []*Row {
		return []*Row{
			{System: "server-asp", Mode: Async, Workers: 3, Good: good},
			{System: "mxnet-sync", Peer: true, Mode: Sync, Workers: 3, Good: good},
			{System: "mxnet-async", Peer: true, Mode: Async, Workers: 3, Good: good},
			{System: "tensorflow-async", Peer: true, Mode: Async, Workers: 1, Good: good},
		}
	}
	for good, want := range map[int]int{0: 0, 7: 1} {
		r := &Report{Tables: []*Table{{Rows: rows(good)}, {Rows: rows(good)}}}
		r.threats()
		about := slices.DeleteFunc(slices.Clone(r.Threats), func(s string) bool { return !strings.Contains(s, "worker 0 and the clock stand still") })
		if len(about) != want || want > 0 && !strings.Contains(about[0], "for the losses of mxnet-async, worker 0") {
			t.Errorf("%d good trials: %q", good, about)
		}
	}
}

// TestThreatOfAnEasyTarget: of a row that meets the target at the first place where it is looked for, it is not known how soon it did.
func TestThreatOfAnEasyTarget(t *testing.T) {
	table := &Table{Task: "job", Own: true, Workers: 2, Batch: 100, Rows: []*Row{{System: "local"}, {System: "allreduce"}, {System: "server-asp"}}}
	for repeat := 1; repeat <= 3; repeat++ {
		way := []Point{{Update: 10, Seconds: 1}, {Update: 20, Seconds: 2}}
		table.add(0, repeat, Result{Reached: true, SecondsToTarget: 1, Curve: way})
		table.add(1, repeat, Result{Reached: true, SecondsToTarget: float64(1 + repeat%2), Curve: way}) // once later
		table.add(2, repeat, Result{Curve: way})
	}
	r := &Report{Tables: []*Table{table}}
	r.threats()
	const want = "In job, 2 workers, batch 100 the target is met where it is first looked for, by local: "
	if n := strings.Count(strings.Join(r.Threats, "\n"), want); n != 1 {
		t.Errorf("said %d times among %q", n, r.Threats)
	}
}

// TestThreatOfNoDefaults: of a system that has a row with untouched defaults, the threats say where that was not measured, and of one that has
// none that there is none.
func TestThreatOfNoDefaults(t *testing.T) {
	r := &Report{Tables: []*Table{{}}}
	for _, name := range []string{"mxnet-sync", "mxnet-async", "horovod", "horovod-default", "tensorflow-mirrored", "pmls-ssp3-clock10"} {
		r.Tables[0].Rows = append(r.Tables[0].Rows, &Row{System: name, Peer: true, Trials: []Repeat{{Repeat: 1}}})
	}
	r.threats()
	const want = "Untouched defaults were not measured: mxnet-sync, pmls-ssp3-clock10. There is no row with untouched defaults of mxnet-async, or of tensorflow-mirrored: what its settings do is not shown. What was tried"
	if n := strings.Count(strings.Join(r.Threats, "\n"), want); n != 1 {
		t.Errorf("said %d times among %q", n, r.Threats)
	}
}

// TestFlaggedRepeats: a row of which some repeats are doubtful says of how many, in each table that has its speed; other rows say nothing, and
// neither do repeats that failed, which are in no figure.
func TestFlaggedRepeats(t *testing.T) {
	table := &Table{Task: "mlp1", Workers: 3, Batch: 500, Rows: []*Row{{System: "mxnet-sync", Mode: Sync}, {System: "allreduce", Mode: Sync}}}
	for repeat := 1; repeat <= 7; repeat++ {
		result := Result{SamplesPerSec: 10, SecondsToTarget: 1, Reached: true, Curve: []Point{{Update: 1, Loss: 0.5, Value: 0.9}}}
		table.add(1, repeat, result)
		switch {
		case repeat < 3:
			result.Flags = []string{"other programs took 20 % of the cores", "the hypervisor took 3.1 % of the time"}
		case repeat == 3:
			result = Result{Error: "it hangs", Flags: []string{"other programs took 20 % of the cores"}}
		}
		table.add(0, repeat, result)
	}
	r := &Report{Repeats: 7, Tables: []*Table{table}}
	for name, text := range map[string]string{"speed": fmt.Sprint(r.speed()), "the paper's": fmt.Sprint(r.paperTables())} {
		if n := strings.Count(text, "flagged, as the threats say"); n != 1 || !strings.Contains(text, "flagged, as the threats say: 2 of 6 repeats") {
			t.Errorf("%s: said %d times in %s", name, n, text)
		}
	}
}

// TestDoubtsReadBack: a report that is read back names the trials of each row as the one that was written does, in all tables of the full run and of
// other combinations; so it says the same of how many are flagged, also where tables share a row.
func TestDoubtsReadBack(t *testing.T) {
	all := Strategies(Host{})
	peers, err := Peers(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tasks := PaperTasks(Tasks(Sources{MNIST: "mnist"}))
	ours := digits()
	ours.Own, ours.Job.Batch = true, 60
	for _, p := range []Plan{
		{Tasks: tasks, Systems: append(all, peers...), Links: []Link{{Apart: true}}, Full: true},
		{Tasks: tasks, Systems: append(all, peers...), Workers: []int{1, 3}, Links: []Link{{Apart: true}, {Mbit: 750, Apart: true}}},
		{Tasks: []Task{ours}, Systems: all, Workers: []int{1, 2}},
	} {
		p.defaults()
		r := newReport(&p, &record{})
		for _, g := range p.groups() {
			table := r.table(&g, &p)
			for i, x := range table.Rows {
				flags := []string{"other programs took 20 % of the cores"}
				if i == 1 {
					flags = append(flags, "the hypervisor took 3.1 % of the time")
				}
				x.Trials = []Repeat{{Repeat: 1, Result: Result{Flags: flags}}}
				if got := table.cellOf(x); got != x.cell {
					t.Errorf("%s: the trials of %s are read back as those of %s", table.title(), x.cell, got)
				}
				x.count(table)
			}
		}
		dir := t.TempDir()
		if err := writeJSON(filepath.Join(dir, reportFile), r); err != nil {
			t.Fatal(err)
		}
		again, err := ReadReport(dir)
		if err != nil {
			t.Fatal(err)
		}
		var then, now strings.Builder
		if err := errors.Join(r.Text(&then), again.Text(&now)); err != nil {
			t.Fatal(err)
		}
		if then.String() != now.String() || !strings.Contains(then.String(), "trials are flagged: the hypervisor") {
			t.Errorf("written:\n%s\nread back:\n%s", then.String(), now.String())
		}
	}
}
