package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/cluster/fleet"
)

// small is a job of a second at most.
const small = "softmax --data digits --rows 1200 --epochs 3 --rate 0.01"

// TestWorkers: threads, processes and shipped rows give the same model, and a run directory that knows all workers.
func TestWorkers(t *testing.T) {
	dir := t.TempDir()
	var first []float32
	hows := []string{"", "--processes", "--processes --ship-data"}
	if testing.Short() {
		hows = []string{"", "--processes --ship-data"} // the last starts the same processes; TestCluster's workers read the data themselves
	}
	for _, how := range hows {
		name := "run" + strings.ReplaceAll(how, " ", "")
		got := runIn(t, dir, strings.Fields("train "+small+" --topology average --workers 3 --name "+name+" "+how)...)
		if got.code != Done || !strings.Contains(got.out, "average of 3 workers") {
			t.Fatalf("%s: exits with %d: %s%s", how, got.code, got.out, got.err)
		}
		runDir := filepath.Join(dir, "runs", name)
		p := params(t, runDir)
		if p.Job.Batch != 300 {
			t.Errorf("%s: the job's batch is %d, want 3 × 100", how, p.Job.Batch)
		}
		if first == nil {
			first = p.Params.Flat
		}
		if !slices.Equal(first, p.Params.Flat) {
			t.Errorf("%s: another model than with threads", how)
		}
		for _, file := range []string{"steps/worker-0.bin", "steps/worker-2.bin", "series/worker-1.bin", "series/driver-0.bin"} {
			if _, err := os.Stat(filepath.Join(runDir, file)); err != nil {
				t.Errorf("%s: %v", how, err)
			}
		}
		shown := runIn(t, dir, "runs", "show", name)
		if !strings.Contains(shown.out, "strategy            average") || !strings.Contains(shown.out, "samples             3600") {
			t.Errorf("%s: runs show: %s%s", how, shown.out, shown.err)
		}
	}
	got := runIn(t, dir, "rerun", "run")
	if got.code != Done || !strings.Contains(got.out, "the same bits") {
		t.Errorf("rerun exits with %d: %s%s", got.code, got.out, got.err)
	}
	if testing.Short() {
		return // one worker in a process of its own is the same path again
	}
	got = runIn(t, dir, strings.Fields("train "+small+" --processes --name alone")...)
	want := runIn(t, dir, strings.Fields("train "+small+" --name here")...)
	if got.code != Done || want.code != Done || !slices.Equal(params(t, filepath.Join(dir, "runs", "alone")).Params.Flat, params(t, filepath.Join(dir, "runs", "here")).Params.Flat) {
		t.Errorf("one worker in a process of its own trains another model: %s%s", got.err, want.err)
	}
}

// TestSharedUpdates: several workers share every update unless told otherwise; in exact mode they have the bits of one, and each goes on
// where the other stopped.
func TestSharedUpdates(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: exact mode is slow under the race detector; the tests of train/allreduce run it there on less data")
	}
	dir := t.TempDir()
	exact := small + " --exact --shards 6"
	flat := func(name string) []float32 { return params(t, filepath.Join(dir, "runs", name)).Params.Flat }
	ok := func(args string) outcome {
		t.Helper()
		got := runIn(t, dir, strings.Fields(args)...)
		if got.code != Done {
			t.Fatalf("%s: exits with %d: %s%s", args, got.code, got.out, got.err)
		}
		return got
	}
	ok("train " + exact + " --batch 300 --name one")
	if got := ok("train " + exact + " --workers 3 --name three"); !strings.Contains(got.out, "allreduce of 3 workers") {
		t.Errorf("%s", got.out)
	}
	ok("train " + exact + " --workers 3 --processes --name apart")
	ok("train " + exact + " --workers 3 --epochs 1 --name begun")
	ok("train --resume begun --epochs 2 --name middle")
	ok("train --resume middle --epochs 3 --workers 2 --processes --name ended")
	for _, name := range []string{"three", "apart", "ended"} {
		if !slices.Equal(flat("one"), flat(name)) {
			t.Errorf("%s has another model than one worker", name)
		}
	}
	ok("train " + small + " --workers 2 --compress topk:0.05 --name small")
	ok("train " + small + " --workers 2 --accumulate 3 --name pieces")
}

// TestTemporaryFolder: TMPDIR is the user's to mend.
func TestTemporaryFolder(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	for temp, says := range map[string]string{long: "choose a shorter one (TMPDIR", long + "/none": "no such file or directory; TMPDIR says "} {
		t.Setenv("TMPDIR", temp)
		got := runIn(t, t.TempDir(), "train", "softmax", "--data", "digits", "--workers", "2", "--processes", "--topology", "server")
		if got.code != Misused || !strings.Contains(got.err, says) {
			t.Errorf("%s: exits with %d: %s", temp, got.code, got.err)
		}
	}
}

