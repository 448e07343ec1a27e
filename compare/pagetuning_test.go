package compare

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/observe/report"
)

// TestTuning: every setting that was tried of a system is in the setup of a page that has a trial of it, and of no other page.
func TestTuning(t *testing.T) {
	r := &Report{Tables: []*Table{{Task: "mlp1", Workers: 2, Batch: 100, Rows: []*Row{
		{System: "mxnet-async", Peer: true, Trials: []Repeat{{Repeat: 1}}}, {System: "spark", Peer: true, Error: "not installed"},
	}}}}
	said := fmt.Sprint(r.setup())
	for want, there := range map[string]bool{"MXNET_CPU_WORKER_NTHREADS=1": true, "spark.locality.wait": false} {
		if strings.Contains(said, want) != there {
			t.Errorf("the setup says %s: %v, want %v", want, !there, there)
		}
	}
	names, err := fs.Glob(peerFiles, "peers/*/TUNING.md")
	if err != nil || len(names) == 0 {
		t.Fatalf("%q: %v", names, err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(peerFiles, name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "../") {
			t.Errorf("%s names a file that a page has not", name)
		}
		if !strings.Contains(string(text), "harness costs") {
			t.Errorf("%s does not say what the harness costs", name)
		}
		want := 0 // lines of settings: all but heads and the rules below them
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "| setting") && !strings.HasPrefix(line, "|---") {
				want++
			}
		}
		if got := len(tuningOf(string(text))[0].(report.Table).Rows); got != want || want == 0 {
			t.Errorf("%s: %d settings are shown of %d", name, got, want)
		}
	}
}

// TestMendOfFailed: a trial that failed says how it is measured anew: the same command takes it for done.
func TestMendOfFailed(t *testing.T) {
	bookkeeping(t)
	task := digits()
	task.Job.Optimizer.Rate, task.Cap = 1e-30, 1
	p := small(t, inMemory(), task)
	p.Systems = fakePeers(t, "crashes")
	r := run(t, p)
	folder := trialsDir + "/" + Cell{Task: task.Name, Batch: 20, Workers: 3, System: "crashes"}.ID() + "-r1"
	if said := fmt.Sprint(r.missing()); !strings.Contains(said, "remove its folder") || !strings.Contains(said, folder) {
		t.Fatalf("it does not name %s: %s", folder, said)
	}
	folder = filepath.Join(p.Dir, filepath.FromSlash(folder))
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	run(t, p)
	if _, err := os.Stat(folder); err != nil {
		t.Errorf("it was not measured anew: %v", err)
	}
}
