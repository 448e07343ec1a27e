package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// The test binary is its own child: see role.
func TestMain(m *testing.M) {
	child, ok, err := Enter(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
	if ok {
		os.Exit(role(child))
	}
	goleak.VerifyTestMain(m)
}

// role is what children do, in processes and in goroutines.
func role(c Child) int {
	switch c.Args[0] {
	case "echo": // its configuration and arguments
		fmt.Fprintf(c.Stdout, "%s %q %s\n", c.Name, c.Args[1:], c.Config)
		return 0
	case "fail":
		for i := range 100 {
			fmt.Fprintf(c.Stderr, "line %d\n", i)
		}
		fmt.Fprint(c.Stderr, "the last words")
		return 7
	case "wait": // for the end of the parent, or a signal
		fmt.Fprintln(c.Stdout, "ready")
		<-c.Stop
		fmt.Fprintln(c.Stdout, "asked to end, or without a parent")
		time.Sleep(time.Hour)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Fprintln(c.Stdout, "ready")
		select {}
	case "cores":
		fmt.Fprintf(c.Stdout, "%d\n", runtime.NumCPU())
		return 0
	case "leave": // something behind that holds its stderr open
		cmd := exec.Command("sleep", "60")
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return 1
		}
		fmt.Fprintln(c.Stderr, "left", cmd.Process.Pid)
		return 3
	case "family": // starts as many children of the rest of its arguments, and prints their processes
		l := NewChildren()
		l.noDeathSignal = string(c.Config) == "pipe only"
		for i := range 2 {
			p, err := l.Start(context.Background(), Spec{
				Name: fmt.Sprintf("%s.%d", c.Name, i), Args: c.Args[1:], Config: c.Config, Stdout: os.Stdout, Stderr: os.Stderr,
			})
			if err != nil {
				fmt.Fprintln(c.Stderr, err)
				return 1
			}
			fmt.Fprintf(c.Stdout, "pid %d\n", p.PID())
		}
		fmt.Fprintln(c.Stdout, "family complete")
		time.Sleep(time.Hour)
	case "replaced": // removes the file of its program, and starts itself again
		if err := os.Remove(c.Args[1]); err != nil {
			return 1
		}
		if err := os.WriteFile(c.Args[1], []byte("#!/bin/sh\necho another program\n"), 0o755); err != nil {
			return 1
		}
		l := NewChildren()
		p, err := l.Start(context.Background(), Spec{Name: "again", Args: []string{"echo"}, Config: []byte("same"), Stdout: os.Stdout})
		if err != nil {
			fmt.Fprintln(c.Stderr, err)
			return 1
		}
		<-p.Exited()
		return 0
	}
	return 98
}

