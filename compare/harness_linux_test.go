package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkHarness is a trial that does nothing but count: %harness is what the harness takes of one core while it runs. It is to stay
// below 1.
func BenchmarkHarness(b *testing.B) {
	var sum float64
	n := 0
	for b.Loop() {
		share := 0.0
		p := small(b, inMemory(), digits(), "local")
		p.Dir = filepath.Join(b.TempDir(), "report")
		p.Systems = []System{counting{&share}}
		if _, err := Run(b.Context(), p); err != nil {
			b.Fatal(err)
		}
		sum += share
		n++
	}
	b.ReportMetric(100*sum/float64(n), "%harness")
}

// processorTimes are those of this process and of this thread.
func processorTimes() [2]float64 {
	var all unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &all) // it has no error for these
	return [2]float64{seconds(all.Utime) + seconds(all.Stime), threadTime()}
}

func threadTime() float64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u)
	return seconds(u.Utime) + seconds(u.Stime)
}

// TestSpaces: where namespaces are permitted, what two workers send each other is counted for each; a link that is shaped is slower than
// one that is not, and its rate is not exceeded; both are measured by themselves too, and the setup says at what.
func TestSpaces(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out of -short")
	}
	probe, err := newSpaces(t.Context(), Link{Apart: true}, 1)
	if err != nil {
		t.Logf("not run here: %v", err)
		return
	}
	probe.close()
	p := small(t, byProcess(), digits(), "allreduce")
	p.Workers, p.Links, p.Seconds = []int{2}, []Link{{}, {Mbit: 20, Apart: true}}, 0.5
	r := run(t, p)
	for i, table := range r.Tables {
		x := table.Rows[0]
		if x.Error != "" {
			t.Fatalf("%s: %s", table.title(), x.Error)
		}
		u := x.Trials[0].Result.PerRole[WorkerRole]
		if u.NotCounted != "" || u.Processes != 2 {
			t.Fatalf("%s: %+v", table.title(), u)
		}
		updates := float64(x.Trials[0].Result.Updates)
		if each := float64(u.Out) / updates; each < 31_400 || each > 5*31_400 { // each worker's half goes out and comes back summed
			t.Errorf("%s: %.0f bytes an update left the two workers; a sum of 31,400 is moved", table.title(), each)
		}
		rate := float64(u.Out) * 8 / x.Trials[0].Result.Seconds / 2 // of one of them, bits a second
		if i == 1 && rate > 25e6 {
			t.Errorf("%s: %.1f Mbit/s went through it", table.title(), rate/1e6)
		}
	}
	i := slices.IndexFunc(r.LinkSpeeds, func(x LinkSpeed) bool { return x.Link.Mbit == 20 })
	if len(r.LinkSpeeds) != 2 || i < 0 || r.LinkSpeeds[i].Mbit < 15 || r.LinkSpeeds[i].Mbit > 25 || !(r.LinkSpeeds[i].RoundTrip > 0) || r.LinkSpeeds[i].Sitting != 1 {
		t.Errorf("the links were measured at %+v", r.LinkSpeeds)
	}
	if setup := fmt.Sprint(r.setup()); !strings.Contains(setup, "link 20 Mbit/s") || !strings.Contains(setup, "measured ") {
		t.Errorf("the setup says %s", setup)
	}
	// Where what is not shaped is no faster than that, the machine is the bound of both, and they are not compared.
	fast := r.Tables[0].Rows[0].Trials[0].Result
	if mbit := float64(fast.PerRole[WorkerRole].Out) * 8 / fast.Seconds / 2 / 1e6; mbit < 40 {
		t.Logf("not compared here: %.1f Mbit/s went through a link that is not shaped: this machine has no time for more", mbit)
	} else if a, b := r.Tables[0].Rows[0].Rate.Median, r.Tables[1].Rows[0].Rate.Median; b >= a {
		t.Errorf("%.0f samples/s through a link of 20 Mbit/s, %.0f through one that is not shaped", b, a)
	}
}