func TestWorkerRefusals(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ args, want string }{
		{"--workers 3 --topology local", "local is one worker"},
		{"--workers 2 --topology average --exact", "exact mode promises the bits of one process"},
		{"--workers 2 --exact --compress 1bit", "exact mode promises the bits of one process"},
		{"--workers 2 --compress zip", "no such codec"},
		{"--workers 2 --exact --compress auto", "and auto changes them"},
		{"--workers 2 --compress auto:none", "want the codec that may be used"},
		{"--topology server --workers 2 --compress auto:f16", "say f16"},
		{"--topology average --workers 2 --every 4", "--every is an option of allreduce, not of average"},
		{"--topology average --workers 2 --every 4 --calibrate", "--every, --calibrate are options of allreduce, not of average"},
		{"--topology average --workers 2 --every 4 --compress f16", "--compress is an option of allreduce and server, not of average"},
		{"--topology server --workers 2 --accumulate 4 --compress f16", "--accumulate is an option of allreduce, not of server"},
		{"--topology server --workers 2 --optimizer lbfgs --batch full", "lbfgs searches along a line"},
		{"--workers 2 --optimizer lbfgs --batch full --every 4", "lbfgs works on all rows at once"},
		{"--topology allredcue", `no topology is called "allredcue"; did you mean "allreduce"?`},
		{"--ship-data", "there is no other process"},
		{"--on 127.0.0.1:1", "a cluster wants its token"},
		{"--on 127.0.0.1:1 --token trivium1abc", "--token"},
		{"--workers 2 --rows 300 --metrics rmse", "rmse does not fit a model for"},
		{"--workers 2 --rows 300 --stop-metric test.mae --patience 2", "mae does not fit a model for"},
		{"--workers 2 --processes --data nowhere.csv", "nowhere.csv: there is no such file"},
		{"--topology average --rows 6 --workers 8", "6 training rows are too few for 8 workers, of whom each trains on its own: give --workers 6"},
		{"--topology average --rows 6 --workers 8 --ship-data", "6 training rows are too few for 8 workers"},
	} {
		got := runIn(t, dir, strings.Fields("train softmax "+c.args)...)
		if got.code != Misused || !strings.Contains(got.err, c.want) {
			t.Errorf("%s: exits with %d: %s, want %q", c.args, got.code, got.err, c.want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("something stays behind: %v, %v", left, err)
	}
}

func TestBenchNet(t *testing.T) {
	got := runIn(t, t.TempDir(), strings.Fields("bench net --for 3ms --sizes 4096,65536 --workers 2")...)
	if got.code != Done || !strings.Contains(got.out, "64 KiB") || !strings.Contains(got.out, "costs of a collective") {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}
}

// A tape is an output that a test reads while it is written.
type tape struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *tape) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *tape) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// await waits until w holds what is wanted.
func (w *tape) await(t *testing.T, want string) string {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute) // it ends a hang, no more
	for time.Now().Before(deadline) {
		if s := w.String(); strings.Contains(s, want) {
			return s
		}
		time.Sleep(10 * time.Millisecond) // the other is a process of real time
	}
	t.Fatalf("%q did not come: %s", want, w)
	return ""
}

// background runs a command until the test's end, or until stop.
func background(t *testing.T, dir string, args ...string) (out, errs *tape, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, errs = new(tape), new(tape)
	done := make(chan int, 1)
	go func() { done <- Run(ctx, inDir(dir, args), out, errs, Options{}) }()
	stop = sync.OnceValue(func() int {
		cancel()
		return <-done
	})
	t.Cleanup(func() { stop() })
	return out, errs, stop
}

// inDir makes the state directory of up one in dir.
func inDir(dir string, args []string) []string {
	if args[0] == "up" {
		return append(args, "--dir", filepath.Join(dir, "cluster"))
	}
	return args
}

// TestAdvertise: a coordinator may be reached by an address that is not this machine's own.
func TestAdvertise(t *testing.T) {
	up, _, down := background(t, t.TempDir(), "up", "--listen", ":0", "--advertise", "192.0.2.7", "--json") // an address for documentation
	defer down()
	if got := up.await(t, "}\n"); strings.Count(got, "192.0.2.7:") != 2 {
		t.Error(got)
	}
}