// inGoroutine is role without what ends a process.
func inGoroutine(ctx context.Context, c Child) error {
	switch c.Args[0] {
	case "wait":
		fmt.Fprintln(c.Stdout, "ready")
		select {
		case <-c.Stop:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	case "stubborn":
		fmt.Fprintln(c.Stdout, "ready")
		<-ctx.Done()
		return nil
	case "panic":
		panic("at the disco")
	}
	if code := role(c); code != 0 {
		return fmt.Errorf("code %d", code)
	}
	return nil
}

const patience = 20 * time.Second

// printed collects what a child prints, and says when a line has come.
type printed struct {
	lock  sync.Mutex
	text  bytes.Buffer
	lines chan string
}

func newPrinted() *printed { return &printed{lines: make(chan string, 1000)} }

func (p *printed) Write(b []byte) (int, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.lines <- strings.TrimSuffix(string(b), "\n")
	return p.text.Write(b)
}

func (p *printed) wait(t *testing.T, want ...string) {
	t.Helper()
	for timeout := time.After(patience); ; {
		select {
		case line := <-p.lines:
			if slices.ContainsFunc(want, func(w string) bool { return strings.HasPrefix(line, w) }) {
				return
			}
		case <-timeout:
			t.Fatalf("no line %q within %v", want, patience)
		}
	}
}

func start(t *testing.T, l Launcher, s Spec) *Process {
	t.Helper()
	p, err := l.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ended(t *testing.T, p *Process) Exit {
	t.Helper()
	select {
	case <-p.Exited():
		return p.Exit()
	case <-time.After(patience):
		t.Fatalf("%s has not ended within %v", p.Name(), patience)
		return Exit{}
	}
}

// Both launchers give a process its arguments and configuration, and tell how it ended.
func TestLaunchers(t *testing.T) {
	for name, l := range map[string]Launcher{"children": NewChildren(), "goroutines": NewGoroutines(inGoroutine)} {
		t.Run(name, func(t *testing.T) {
			defer l.Close()
			config := bytes.Repeat([]byte("secret "), MaxConfig/7)
			out := newPrinted()
			p := start(t, l, Spec{Name: "worker/0", Args: []string{"echo", "-x", "a b"}, Config: config, Stdout: out})
			if e := ended(t, p); !e.OK() || e.AsError() != nil || e.Name != "worker/0" || e.PID != p.PID() {
				t.Errorf("echo: %v", e)
			}
			want := fmt.Sprintf("worker/0 [\"-x\" \"a b\"] %s\n", config)
			// A line that is longer than a line may be comes in pieces.
			if got := strings.ReplaceAll(out.text.String(), "\n", ""); got != strings.TrimSpace(want) && got != strings.TrimSuffix(want, "\n") {
				t.Errorf("%d bytes were printed, want %d", len(got), len(want))
			}

			p = start(t, l, Spec{Name: "worker/1", Args: []string{"fail"}})
			e := ended(t, p)
			wantCode := 7
			if name == "goroutines" {
				wantCode = 1
			}
			if e.OK() || e.Code != wantCode || e.Signal != nil {
				t.Errorf("fail: %v", e)
			}
			if n := len(e.Stderr); n != keepLines || e.Stderr[n-1] != "the last words" || e.Stderr[n-2] != "line 99" {
				t.Errorf("last lines: %q", e.Stderr)
			}
			if err := e.AsError(); err == nil || !strings.Contains(err.Error(), "worker/1") || !strings.Contains(err.Error(), "the last words") {
				t.Errorf("AsError: %v", err)
			}
			if err := p.Signal(os.Interrupt); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("a signal to a process that has ended: %v", err)
			}

			out = newPrinted()
			p = start(t, l, Spec{Name: "worker/2", Args: []string{"wait"}, Stdout: out})
			out.wait(t, "ready")
			if err := p.Signal(syscall.SIGTERM); err != nil {
				t.Errorf("SIGTERM: %v", err)
			}
			if e := ended(t, p); e.Code > 0 || e.Signal == os.Kill || e.Name != "worker/2" {
				t.Errorf("after SIGTERM: %v", e)
			}
			if err := p.Kill(); err != nil {
				t.Errorf("the kill of one that has ended: %v", err)
			}

			out = newPrinted()
			p = start(t, l, Spec{Name: "worker/3", Args: []string{"stubborn"}, Stdout: out})
			out.wait(t, "ready")
			if err := p.Signal(syscall.SIGTERM); err != nil {
				t.Errorf("SIGTERM: %v", err)
			}
			select {
			case <-p.Exited():
				t.Errorf("one that does not want to end has: %v", p.Exit())
			case <-time.After(10 * time.Millisecond):
			}
			if err := p.Kill(); err != nil {
				t.Errorf("kill: %v", err)
			}
			if e := ended(t, p); e.Signal != os.Kill || !strings.Contains(e.String(), "was killed") {
				t.Errorf("a kill of one that does not want to end: %v", e)
			}

			out = newPrinted()
			p = start(t, l, Spec{Name: "worker/4", Args: []string{"wait"}, Stdout: out})
			out.wait(t, "ready")
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if e := ended(t, p); e.Signal != os.Kill {
				t.Errorf("after Close: %v", e)
			}
			if _, err := l.Start(t.Context(), Spec{Name: "late", Args: []string{"echo"}}); err == nil {
				t.Error("a closed launcher starts processes")
			}
			if err := l.Close(); err != nil {
				t.Errorf("Close again: %v", err)
			}
		})
	}
}

func TestBadSpecs(t *testing.T) {
	l, g := NewChildren(), NewGoroutines(inGoroutine)
	defer l.Close()
	defer g.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		l    Launcher
		s    Spec
		want string
	}{
		{t.Context(), l, Spec{}, "it has no name"},
		{t.Context(), l, Spec{Name: "a", Config: make([]byte, MaxConfig+1)}, "1048577 bytes"},
		{t.Context(), l, Spec{Name: "a", CPUs: []int{-1}}, "core -1"},
		{t.Context(), l, Spec{Name: "a", Dir: "no such directory"}, "no such directory"},
		{over, l, Spec{Name: "a"}, "context canceled"},
		{t.Context(), g, Spec{Name: "a", Dir: "x"}, "a goroutine has no directory"},
		{over, g, Spec{Name: "a"}, "context canceled"},
	} {
		if _, err := c.l.Start(c.ctx, c.s); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "launch: ") {
			t.Errorf("%+.40v: error %v, want %q", c.s, err, c.want)
		}
	}
}

