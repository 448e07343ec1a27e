package compare

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/trivium-ml/trivium/checkpoint"
)

// fakePeer is a peer's program, as good or as bad as its name says. All of them train nothing: they save the initial parameters, which
// for a rate of 0 is right.
// What is behind an @ is the mark of the test that started it.
func fakePeer(how string) {
	how, mark, _ := strings.Cut(how, "@")
	if how == "sleeps" {
		time.Sleep(10 * time.Minute)
		return
	}
	if how == "starts" { // what does the work, and says its number
		child := exec.Command(os.Args[0], "fake-peer", "sleeps@"+mark)
		_ = child.Start()
		fmt.Printf("{\"event\": \"ready\", \"update\": %d}\n", child.Process.Pid)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	if how == "leaves" { // starts what leaves its group, and says its own number then
		child := exec.Command("setsid", os.Args[0], "fake-peer", "left@"+mark)
		child.Stdout = os.Stdout
		_ = child.Run()
		return
	}
	if how == "left" {
		fmt.Printf("{\"event\": \"ready\", \"update\": %d}\n", os.Getpid())
		time.Sleep(10 * time.Minute)
		return
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	say := func(v any) { _ = json.NewEncoder(os.Stdout).Encode(v) }
	if len(os.Args) > 3 && os.Args[3] == "--detect" {
		say(map[string]string{"fake": "1.0"})
		return
	}
	if !in.Scan() {
		os.Exit(3)
	}
	var spec peerLine
	if err := json.Unmarshal(in.Bytes(), &spec); err != nil || spec.Version != peerProtocol {
		fmt.Fprintln(os.Stderr, "no Spec of version 1:", err)
		os.Exit(3)
	}
	fmt.Fprintln(os.Stderr, "fake peer", how, "begins")
	raw, err := os.ReadFile(spec.Init)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	if how == "lies" {
		tensors, _, _ := checkpoint.ReadSafetensors(raw)
		for i := range tensors {
			for k := range tensors[i].Float32 {
				tensors[i].Float32[k] = float32(k%7) / 10
			}
		}
		f, _ := os.Create(filepath.Join(spec.Out, "lie"))
		_ = checkpoint.WriteSafetensors(f, tensors, nil)
		f.Close()
		raw, _ = os.ReadFile(f.Name())
	}
	if how == "garbles" {
		raw = []byte("no parameters")
	}
	say(map[string]any{"event": "ready"})
	var done int64
	per := 0.001
	var kept []int64   // updates whose parameters are to be saved
	if how == "slow" { // says its clock
		per = 40
	}
	saved := per
	if how == "stands" { // says that no time went by before it saved
		saved = 0
	}
	for in.Scan() {
		var c peerCommand
		_ = json.Unmarshal(in.Bytes(), &c)
		switch c.Do {
		case "run":
			switch how {
			case "hangs":
				child := exec.Command(os.Args[0], "fake-peer", "sleeps@"+mark) // that its end must end too
				_ = child.Start()
				time.Sleep(time.Hour) // not select {}: a program in which nothing can happen any more is ended by the runtime at times
			case "binary":
				os.Stdout.Write([]byte{0, 1, 2, 0xff, 0xfe, '\n', 27, '[', 'A', '\n'})
				continue
			case "floods":
				_, _ = os.Stdout.WriteString(strings.Repeat("x", longestLine+1))
				continue
			case "crashes":
				fmt.Fprintln(os.Stderr, "out of \x1b[31mluck")
				os.Exit(7)
			case "counts":
				done-- // one update less than it was told
			}
			done += c.Updates
			if spec.Rank == 0 {
				kept = append(kept, c.Snapshots...)
			}
			say(map[string]any{"event": "update", "update": done, "seconds": per * float64(done)})
		case "save":
			for _, u := range kept {
				path := filepath.Join(spec.Out, snapshotName(u))
				_ = os.WriteFile(path, raw, 0o600)
				say(map[string]any{"event": "snapshot", "update": u, "seconds": saved * float64(u), "path": path})
			}
			say(map[string]any{"event": "saved"})
		case "reset":
			done = 0
			kept = nil
			say(map[string]any{"event": "ready"})
		case "quit":
			say(map[string]any{"event": "done"})
			return
		}
	}
}

// mark is in the command lines of fake peers that this process starts: a test that runs beside it has its own.
func mark() string { return fmt.Sprint("of-", os.Getpid(), "-") }

// fakePeers are rows of fake peers.
func fakePeers(t *testing.T, kinds ...string) []System {
	t.Helper()
	files := fstest.MapFS{}
	for _, k := range kinds {
		spec := map[string]any{
			"name": k, "title": "fake, " + k, "program": []string{os.Args[0], "fake-peer", k + "@" + mark()}, "roles": map[string]any{"worker": "workers"},
			"modes": []string{"sync"}, "rows": []map[string]any{{"name": k, "mode": "sync"}},
		}
		p, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		files[k+"/peer.json"] = &fstest.MapFile{Data: p}
	}
	specs, err := knownPeers(files)
	if err != nil {
		t.Fatal(err)
	}
	var list []System
	for _, s := range specs {
		list = append(list, s.peer(&s.Rows[0], ""))
	}
	return list
}

// TestCase11Harness: peers that hang, lie about their loss, print binary or save what is no parameters are rows that say so; the others go on, and no process is left.
func TestCase11Harness(t *testing.T) {
	task := digits()
	task.Job.Optimizer.Rate = 1e-30 // nothing is learned: the initial parameters are those of every update
	task.Cap = 1
	p := small(t, inMemory(), task)
	p.Systems = fakePeers(t, "binary", "counts", "crashes", "floods", "garbles", "good", "lies")
	p.Systems = append(p.Systems, &peer{peerSpec: &peerSpec{Name: "gone", Module: "no_such_module_anywhere"}, row: &peerRow{Name: "gone", Mode: "sync"}, env: t.TempDir()})
	rows := run(t, p).Tables[0].Rows // with the usual limit, which a busy machine keeps too
	files, err := filepath.Glob(filepath.Join(p.Dir, trialsDir, "*", "*"))
	if err != nil || len(files) < len(p.Systems) {
		t.Errorf("%d files of trials: %v", len(files), err)
	}
	for _, path := range files {
		if f, err := os.Stat(path); err != nil || f.IsDir() {
			t.Errorf("%s is left of a trial: %v", path, err)
		}
	}
	p.Systems, p.Limit, p.Dir = fakePeers(t, "hangs"), 2*time.Second, filepath.Join(t.TempDir(), "hangs")
	rows = append(rows, run(t, p).Tables[0].Rows...)
	if len(rows) != 9 {
		t.Errorf("%d rows, want 9", len(rows))
	}
	want := map[string]string{
		"binary": `prints what is no event: "`, "floods": "prints what is no event: a line of more than 1 MiB", "counts": "says that it made", "crashes": "ended before it was told to: exit status 7",
		"garbles": "its parameters after update ",
		"hangs":   "it hangs: no end after 2s", "gone": "not installed: looked for Python module no_such_module_anywhere",
	}
	for _, x := range rows {
		switch text := want[x.System]; {
		case text != "" && !strings.Contains(x.Error, text):
			t.Errorf("%s: %q; want %q", x.System, x.Error, text)
		case x.System == "lies" && !strings.HasPrefix(x.Proof, "not the same computation: "):
			t.Errorf("lies: proof %q, error %q", x.Proof, x.Error)
		case x.System == "good" && (x.Proof != proven || x.Rate.Median <= 0):
			t.Errorf("good: proof %q, error %q, %v samples/s", x.Proof, x.Error, x.Rate.Median)
		case x.Ranked:
			t.Errorf("%s is ranked", x.System)
		}
		if x.System == "crashes" && (len(x.Trials) == 0 || !strings.Contains(strings.Join(x.Trials[0].Result.Last, "\n"), "out of .[31mluck")) {
			t.Errorf("the last lines of crashes are %+v", x.Trials)
		}
	}
	// What was killed is gone once the kernel has come round to it.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out, err := exec.Command("ps", "-eo", "pid,args").Output()
		if err != nil {
			t.Logf("not run here: processes cannot be listed: %v", err)
			return
		}
		if !strings.Contains(string(out), mark()) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("processes are left:\n%s", out)
		}
	}
}

