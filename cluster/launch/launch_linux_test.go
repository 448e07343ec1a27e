package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// whenGone looks out for the end of a process. What it returns waits for that, and says when the system has told of it.
func whenGone(t *testing.T, pid int) (wait func() time.Time) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
	at := make(chan time.Time, 1)
	go func() {
		defer unix.Close(fd)
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			n, err := unix.Poll(fds, int(patience.Milliseconds()))
			if err == unix.EINTR {
				continue
			}
			if err != nil || n != 1 {
				t.Errorf("process %d does not end: %v", pid, err)
			}
			at <- time.Now()
			return
		}
	}()
	return func() time.Time { return <-at }
}

// Killed parents take children and grandchildren along: by the system's signal, and, where there is none, by the pipe.
func TestNoOrphans(t *testing.T) {
	for _, how := range []string{"death signal", "pipe only"} {
		t.Run(how, func(t *testing.T) {
			l := NewChildren()
			defer l.Close()
			out := newPrinted()
			p := start(t, l, Spec{Name: "a", Args: []string{"family", "family", "wait"}, Config: []byte(how), Stdout: out, Stderr: out})
			for range 4 + 3 { // the grandchildren, and who starts others
				out.wait(t, "ready", "family complete")
			}
			out.lock.Lock()
			text := out.text.String()
			out.lock.Unlock()
			var fds []unix.PollFd
			for line := range strings.Lines(text) {
				var pid int
				if n, _ := fmt.Sscanf(line, "pid %d", &pid); n == 1 {
					fd, err := unix.PidfdOpen(pid, 0)
					if err != nil {
						t.Fatalf("process %d: %v", pid, err)
					}
					defer unix.Close(fd)
					fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
				}
			}
			if len(fds) != 6 {
				t.Fatalf("%d descendants, want 6:\n%s", len(fds), text)
			}
			began := time.Now()
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
			ended(t, p)
			for i := range fds {
				n, err := 0, error(unix.EINTR)
				for err == unix.EINTR {
					n, err = unix.Poll(fds[i:i+1], int(patience.Milliseconds()))
				}
				if err != nil || n != 1 {
					t.Fatalf("descendant %d lives on %v after its parent: %v", i, time.Since(began), err)
				}
			}
			t.Logf("all six ended within %v", time.Since(began))
		})
	}
}

// The thread that starts children is not one that may end.
func TestChildOutlivesStartingGoroutine(t *testing.T) {
	l := NewChildren()
	defer l.Close()
	out := newPrinted()
	started := make(chan *Process)
	go func() {
		p, err := l.Start(t.Context(), Spec{Name: "a", Args: []string{"wait"}, Stdout: out})
		if err != nil {
			t.Error(err)
		}
		started <- p
		// A goroutine that is locked to its thread ends with it, as this one does not: the launcher's does.
	}()
	p := <-started
	out.wait(t, "ready")
	select {
	case <-p.Exited():
		t.Errorf("%v", p.Exit())
	case <-time.After(100 * time.Millisecond):
	}
}

func TestCores(t *testing.T) {
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		t.Fatal(err)
	}
	core := 0
	for !mine.IsSet(core) {
		core++
	}
	l := NewChildren()
	defer l.Close()
	for _, c := range []struct {
		cpus []int
		want string
	}{{[]int{core}, "1"}, {nil, fmt.Sprint(mine.Count())}} {
		out := newPrinted()
		p := start(t, l, Spec{Name: "a", Args: []string{"cores"}, CPUs: c.cpus, Stdout: out})
		out.wait(t, c.want)
		ended(t, p)
	}
	if _, err := l.Start(t.Context(), Spec{Name: "a", CPUs: []int{maxCPUs - 1}}); err == nil || !strings.Contains(err.Error(), "cores [1023]") {
		t.Errorf("a core that is not there: %v", err)
	}
	var after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &after); err != nil || after != mine {
		t.Errorf("the cores of this process changed from %v to %v, %v", mine, after, err)
	}
}

// In a list of processes a child has the program's name, and shows neither its configuration nor /proc/self/exe.
func TestWhatOthersSee(t *testing.T) {
	l := NewChildren()
	defer l.Close()
	out := newPrinted()
	p := start(t, l, Spec{Name: "worker/0", Args: []string{"wait"}, Config: []byte("hunter2"), Stdout: out})
	out.wait(t, "ready")
	for _, file := range []string{"comm", "cmdline", "environ"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.PID(), file))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "hunter2") {
			t.Errorf("%s shows the configuration", file)
		}
		if file == "comm" && !strings.HasPrefix(filepath.Base(os.Args[0]), strings.TrimSpace(string(b))) {
			t.Errorf("its name is %q", b)
		}
		if file == "cmdline" && !strings.Contains(string(b), "worker/0") {
			t.Errorf("its arguments are %q", b)
		}
	}
}