func TestGoroutinePanics(t *testing.T) {
	g := NewGoroutines(inGoroutine)
	defer g.Close()
	e := ended(t, start(t, g, Spec{Name: "a", Args: []string{"panic"}}))
	if e.OK() || !strings.Contains(e.String(), "panic: at the disco") || !strings.Contains(strings.Join(e.Stderr, "\n"), "inGoroutine") {
		t.Errorf("%v\n%q", e, e.Stderr)
	}
}

// TestGoroutinesCloseStops: who waits for nothing but to be stopped ends with its parent, which waits for it.
func TestGoroutinesCloseStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where a hang is an error
		g := NewGoroutines(func(_ context.Context, c Child) error {
			<-c.Stop
			return nil
		})
		start(t, g, Spec{Name: "a"})
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The end of a child is seen at once. A machine that is busy with something else can hold up this process or the children: then it is
// measured again, nine times at most.
func TestExitIsSeenAtOnce(t *testing.T) {
	l := NewChildren()
	defer l.Close()
	for range 10 {
		var took []time.Duration
		for range 11 {
			out := newPrinted()
			p := start(t, l, Spec{Name: "a", Args: []string{"wait"}, Stdout: out})
			out.wait(t, "ready")
			gone := whenGone(t, p.PID())
			began := time.Now()
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
			<-p.Exited()
			seen := time.Now()
			if at := gone(); at.After(began) { // until then the system was ending it, for which it waits for a processor too
				began = at
			}
			took = append(took, seen.Sub(began))
		}
		slices.Sort(took)
		t.Logf("from its end to Exited: %v at best, median %v, %v at worst", took[0], took[5], took[10])
		if took[5] <= 20*time.Millisecond {
			return
		}
	}
	t.Error("ten medians of more than 20 ms, want 1 ms, and no more than 20 times that under load")
}

// What a child leaves behind does not hold up the news of its end.
func TestExitDespiteHeldStderr(t *testing.T) {
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Skip("not run here: there is no command sleep")
	}
	l := NewChildren()
	defer l.Close()
	e := ended(t, start(t, l, Spec{Name: "a", Args: []string{"leave"}})) // long before what it has left
	var left int
	if n, _ := fmt.Sscanf(strings.Join(e.Stderr, "\n"), "left %d", &left); e.Code != 3 || n != 1 || len(e.Stderr) != 1 {
		t.Fatalf("%v, %q", e, e.Stderr)
	}
	p, err := os.FindProcess(left)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Errorf("what it has left was not there any more, or held nothing: %v", err)
	}
}

