package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCompareMistakes: each has a sentence that names it, exits with 2, and leaves nothing behind.
func TestCompareMistakes(t *testing.T) {
	dir := t.TempDir()
	job := filepath.Join(dir, "job.yaml")
	if err := os.WriteFile(job, []byte("model: softmax\nbatch: 60\ndata:\n  source: digits\n  rows: 1200\n  train: \"0:1000\"\n  test: \"1000:\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lone := filepath.Join(dir, "lone.yaml")
	write(t, dir, "lone.yaml", "model: softmax\nbatch: 1\ndata:\n  source: digits\n  rows: 120\n  train: \"0:100\"\n  test: \"100:\"\n")
	write(t, dir, "table.csv", people(90))
	write(t, dir, "table.yaml", "model: softmax\ndata: {source: "+filepath.Join(dir, "table.csv")+"}\n")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--tasks", "softmx"}, `no task is called "softmx"; did you mean "softmax"?`},
		{[]string{"--systems", "allreduc"}, `no system is called "allreduc"; did you mean "allreduce"?`},
		{[]string{"--workers", "0", "--tasks", "softmax"}, "workers: want 1 to 64, found 0"},
		{[]string{"--links", "fast"}, "want a rate such as 750mbit"},
		{[]string{"--batch", "none"}, "--batch: want a number of rows"},
		{[]string{"--data", dir}, "want MNIST's IDX files"},
		{[]string{"--repeats", "0"}, "--repeats: want 1 or more, found 0"},
		{[]string{"--seconds", "0"}, "--seconds: want more than 0, and 300 at most, found 0"},
		{[]string{"--warm-up", "NaN"}, "--warm-up: want more than 0, and 300 at most, found NaN"},
		{[]string{"--target", "test.loss <= 1"}, "goes with --file"},
		{[]string{"-f", job}, "--target: say when"},
		{[]string{"--systems", "local,all,ring"}, `no system is called "ring"; there are allreduce, allreduce-f16,`},
		{[]string{"-f", job, "--target", "accuracy > 1"}, "trivium: --target: want split.metric"},
		{[]string{"-f", job, "--target", "valid.auc >= 0.7"}, "the data has no valid split"},
		{[]string{"-f", job, "--target", "test.accuracy >= 0.7", "--data", "nosuch.csv"}, "nosuch.csv: there is no such file"},
		{[]string{"-f", filepath.Join(dir, "table.yaml"), "--target", "test.accuracy >= 0.7"}, `line 2, column "city": want a number, found "Oslo"`},
		{[]string{"-f", job, "--target", "test.accuracy >= 0.7", "--quick"}, "--quick: is of the paper's tasks"},
		{[]string{"-f", job, "--target", "test.accuracy >= 0.7", "-w", "61"}, "61 workers share an update of 60 rows"},
		{[]string{"-f", lone, "--target", "test.accuracy >= 0.7"}, "2 workers share an update of 1 row;"},
		{[]string{"-f", lone, "--target", "valid.accuracy >= 0.7", "-w", "1"}, "the data has no valid split"}, // and not that the batch is too small
		{[]string{"-f", job, "--target", "test.accuracy >= 0.7", "--out", job}, "--out: lstat " + job},
		{[]string{"-f", job, "--target", "test.accuracy >= 0.7", "--dir", job}, job + " is no folder; name another with --dir"},
		{[]string{"-f", job, "--target", "test.accuracy >= 0.7", "--systems", "mxnet-sync,local"}, "--systems: mxnet-sync trains the paper's tasks alone"},
		{[]string{"-f", job, "--target", "test.accuracy >= 0.7", "--systems", "mxnet-snyc"}, `no system is called "mxnet-snyc"; there are allreduce,`},
		{[]string{"show", dir}, "holds no comparison"},
		{[]string{"diff", dir, dir}, "holds no comparison"},
		{[]string{"peers", "install", "pytorhc"}, `no peer is called "pytorhc"; did you mean "pytorch"?`},
		{[]string{"peers", "install", "caffe"}, `no peer is called "caffe"; there are horovod,`},
	} {
		in := t.TempDir()
		got := runIn(t, in, append([]string{"compare"}, c.args...)...)
		if got.code != Misused || !strings.Contains(got.err, c.want) {
			t.Errorf("%q exits with %d: %s; want %q", c.args, got.code, got.err, c.want)
		}
		if files, err := os.ReadDir(in); err != nil || len(files) > 0 {
			t.Errorf("%q leaves %v, %v", c.args, files, err)
		}
	}
}

// TestCompareBounds: the target of a user's own job counts within its epochs and steps; of a job without either, within fifty epochs.
func TestCompareBounds(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]struct {
		epochs int
		steps  int64
	}{
		"epochs: 40\nsteps: 300\n": {40, 300}, "epochs: 0\nsteps: 300\n": {0, 300}, "epochs: 3\n": {3, 0}, "epochs: 0\n": {50, 0},
	} {
		write(t, dir, "job.yaml", "model: softmax\nbatch: 60\ndata: {source: digits, rows: 1200}\n"+text)
		v := &compareRun{File: filepath.Join(dir, "job.yaml"), Target: "train.loss <= 1"}
		task, err := v.own(newSession(io.Discard, io.Discard, Options{}), 2)
		if err != nil || task.Cap != want.epochs || task.Job.Steps != want.steps {
			t.Errorf("%q: %d epochs and %d steps, %v; want %+v", text, task.Cap, task.Job.Steps, err, want)
		}
	}
}