// TestBatchEnds: a tool that does not come to its end is given up, and what is said is why.
func TestBatchEnds(t *testing.T) {
	dir := t.TempDir()
	up, down := filepath.Join(dir, "up"), filepath.Join(dir, "down")
	program := "#!/bin/sh\necho up >" + up + "\nread word <" + down + "\n"
	if err := errors.Join(unix.Mkfifo(up, 0o600), unix.Mkfifo(down, 0o600), os.WriteFile(filepath.Join(dir, "ip"), []byte(program), 0o700)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	tooLong := errors.New("no end in time")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		_, _ = os.ReadFile(up) // until it is there
		cancel(tooLong)
	}()
	if err := batch(ctx, "ip", []string{"link set lo up"}); !errors.Is(err, tooLong) {
		t.Errorf("it ends with %v", err)
	}
}

// TestCheckEnds: a Python that hangs is given up, in the check as in what is asked before it, and what is said is that.
func TestCheckEnds(t *testing.T) {
	dir := t.TempDir()
	down := filepath.Join(dir, "down")
	python := filepath.Join(dir, "python")
	program := "#!/bin/sh\nread word <" + down + "\n" // nobody ever says one
	if err := errors.Join(unix.Mkfifo(down, 0o600), os.WriteFile(python, []byte(program), 0o700)); err != nil {
		t.Fatal(err)
	}
	const soon = 20 * time.Millisecond
	if out, err := recompute(t.Context(), python, strings.NewReader("{}\n"), soon); err == nil || !strings.Contains(err.Error(), "check.py: it hangs: no loss in 20ms") {
		t.Errorf("the check ends with %q, %v", out, err)
	}
	if out, err := answer(t.Context(), soon, python, "-c", "import numpy"); err == nil {
		t.Errorf("a question ends with %q", out)
	}
	if err := os.WriteFile(python, []byte("#!/bin/sh\ncat\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := recompute(t.Context(), python, strings.NewReader("{}\n"), time.Minute); err != nil || string(out) != "{}\n" {
		t.Errorf("one that answers: %q, %v", out, err)
	}
}

// TestCheckInPart: where NumPy's answer to one of the losses is no number, or is missing, the others are not called a check.
func TestCheckInPart(t *testing.T) {
	bookkeeping(t)
	python := filepath.Join(t.TempDir(), "python")
	p := small(t, inMemory(), digits(), "local")
	p.Python = python
	for said, want := range map[string]string{
		"{\"loss\": 1}\n{\"loss\": NaN}\n": `check.py answers "{\"loss\": NaN}": invalid character`,
		"{\"loss\": 1}\n":                  python + " recomputed 1 of ",
	} {
		program := "#!/bin/sh\n[ \"$2\" = 'import numpy' ] && exit\ncat >/dev/null\ncat <<'END'\n" + said + "END\n"
		if err := os.WriteFile(python, []byte(program), 0o700); err != nil {
			t.Fatal(err)
		}
		p.Dir = filepath.Join(t.TempDir(), "report")
		if c := run(t, p).Check; c.Compared != 0 || !strings.HasPrefix(c.Why, want) {
			t.Errorf("%q: %+v, want %s", said, c, want)
		}
	}
}

// TestDetectEnds: a program that does not answer is given up, also where what it started keeps its output open, and what is said is that.
func TestDetectEnds(t *testing.T) {
	dir := t.TempDir()
	up, down := filepath.Join(dir, "up"), filepath.Join(dir, "down")
	if err := errors.Join(unix.Mkfifo(up, 0o600), unix.Mkfifo(down, 0o600)); err != nil {
		t.Fatal(err)
	}
	p := (&peerSpec{Name: "x", Program: []string{"/bin/sh", "-c", "(echo up >" + up + "; read word <" + down + ") & wait"}, dir: fstest.MapFS{}}).peer(&peerRow{Name: "x"}, dir)
	tooLong := errors.New("no answer in time")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		_, _ = os.ReadFile(up) // until what it started is there
		cancel(tooLong)
	}()
	if _, err := p.detect(ctx, "/bin/sh"); !errors.Is(err, tooLong) {
		t.Errorf("it ends with %v", err)
	}
	if err := os.WriteFile(down, nil, 0o600); err != nil { // lets it go
		t.Error(err)
	}
}