// TestBenchNetAlone: a cluster of one machine has no links, and says so.
func TestBenchNetAlone(t *testing.T) {
	dir := t.TempDir()
	var at struct{ Addr, Token string }
	up, _, down := background(t, dir, "up", "--listen", "127.0.0.1:0", "--json")
	defer down()
	if err := json.Unmarshal([]byte(up.await(t, "}\n")), &at); err != nil {
		t.Fatal(err)
	}
	node, _, leave := background(t, dir, "node", "--join", at.Addr, "--token", at.Token, "--id", "a", "--cores", "1")
	defer leave()
	node.await(t, "lent to")
	for _, c := range []struct{ flags, want string }{
		{"", "a link has two ends, and the cluster has one machine, a\n"},
		{" --json", "a link has two ends, and the cluster has one machine, a\n"},
		{" --workers 1", "a link has two ends: want 2 or more, found 1\n"},
	} {
		got := runIn(t, dir, strings.Fields("bench net --for 3ms --sizes 4096 --on "+at.Addr+" --token "+at.Token+c.flags)...)
		if got.code != Misused || got.out != "" || !strings.HasSuffix(got.err, c.want) {
			t.Errorf("%s: exits with %d: %s%s, want %q", c.flags, got.code, got.out, got.err, c.want)
		}
	}
}