// TestCompareLimits: the help says between what a number must be that is refused beyond it.
func TestCompareLimits(t *testing.T) {
	dir := t.TempDir()
	help := runIn(t, dir, "compare", "run", "--help").out
	for _, c := range []struct{ flag, value, name, limits string }{
		{"--workers", "65", "workers", "1 to 64"},
		{"--repeats", "101", "repeats", "1 to 100"},
	} {
		got := runIn(t, dir, "compare", "--tasks", "softmax", c.flag, c.value)
		if want := fmt.Sprintf("%s: want %s, found %s", c.name, c.limits, c.value); got.code != Misused || !strings.Contains(got.err, want) {
			t.Errorf("%s %s exits with %d: %s; want %q", c.flag, c.value, got.code, got.err, want)
		}
		line := slices.IndexFunc(strings.Split(help, "\n"), func(line string) bool { return strings.Contains(line, c.flag) && strings.Contains(line, c.limits) })
		if line < 0 {
			t.Errorf("the help of %s does not say %q", c.flag, c.limits)
		}
	}
}

// TestCompareInterrupted: one that is interrupted before its first trial leaves nothing, and says so.
func TestCompareInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := runWith(ctx, t, dir, Options{}, "compare", "--quick", "--dir", "quick")
	if got.code != Interrupted || !strings.Contains(got.err, "before the first trial: nothing is kept, repeat the command") {
		t.Errorf("exits with %d: %s", got.code, got.err)
	}
	if _, err := os.Stat(filepath.Join(dir, "quick")); !os.IsNotExist(err) {
		t.Errorf("its folder: %v", err)
	}
}

