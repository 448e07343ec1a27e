package app

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/rundir"
	"github.com/trivium-ml/trivium/tensor"
)

// restarting is a job that a test has time to disturb.
const restarting = "train mlp:20 --data digits --rows 1200 --workers 3 --exact --checkpoint-every 10 --epochs 150"

// TestRestarts: where a worker or a server is killed, training goes on by itself, from the newest checkpoint, as often as it may: the model is
// that of a run that nothing happened to.
func TestRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: starts processes, three times")
	}
	dir := t.TempDir()
	whole := runIn(t, dir, strings.Fields(restarting+" --name whole")...)
	if whole.code != Done {
		t.Fatalf("exits with %d: %s", whole.code, whole.err)
	}
	want := params(t, filepath.Join(dir, "runs", "whole"))
	c := startCommand(t, dir, restarting+" --topology server --consistency bsp --processes --restarts 2 --name r")
	for n, k := range []int{3, 1} { // the server, and then a worker
		c.out.await(t, []string{"evaluated epoch=3 ", ", from update "}[n])
		c.kill(t, k, 4)
		c.out.await(t, fmt.Sprintf("; restart %d of 2 goes on from update ", n+1))
	}
	if code := c.wait(t); code != Done || strings.Contains(c.out.String(), "resume with:") || !strings.Contains(c.out.String(), "server 0 is lost after update ") {
		t.Errorf("the command ends with %d: %s%s", code, &c.out, &c.errs)
	}
	got := params(t, filepath.Join(dir, "runs", "r-3"))
	if got.Progress.Step != want.Progress.Step || !slices.Equal(got.Params.Flat, want.Params.Flat) {
		t.Errorf("it ended with another model, after %d updates, want %d", got.Progress.Step, want.Progress.Step)
	}
	for n, run := range []string{"r", "r-2", "r-3"} {
		r, err := findRun(filepath.Join(dir, "runs"), run)
		if err != nil {
			t.Fatal(err)
		}
		code := Lost
		if n == 2 {
			code = Done
		}
		if resumed := slices.ContainsFunc(r.Head.Notes, func(note string) bool { return strings.HasPrefix(note, resumedNote) }); resumed != (n > 0) || r.Result.ExitCode != code {
			t.Errorf("%s ended with %d and has the notes %q", run, r.Result.ExitCode, r.Head.Notes)
		}
		series, err := rundir.Open(r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		counted := uint64(0)
		for f, err := range series.Frames(observe.Source{Role: observe.Driver}) {
			if err != nil {
				t.Fatal(err)
			}
			counted = f.Counter(observe.Restarts)
		}
		if counted != uint64(n) {
			t.Errorf("%s counts %d restarts, want %d", run, counted, n)
		}
	}
}

// TestRestartsEnd: a command that has used its restarts up exits as one without. What it says to go on with is the newest checkpoint, also where
// the last of its runs was lost before it had one, and has as many restarts.
func TestRestartsEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: starts processes")
	}
	dir := t.TempDir()
	args := strings.NewReplacer("--checkpoint-every 10", "--checkpoint-every 100", "--epochs 150", "--epochs 1000000").Replace(restarting)
	c := startCommand(t, dir, args+" --processes --restarts 1 --name r --out o")
	c.out.await(t, "epoch=30 ")
	c.kill(t, 1, 3)
	c.out.await(t, ", from update ")
	c.kill(t, 1, 3) // before 100 more updates
	code, kept := c.wait(t), filepath.Join(dir, "o", "r", checkpointsDir)
	names, err := checkpoint.List(t.Context(), blob.Dir(kept))
	if err != nil || len(names) == 0 {
		t.Fatalf("checkpoints %q, %v", names, err)
	}
	want := "resume with: trivium train --resume o/r --checkpoint " + names[len(names)-1] + " --topology allreduce --workers 3 --processes --checkpoint-every 100 --restarts 1 --out o"
	if later, err := checkpoint.List(t.Context(), blob.Dir(filepath.Join(dir, "o", "r-2", checkpointsDir))); err != nil || len(later) > 0 { // this machine was slow
		want = "resume with: trivium train --resume o/r-2 --topology"
	}
	if code != Lost || !strings.Contains(c.errs.String(), want) {
		t.Errorf("the command ends with %d, want %s: %s%s", code, want, &c.out, &c.errs)
	}
}