// TestCluster goes the whole way: a coordinator, machines, jobs one after another, a lost machine, a coordinator that begins anew.
func TestCluster(t *testing.T) {
	dir, temp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Cleanup(func() { // all have ended by then
		if left, err := filepath.Glob(filepath.Join(temp, "trivium-*")); len(left) > 0 || err != nil {
			t.Errorf("left: %q, %v", left, err)
		}
	})
	var at struct{ Addr, Token string }
	up, upErrs, down := background(t, dir, "up", "--listen", "127.0.0.1:0", "--json")
	if err := json.Unmarshal([]byte(up.await(t, "}\n")), &at); err != nil {
		t.Fatal(err)
	}
	on := []string{"--on", at.Addr, "--token", at.Token}
	a, _, _ := background(t, dir, "node", "--join", at.Addr, "--token", at.Token, "--id", "a", "--cores", "2")
	b, _, endB := background(t, dir, "node", "--join", at.Addr, "--token", at.Token, "--id", "b", "--cores", "1")
	a.await(t, "a lends 2 cores")
	a.await(t, "lent to")
	b.await(t, "lent to")

	status := func() fleet.Status {
		t.Helper()
		got := runIn(t, dir, append([]string{"status", "--json"}, on...)...)
		var st fleet.Status
		if err := json.Unmarshal([]byte(got.out), &st); got.code != Done || err != nil {
			t.Fatalf("status exits with %d: %s%s", got.code, got.out, got.err)
		}
		return st
	}
	if st := status(); len(st.Members) != 3 {
		t.Errorf("%d members: %+v", len(st.Members), st.Members)
	}
	got := runIn(t, dir, append([]string{"status"}, on...)...)
	for _, want := range []string{"2 machines lent, 3 of 3 cores free", "coordinator", "no jobs"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("status says %s, want %q", got.out, want)
		}
	}

	got = runIn(t, dir, append(strings.Fields("train "+small+" --topology average --workers 3 --name cluster"), on...)...)
	here := runIn(t, dir, strings.Fields("train "+small+" --topology average --workers 3 --name here")...)
	if got.code != Done || here.code != Done || !strings.Contains(got.out, "job-1 is queued") {
		t.Fatalf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	if st := status(); len(st.Jobs) != 1 || st.Jobs[0].Run != "cluster" {
		t.Errorf("after one job, whose run has a name, the status has %+v", st.Jobs)
	}
	if !slices.Equal(params(t, filepath.Join(dir, "runs", "cluster")).Params.Flat, params(t, filepath.Join(dir, "runs", "here")).Params.Flat) {
		t.Error("the cluster trains another model than this process")
	}
	if r, err := findRun(filepath.Join(dir, "runs"), "cluster"); err != nil {
		t.Error(err)
	} else if said := strings.Join(r.Head.Command, " "); r.Head.Machines != 2 || !strings.HasSuffix(said, "--name cluster --on "+at.Addr+" --token TOKEN") {
		t.Errorf("its run says that it was on %d machines, not 2, by: %s", r.Head.Machines, said)
	}
	if got = runIn(t, dir, append(strings.Fields("train "+small+" --workers 3 --name cluster"), on...)...); got.code != Misused || !strings.Contains(got.err, "choose another name") {
		t.Errorf("a name that a run here has: exits with %d: %s%s", got.code, got.out, got.err)
	}
	if got = runIn(t, dir, append([]string{"logs", "job-1"}, on...)...); !strings.Contains(got.out, "average of 3 workers") {
		t.Errorf("logs: %s%s", got.out, got.err)
	}
	if got = runIn(t, dir, append([]string{"fetch", "job-1"}, on...)...); got.code != Done || !strings.Contains(got.out, filepath.Join("runs", "cluster-2")) {
		t.Errorf("fetch: exits with %d: %s%s", got.code, got.out, got.err)
	}
	if _, err := os.Stat(filepath.Join(dir, "runs", "cluster-2", "result.json")); err != nil {
		t.Error(err)
	}
	if got = runIn(t, dir, append([]string{"cancel", "job-1"}, on...)...); got.code != Done || got.out != "job-1 is done\n" {
		t.Errorf("cancel of a job that is done: exits with %d: %s%s", got.code, got.out, got.err)
	}
	if got = runIn(t, dir, append(strings.Fields("train "+small+" --topology average --workers 2 --threads 1 --ship-data --name sent"), on...)...); got.code != Done {
		t.Errorf("with shipped data: exits with %d: %s%s", got.code, got.out, got.err)
	}
	if got = runIn(t, dir, "node", "--join", at.Addr, "--token", at.Token, "--id", "a"); got.code != Misused || !strings.Contains(got.err, "lent already") {
		t.Errorf("a second machine of a name exits with %d: %s", got.code, got.err)
	}

	// Jobs that need more than there is say so, and hold up nobody. Interrupted, one that trains is left to the cluster; who wanted to know
	// rates does so no more.
	words, hint, leave := background(t, dir, append(strings.Fields("train "+small+" --workers 9"), on...)...)
	words.await(t, "job-3 is queued: 9 workers of 1 core each do not fit")
	if code := leave(); code != Interrupted || !strings.Contains(hint.String(), "logs -f job-3 --on "+at.Addr+" --token TOKEN,") || !strings.Contains(hint.String(), "fetch job-3 --on ") {
		t.Errorf("interrupted, train exits with %d: %s", code, hint)
	}
	_, words, leave = background(t, dir, append(strings.Fields("bench net --workers 9"), on...)...)
	words.await(t, "job-4 is queued: 9 machines are wanted, and 2 lent")
	if code := leave(); code != Interrupted {
		t.Errorf("interrupted, bench net exits with %d: %s", code, words)
	}
	if jobs := status().Jobs; jobs[2].State != fleet.Queued || jobs[3].State != fleet.Cancelled {
		t.Errorf("afterwards the jobs are %+v", jobs)
	}
	if got = runIn(t, dir, append(strings.Fields("bench net --for 3ms --sizes 4096"), on...)...); got.code != Done || !strings.Contains(got.out, "a to all") {
		t.Errorf("bench net: exits with %d: %s%s", got.code, got.out, got.err)
	}

	// A run of this machine goes on there as it would here.
	if got = runIn(t, dir, strings.Fields("train "+small+" --name begun")...); got.code != Done {
		t.Fatalf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	more := "train --resume begun --epochs 4 --workers 2 --threads 1 --name "
	there := runIn(t, dir, append(strings.Fields(more+"there"), on...)...)
	here = runIn(t, dir, strings.Fields(more+"here2")...)
	if there.code != Done || here.code != Done || !strings.Contains(there.out, "job-6 is") {
		t.Fatalf("exits with %d and %d: %s%s%s", there.code, here.code, there.out, there.err, here.err)
	}
	if !slices.Equal(params(t, filepath.Join(dir, "runs", "there")).Params.Flat, params(t, filepath.Join(dir, "runs", "here2")).Params.Flat) {
		t.Error("a run that goes on at a cluster becomes another model than here")
	}

	// Two long jobs: the second waits for the first, and both can be cancelled.
	long := "train mlp:20 --data digits --rows 1200 --epochs 1000000 --workers 3"
	firstOut, firstErrs, first := background(t, dir, append(strings.Fields(long+" --name long"), on...)...)
	wait := func(ok func(st fleet.Status) bool) {
		t.Helper()
		for deadline := time.Now().Add(3 * time.Minute); !ok(status()); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the status stays %+v", status())
			}
		}
	}
	job := func(st fleet.Status, id string) fleet.Job {
		for _, j := range st.Jobs {
			if j.ID == id {
				return j
			}
		}
		return fleet.Job{}
	}
	wait(func(st fleet.Status) bool { return job(st, "job-7").State == fleet.Running })
	firstOut.await(t, "evaluated epoch=3 ") // it has a run by now, and a checkpoint
	_, _, second := background(t, dir, append(strings.Fields(long+" --quiet"), on...)...)
	wait(func(st fleet.Status) bool { return strings.Contains(job(st, "job-8").Why, "waits for cores") })
	if got = runIn(t, dir, append([]string{"fetch", "job-8"}, on...)...); got.code != Misused || !strings.Contains(got.err, "job-8 has not ended yet") {
		t.Errorf("fetch of a job that waits: exits with %d: %s%s", got.code, got.out, got.err)
	}
	if got = runIn(t, dir, append([]string{"cancel", "job-8"}, on...)...); got.code != Done || !strings.Contains(got.out, "job-8 is cancelled: it had not begun") {
		t.Errorf("cancel: exits with %d: %s%s", got.code, got.out, got.err)
	}

	// The machine b goes: the job that runs there ends with it, and says so. Its run comes beside another that has got its name meanwhile.
	if err := os.MkdirAll(filepath.Join(dir, "runs", "long", "other"), 0o755); err != nil {
		t.Fatal(err)
	}
	if code := endB(); code != Done {
		t.Errorf("node exits with %d", code)
	}
	wait(func(st fleet.Status) bool { return job(st, "job-7").State == fleet.Failed })
	if text := firstErrs.await(t, "is lost"); first() != Lost {
		t.Errorf("a job that lost its machine: %s", text)
	}
	if _, err := os.Stat(filepath.Join(dir, "runs", "long-2", "run.json")); err != nil {
		t.Error(err)
	}
	goOn := "train --resume " + filepath.Join("runs", "long-2") + " --topology allreduce --workers 3 --on " + at.Addr + " --token TOKEN"
	if text := firstErrs.String(); !strings.Contains(text, goOn) {
		t.Errorf("a job that lost its machine says %s, want how it goes on: %s", text, goOn)
	}
	if got = runIn(t, dir, append([]string{"fetch", "job-7"}, on...)...); got.code != Done || !strings.Contains(got.out, "\njob-7 is failed: on b, worker ") {
		t.Errorf("fetch of a job that failed: exits with %d: %s%s", got.code, got.out, got.err)
	}
	if code := second(); code != Interrupted {
		t.Errorf("a cancelled job exits with %d", code)
	}
	wait(func(st fleet.Status) bool { return len(st.Members) == 2 })

	// A coordinator that could not write the run down has nothing to fetch.
	t.Setenv("TMPDIR", t.TempDir()) // where the model goes then
	blocked := filepath.Join(dir, "cluster", "jobs", "job-9")
	if err := errors.Join(os.MkdirAll(blocked, 0o700), os.WriteFile(filepath.Join(blocked, jobRuns), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got = runIn(t, dir, append(strings.Fields("train "+small+" --workers 2 --name nowhere"), on...)...); got.code != Failed || !strings.Contains(got.err, "job-9 is done, and left no run") {
		t.Errorf("a job without a run directory: exits with %d: %s%s", got.code, got.out, got.err)
	}

	for _, c := range []struct {
		args []string
		want string
		code int
	}{
		{[]string{"cancel", "job-109"}, "there is no job", Misused},
		{[]string{"logs", "job-109"}, "there is no job", Misused},
	} {
		if got := runIn(t, dir, append(c.args, on...)...); got.code != c.code || !strings.Contains(got.err, c.want) {
			t.Errorf("%v: exits with %d: %s", c.args, got.code, got.err)
		}
	}
	if got := runIn(t, dir, "status", "--on", "127.0.0.1", "--token", at.Token); got.code != Misused || !strings.Contains(got.err, "--on: want the coordinator as host:port") {
		t.Errorf("an address without a port: exits with %d: %s", got.code, got.err)
	}
	other := runIn(t, dir, "status", "--on", at.Addr, "--token", at.Token[:len(at.Token)-1]+"x")
	if other.code != Misused || !strings.Contains(other.err, "token") {
		t.Errorf("a mistyped token: exits with %d: %s", other.code, other.err)
	}
	if code := down(); code != Done {
		t.Errorf("up exits with %d: %s", code, upErrs)
	}
	if got := runIn(t, dir, append([]string{"status"}, on...)...); got.code != Lost {
		t.Errorf("status without a coordinator exits with %d: %s", got.code, got.err)
	}
}

// TestOutputs: what a server prints is not taken for a worker's.
func TestOutputs(t *testing.T) {
	var printed tape
	to := newSession(nil, &printed, Options{}).outputs(2)
	for i := range 4 {
		if _, err := to(i).Write([]byte("x\n")); err != nil {
			t.Fatal(err)
		}
	}
	if want := "worker 0: x\nworker 1: x\nserver 0: x\nserver 1: x\n"; printed.String() != want {
		t.Errorf("%q, want %q", printed.String(), want)
	}
}