// TestCompareEstimate: in a pipe, what takes its time before the first trial is said as it is done, and nothing is left behind.
func TestCompareEstimate(t *testing.T) {
	dir := t.TempDir()
	job := "model: softmax\nbatch: 60\nepochs: 2\ndata:\n  source: digits\n  rows: 1200\n  train: \"0:1000\"\n  valid: \"1000:\"\noptimizer:\n  name: sgd\n  rate: 0.1\n"
	if err := os.WriteFile(filepath.Join(dir, "job.yaml"), []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	got := runIn(t, dir, "compare", "-f", "job.yaml", "--target", "valid.accuracy >= 0.5", "--systems", "local,server-bsp,allreduce", "--estimate")
	want := "ask which version is here\njob: see how long local takes\n21 trials, about "
	if got.code != Done || !strings.HasPrefix(got.out, want) || strings.Count(got.out, "see how long") != 1 {
		t.Errorf("exits with %d: %s%s; want %q first", got.code, got.out, got.err, want)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 { // the job
		t.Errorf("it leaves %v, %v", left, err)
	}
	got = runIn(t, dir, "compare", "-f", "job.yaml", "--target", "valid.accuracy >= 0.5", "--systems", "local,server-bsp,allreduce", "--estimate", "--json")
	type share struct {
		Name    string
		Trials  int
		Seconds float64
	}
	var all struct {
		share
		Systems []share
	}
	if err := json.Unmarshal([]byte(got.out), &all); err != nil || got.code != Done {
		t.Fatalf("exits with %d: %s%s: %v", got.code, got.out, got.err, err)
	}
	trials, seconds := 0, 0.0
	for _, s := range all.Systems {
		trials, seconds = trials+s.Trials, seconds+s.Seconds
	}
	if all.Trials != 21 || trials != 21 || len(all.Systems) < 2 || seconds <= 0 || math.Abs(seconds-all.Seconds) > 1e-6 {
		t.Errorf("the estimate is %+v", all)
	}
}

// TestCompareOwn: a job of the user's own, end to end with real processes; its page opens, show prints the same table, and the last line
// has the command that repeats the best row.
func TestCompareOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("starts dozens of processes: left out of -short")
	}
	dir := t.TempDir()
	job := "model: softmax\nbatch: 60\nepochs: 8\ndata:\n  source: digits\n  rows: 1200\n  train: \"0:1000\"\n  valid: \"1000:\"\noptimizer:\n  name: sgd\n  rate: 0.1\n"
	if err := os.WriteFile(filepath.Join(dir, "job.yaml"), []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	got := runIn(t, dir, "compare", "-f", "job.yaml", "--target", "valid.accuracy >= 0.7", "--systems", "local,allreduce", "--repeats", "3", "--seconds", "0.1", "--warm-up", "0.05")
	if got.code != Done {
		t.Fatalf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "best: ") || !strings.Contains(last, "train -f job.yaml") {
		t.Errorf("the last line is %q", last)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "comparisons", "*", "report.html"))
	if err != nil || len(pages) != 1 {
		t.Fatalf("pages %v: %v", pages, err)
	}
	shown := runIn(t, dir, "compare", "show", filepath.Dir(pages[0]))
	if shown.code != Done || !strings.Contains(shown.out, "valid.accuracy >= 0.7") {
		t.Errorf("show exits with %d: %s", shown.code, shown.err)
	}
	for _, line := range lines {
		if strings.Contains(line, "local") && strings.Contains(line, "yes") && !strings.Contains(shown.out, line) {
			t.Errorf("show does not print %q", line)
		}
	}
	same := runIn(t, dir, "compare", "diff", filepath.Dir(pages[0]), filepath.Dir(pages[0]))
	if same.code != Done || strings.Count(same.out, "too few repeats to say (3 and 3; it takes 4 of each)") != 2 {
		t.Errorf("diff exits with %d: %s%s", same.code, same.out, same.err)
	}
	if err := os.Remove(filepath.Join(filepath.Dir(pages[0]), "report.json")); err != nil { // as where it is to have more rows
		t.Fatal(err)
	}
	if part := runIn(t, dir, "compare", "show", filepath.Dir(pages[0])); part.code != Done || !strings.Contains(part.out, "not finished: the command") {
		t.Errorf("show of what is not finished exits with %d: %s%s", part.code, part.out, part.err)
	}
}

// TestCompareTyped: the command that a comparison records is the one that goes on with it.
func TestCompareTyped(t *testing.T) {
	v := &compareRun{Quick: true, Workers: []int{2, 3}, Seconds: new(0.5), WarmUp: new(2.0), Faults: new(true), Python: "py", Peers: "p", Out: "o", Dir: "d"}
	want := "compare --quick --workers 2,3 --seconds 0.5 --warm-up 2 --faults --python py --peers p --out o --dir d"
	if got := strings.Join(v.typed(), " "); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := strings.Join((&compareRun{Out: "comparisons"}).typed(), " "); got != "compare" {
		t.Errorf("of no flags: %s", got)
	}
	if got := strings.Join((&compareRun{Faults: new(false), Out: "comparisons"}).typed(), " "); got != "compare --no-faults" {
		t.Errorf("without faults: %s", got)
	}
}