// TestStopLeavesOne: a trial comes to its end also where a process of it started one that left its group, and that keeps its output open.
func TestStopLeavesOne(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Logf("not run here: %v", err)
		return
	}
	dir := t.TempDir()
	up, down := filepath.Join(dir, "up"), filepath.Join(dir, "down")
	if err := errors.Join(unix.Mkfifo(up, 0o600), unix.Mkfifo(down, 0o600)); err != nil {
		t.Fatal(err)
	}
	x := newPeerTrial(t.Context(), time.Minute)
	words := []string{"/bin/sh", "-c", "setsid sh -c 'echo up >" + up + "; read word <" + down + "' & wait"}
	if err := x.start(WorkerRole, 0, words, dir, "", nil, []byte("{}")); err != nil {
		t.Fatal(err, x.Stop(t.Context()))
	}
	if _, err := os.ReadFile(up); err != nil { // until it is there
		t.Error(err)
	}
	x.cancel(context.Canceled) // nobody is waited for
	if err := x.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(down, nil, 0o600); err != nil { // lets it go
		t.Error(err)
	}
}

// TestStopOfWhatEnds: a trial may be stopped in the moment in which its processes end by themselves. It is for the race detector, which in
// one of so many finds what is written then and read.
func TestStopOfWhatEnds(t *testing.T) {
	for range 20 {
		x := newPeerTrial(t.Context(), time.Minute)
		x.lead = WorkerRole
		if err := x.start(WorkerRole, 0, []string{"/bin/sh", "-c", "read spec"}, t.TempDir(), "", nil, []byte("{}")); err != nil {
			t.Fatal(err, x.Stop(t.Context()))
		}
		x.wait.Go(func() { x.drive(Spec{Workers: 1}) })
		<-x.list[0].exited
		if err := x.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		for range x.events { // until they are over
		}
		if x.err == nil {
			t.Error("a worker that ended before it was told to is no failure")
		}
	}
}

// TestDetectLeavesOne: what a program says counts, also where what it started keeps its output open.
func TestDetectLeavesOne(t *testing.T) {
	dir := t.TempDir()
	down := filepath.Join(dir, "down")
	if err := unix.Mkfifo(down, 0o600); err != nil {
		t.Fatal(err)
	}
	p := (&peerSpec{Name: "x", Program: []string{"/bin/sh", "-c", "(exec 3<" + down + "; read word <&3) & " + `echo '{"x":"1"}'`}, dir: fstest.MapFS{}}).peer(&peerRow{Name: "x"}, dir)
	if facts, err := p.detect(t.Context(), "/bin/sh"); err != nil || facts["x"] != "1" {
		t.Errorf("%v: %v", facts, err)
	}
	if err := os.WriteFile(down, nil, 0o600); err != nil { // lets it go
		t.Error(err)
	}
}

// TestWithoutNamespaces: where they cannot be made, rows are measured over the loopback, the columns of the network read "not measured", the
// setup says why, and a row of a shaped link is one that says so.
func TestWithoutNamespaces(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out of -short")
	}
	t.Setenv("PATH", t.TempDir()) // without ip and tc nobody can join them
	p := small(t, byProcess(), digits(), "allreduce")
	p.Workers, p.Links = []int{2}, []Link{{}, {Mbit: 750, Apart: true}}
	r := run(t, p)
	x, shaped := r.Tables[0].Rows[0], r.Tables[1].Rows[0]
	if u := x.Use[WorkerRole]; x.Error != "" || u.NotCounted != "the processes share the machine's loopback" || x.networkWord() != "not measured" {
		t.Errorf("error %q, network %q: %+v", x.Error, x.networkWord(), u)
	}
	if want := "not measured: network namespaces are not permitted here"; !strings.HasPrefix(shaped.Error, want) || shaped.Ranked {
		t.Errorf("of a shaped link: %q; want %s", shaped.Error, want)
	}
	const why = "network: not measured, and links are not shaped: "
	if len(r.Notes) != 1 || !strings.HasPrefix(r.Notes[0], why) || !strings.Contains(fmt.Sprint(r.setup()), why) {
		t.Errorf("the setup says %q", r.Notes)
	}
}