// TestClusterRestarts: a job of a cluster goes on where its machine is lost, on another, and where its coordinator ends, at the next.
func TestClusterRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: trains for a while on three machines, one after the other")
	}
	dir := t.TempDir()
	var at struct{ Addr, Token string }
	up, _, down := background(t, dir, "up", "--listen", "127.0.0.1:0", "--json")
	if err := json.Unmarshal([]byte(up.await(t, "}\n")), &at); err != nil {
		t.Fatal(err)
	}
	on := []string{"--on", at.Addr, "--token", at.Token}
	lend := func(id string) func() int {
		t.Helper()
		said, _, end := background(t, dir, "node", "--join", at.Addr, "--token", at.Token, "--id", id, "--cores", "1")
		said.await(t, "lent to")
		return end
	}
	lend("a")
	endB := lend("b")
	args := strings.Replace(restarting, "--workers 3", "--workers 2", 1)
	if whole := runIn(t, dir, strings.Fields(args+" --name whole")...); whole.code != Done {
		t.Fatalf("exits with %d: %s", whole.code, whole.err)
	}
	out, errs, code := background(t, dir, append(strings.Fields(args+" --restarts 3 --name far"), on...)...)
	out.await(t, "evaluated epoch=3 ")
	if code := endB(); code != Done {
		t.Errorf("node exits with %d", code)
	}
	out.await(t, "job-1 waits for machines to go on: restart 1 of 3")
	lend("c")
	out.await(t, "restart 1 of 3 goes on from update ")
	out.await(t, ", from update ")
	if code := down(); code != Done {
		t.Errorf("up exits with %d", code)
	}
	errs.await(t, "logs -f job-1 --on "+at.Addr)
	if code() != Lost {
		t.Errorf("without a coordinator the command says: %s%s", out, errs)
	}
	up, _, _ = background(t, dir, "up", "--listen", at.Addr, "--json")
	up.await(t, "}\n")
	got := runIn(t, dir, append(strings.Fields("logs -f job-1"), on...)...)
	if got.code != Done || !strings.Contains(got.out, "finished ") {
		t.Errorf("logs exits with %d: %s%s", got.code, got.out, got.err)
	}
	got = runIn(t, dir, append(strings.Fields("fetch job-1"), on...)...)
	if got.code != Done || !strings.Contains(got.out, filepath.Join("runs", "far-3")) {
		t.Fatalf("fetch exits with %d: %s%s", got.code, got.out, got.err)
	}
	far, whole := params(t, filepath.Join(dir, "runs", "far-3")), params(t, filepath.Join(dir, "runs", "whole"))
	if far.Progress.Step != whole.Progress.Step || !slices.Equal(far.Params.Flat, whole.Params.Flat) {
		t.Errorf("it ended with another model, after %d updates, want %d", far.Progress.Step, whole.Progress.Step)
	}
}

// TestGoOnFrom: a run that begins again takes the checkpoint before one that is damaged, and says so; a model that cannot be resumed begins anew.
func TestGoOnFrom(t *testing.T) {
	dir := t.TempDir()
	if got := runIn(t, dir, strings.Fields("train softmax --rows 300 --epochs 2 --checkpoint-every 1 --name a")...); got.code != Done {
		t.Fatal(got.err)
	}
	kept := filepath.Join(dir, "runs", "a", checkpointsDir)
	names, err := checkpoint.List(t.Context(), blob.Dir(kept))
	if err != nil || len(names) < 2 {
		t.Fatalf("checkpoints %q, %v", names, err)
	}
	newest, before := names[len(names)-1], names[len(names)-2]
	const again = "restart 1 of 3 "
	first := &training{restarted: 1, restarts: 3}
	if got, want := first.begins(), again+"begins from the start, since there was no checkpoint yet"; got != want {
		t.Errorf("without a checkpoint it says %q, want %q", got, want)
	}
	for name, models := range map[string]nn.Models{
		newest: nn.Standard(),
		"": {"softmax": func(_ string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
			m, err := nn.Softmax("", s, cpu)
			return keeping{tabled{m}}, err
		}},
	} {
		r := training{show: newProgress(new(tape), false, false, os.Getenv), restarted: 1, restarts: 3}
		if err := r.goOnFrom(t.Context(), &session{models: models}, kept); err != nil || (r.resume != nil) != (name != "") || name != "" && r.from != filepath.Join(kept, name) {
			t.Errorf("it goes on from %q, want %q: %v", r.from, name, err)
		}
		want := again + "begins from the start, since the workers alone have the mood of each row"
		if name != "" {
			want = again + "goes on from update " + fmt.Sprint(r.resume.Progress.Step)
		}
		if got := r.begins(); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	file := filepath.Join(kept, newest, "params.safetensors")
	p, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p[len(p)-1] ^= 1
	if err := os.WriteFile(file, p, 0o600); err != nil {
		t.Fatal(err)
	}
	var out tape
	r := training{show: newProgress(&out, false, false, os.Getenv)}
	if err := r.goOnFrom(t.Context(), &session{models: nn.Standard()}, kept); err != nil || r.from != filepath.Join(kept, before) || !strings.Contains(out.String(), before+", is taken") {
		t.Errorf("with a damaged one it goes on from %q, want %q: %v: %s", r.from, before, err, &out)
	}
}