// TestCompareFaults: what is said of faults holds for the full run and for others.
func TestCompareFaults(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, faults := range []bool{false, true} {
		for _, flags := range []compareRun{{Faults: &faults}, {Faults: &faults, Workers: []int{4}}} {
			p, err := flags.plan(newSession(os.Stdout, os.Stderr, Options{}))
			if err != nil {
				t.Fatal(err)
			}
			if p.Faults != faults {
				t.Errorf("%q: faults %v", flags.typed(), p.Faults)
			}
		}
	}
}

// TestCompareQuick: a quick look, on a machine that has no data, trains two models on generated digits under four topologies, three times for
// three seconds after one of warm-up: so that two cores take less than three minutes, in which 24 trials have 7.5 seconds each.
func TestCompareQuick(t *testing.T) {
	t.Chdir(t.TempDir())
	p, err := (&compareRun{Quick: true, Out: "comparisons"}).plan(newSession(os.Stdout, os.Stderr, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, x := range p.Tasks {
		words = append(words, x.Name+" on "+x.Job.Data.Source)
	}
	for _, x := range p.Systems {
		words = append(words, x.Name())
	}
	got := fmt.Sprintf("%s; %d × (%v + %v s), quick %v, full %v, faults %v", strings.Join(words, ", "), p.Repeats, p.WarmUp, p.Seconds, p.Quick, p.Full, p.Faults)
	if want := "softmax on digits, mlp1 on digits, local, server-bsp, server-ssp3, allreduce; 3 × (1 + 3 s), quick true, full false, faults false"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestCompareOfSome: what is named chooses a part of the full run; workers, batches and links that it does not have are no full run, as docs/compare.md
// says.
func TestCompareOfSome(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "compare.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"`--tasks`, `--systems` and `--repeats` choose less of it", "and so do `--workers`, `--batch` and `--links`", "Where it has no table of some combination of what they name"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("docs/compare.md does not say %s", want)
		}
	}
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		flags compareRun
		full  bool
		only  string
	}{
		{compareRun{}, true, ""},
		{compareRun{Tasks: []string{"softmax"}, Systems: []string{"local"}, Repeats: 3}, true, ""},
		{compareRun{Workers: []int{3}}, true, "workers 3"},
		{compareRun{Batch: []string{"500", "full"}}, true, "batch 500, full"},
		{compareRun{Links: []string{"750mbit", "none"}}, true, "links 750 Mbit/s, unshaped"},
		{compareRun{Tasks: []string{"mlp1"}, Systems: []string{"local", "allreduce"}, Workers: []int{1, 5}}, true, "workers 1, 5"},
		{compareRun{Workers: []int{4}}, false, ""},
		{compareRun{Batch: []string{"500", "200"}}, false, ""},
		{compareRun{Links: []string{"20mbit"}}, false, ""},
		{compareRun{Tasks: []string{"softmax"}, Workers: []int{2}}, false, ""},
		{compareRun{Workers: []int{3}, Quick: true}, false, ""},
	} {
		p, err := c.flags.plan(newSession(os.Stdout, os.Stderr, Options{}))
		if err != nil {
			t.Fatal(err)
		}
		if p.Full != c.full || p.Faults != c.full || p.Only.String() != c.only {
			t.Errorf("%q: full %v of %q, faults %v", c.flags.typed(), p.Full, p.Only.String(), p.Faults)
		}
		if !c.full && len(p.Workers)+len(p.Batches)+len(p.Links) == 0 {
			t.Errorf("%q: what is named is gone", c.flags.typed())
		}
	}
}