// counting is a system whose trial does nothing but count, for two seconds.
type counting struct{ share *float64 }

func (counting) Name() string                          { return "counting" }
func (counting) About() About                          { return About{Title: "counts", Mode: Async} }
func (counting) Detect(context.Context) (Facts, error) { return Facts{}, nil }

func (c counting) Start(_ context.Context, s Spec) (Trial, error) {
	return &countingTrial{share: c.share}, nil
}

// A countingTrial measures what the process does beside the thread that counts: that is the harness.
type countingTrial struct{ share *float64 }

func (t *countingTrial) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		yield(Event{Kind: Ready}, nil)
		yield(Event{Kind: Begin}, nil)
		began, last := time.Now(), time.Now()
		before := processorTimes()
		var counted int64
		for time.Since(began) < 2*time.Second {
			for range 1000 {
				counted++
			}
			if time.Since(last) > 100*time.Millisecond { // as often as our workers say how far they are
				last = time.Now()
				spent := threadTime()
				yield(Event{Kind: Updated, Update: counted, Samples: counted, Seconds: time.Since(began).Seconds()}, nil)
				*t.share += threadTime() - spent // what the harness does with it
			}
		}
		after := processorTimes()
		*t.share += (after[0] - before[0]) - (after[1] - before[1]) // what other threads did: the sampler
		*t.share /= time.Since(began).Seconds()
		yield(Event{Kind: End}, nil)
		yield(Event{Kind: Finished, Update: counted, Samples: counted, Seconds: time.Since(began).Seconds()}, nil)
	}
}

func (*countingTrial) Processes() []Process { return []Process{{Role: WorkerRole, PID: os.Getpid()}} }

func (*countingTrial) Stop(context.Context) error { return nil }