// A slowWriter takes its time, as one does that waits for its processor. It does so once: a hundred naps of 3 ms were seconds on a busy machine.
type slowWriter struct{ nap sync.Once }

func (w *slowWriter) Write(p []byte) (int, error) {
	w.nap.Do(func() { time.Sleep(300 * time.Millisecond) })
	return len(p), nil
}

// A child's last words are in its exit, also where who prints them is slow.
func TestSlowPrinter(t *testing.T) {
	l := NewChildren()
	defer l.Close()
	e := ended(t, start(t, l, Spec{Name: "a", Args: []string{"fail"}, Stderr: new(slowWriter)}))
	if n := len(e.Stderr); n == 0 || e.Stderr[n-1] != "the last words" {
		t.Errorf("its last lines are %q", e.Stderr)
	}
}

// Who starts a child by hand is told what is missing.
func TestEnterByHand(t *testing.T) {
	if _, ok, err := Enter([]string{"trivium", "train"}); ok || err != nil {
		t.Errorf("a process of its own: %t, %v", ok, err)
	}
	if _, ok, err := Enter([]string{"trivium"}); ok || err != nil {
		t.Errorf("a process without arguments: %t, %v", ok, err)
	}
	cmd := exec.Command(os.Args[0], childArgument+"x", "echo")
	if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("launch: x: the parent's configuration: ")) {
		t.Errorf("%s, %v", out, err)
	}
}

func TestProgramReplaced(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("not run here: only Linux knows a program without its file's name")
	}
	path := filepath.Join(t.TempDir(), "program")
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cmd := exec.Command(path, childArgument+"x", "replaced", path)
	give(cmd, r)
	go writeConfig(w, nil)
	out, err := cmd.CombinedOutput()
	r.Close()
	if err != nil || string(out) != "again [] same\n" {
		t.Errorf("%s, %v", out, err)
	}
}

func TestLines(t *testing.T) {
	var b strings.Builder
	w := &lines{emit: func(line []byte) error {
		fmt.Fprintf(&b, "worker/1: %s\n", line)
		return nil
	}}
	for _, s := range []string{"a\nb", "c\r\n", "", "\n", "rest"} {
		if n, err := io.WriteString(w, s); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	if want := "worker/1: a\nworker/1: bc\nworker/1: \n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	b.Reset()
	long := strings.Repeat("x", 3*maxLine)
	io.WriteString(w, long+"\n")
	for _, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
		if len(line) > maxLine+len("worker/1: ") {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
	if n := strings.Count(b.String(), "x"); n != len(long) {
		t.Errorf("%d of %d bytes", n, len(long))
	}
}

// FuzzReadConfig: no more is allocated than may come, and what is read is what was written.
func FuzzReadConfig(f *testing.F) {
	var b bytes.Buffer
	_ = writeConfig(&b, []byte("secret"))
	f.Add(b.Bytes())
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, p []byte) {
		config, err := readConfig(bytes.NewReader(p))
		if err != nil {
			return
		}
		var b bytes.Buffer
		_ = writeConfig(&b, config)
		if !bytes.HasPrefix(p, b.Bytes()) {
			t.Fatalf("%x came back as %x", p, b.Bytes())
		}
	})
}

// TestLastWords: of what a process printed an Exit has few lines, and few bytes, the last.
func TestLastWords(t *testing.T) {
	var l last
	for i := range 100 {
		l.add(fmt.Appendf(nil, "%02d%s", i, strings.Repeat("x", 998)))
	}
	if got := l.get(); len(got) != keepBytes/1000 || !strings.HasPrefix(got[0], "92") || !strings.HasPrefix(got[7], "99") {
		t.Errorf("of 100 lines of 1,000 bytes %d are kept", len(got))
	}
	l.add([]byte(strings.Repeat("x", keepBytes) + "end"))
	if got := l.get(); len(got) != 1 || len(got[0]) != keepBytes || !strings.HasSuffix(got[0], "end") {
		t.Errorf("of a line that is too long %d lines are kept", len(got))
	}
}
