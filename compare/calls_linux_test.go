package compare

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// countedHere counts the calls of a process; nil: it is not permitted here, and says what it wants.
func countedHere(t *testing.T, pid int) *callCounter {
	t.Helper()
	c, err := countCalls([]Process{{Role: ServerRole, PID: pid}})
	if err != nil {
		if !strings.Contains(err.Error(), "root") {
			t.Errorf("%v: that does not say what it wants", err)
		}
		t.Logf("not run here: %v", err)
		return nil
	}
	t.Cleanup(c.close)
	return c
}

// TestCallsOfAChild: the calls of a process are counted, those too of what it starts later and of what has ended, and the ones that move bytes
// apart.
func TestCallsOfAChild(t *testing.T) {
	const each = 20_000
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo here; read word; dd if=/dev/zero of=/dev/null bs=1 count=20000 2>/dev/null; echo over; read word")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Logf("not run here: %v", err)
		return
	}
	defer func() {
		_ = in.Close() // then it ends
		_ = cmd.Wait()
	}()
	lines := bufio.NewReader(out)
	expect := func(want string) {
		if line, err := lines.ReadString('\n'); err != nil || line != want {
			t.Fatalf("the child says %q: %v", line, err)
		}
	}
	expect("here\n")
	pid := cmd.Process.Pid
	c := countedHere(t, pid)
	if c == nil {
		return
	}
	before := c.read()[pid]
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	expect("over\n")
	w := &warmUp{first: map[int]Calls{pid: before}, last: c.read(), updates: 1}
	n, why := w.of(Process{PID: pid})
	if why != "" || n.Transfers < 2*each || n.Transfers > 2*each+200 || n.All <= n.Transfers || n.All > 2*each+2000 {
		t.Errorf("%+v (%s): it read and wrote %d times, and little else", n, why, each)
	}
}

// TestCallsOfThreads: the calls of all threads are counted, of those that were there, and of those that these start.
func TestCallsOfThreads(t *testing.T) {
	const each = 20_000
	there, begin, done := make(chan bool, 4), make(chan bool), make(chan bool)
	calls := func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		there <- true
		<-begin
		var word [8]byte
		for range each {
			_, _, _ = unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
			_, _, _ = unix.RawSyscall(unix.SYS_WRITE, ^uintptr(0), uintptr(unsafe.Pointer(&word)), uintptr(len(word))) // to no file
		}
		done <- true
	}
	go calls()
	<-there
	pid := os.Getpid()
	c := countedHere(t, pid)
	before := c.read()[pid]
	for range 3 {
		go calls()
	}
	for range 4 {
		begin <- true
	}
	for range 4 {
		<-done
	}
	if c == nil {
		return
	}
	after := c.read()[pid]
	all, moves := after.All-before.All, after.Transfers-before.Transfers
	if moves < 4*each || moves > 4*each+each || all < 8*each || all > 8*each+2*each { // and some of the runtime
		t.Errorf("%d calls, %d of them transfers; the threads made %d, and %d", all, moves, 8*each, 4*each)
	}
}

// BenchmarkCounted is a call, and a byte that goes through a pipe to another thread and back, with and without counting: what counting adds to
// what a row does most. The difference, times its calls a second, is to stay below 1 % of a core.
func BenchmarkCounted(b *testing.B) {
	for _, counted := range []string{"alone", "counted"} {
		start := func(b *testing.B) {
			if counted == "alone" {
				return
			}
			c, err := countCalls([]Process{{Role: ServerRole, PID: os.Getpid()}})
			if err != nil {
				b.Skip(err)
			}
			b.Cleanup(c.close)
		}
		b.Run("call/"+counted, func(b *testing.B) {
			start(b)
			for b.Loop() {
				_, _, _ = unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
			}
		})
		b.Run("pipe/"+counted, func(b *testing.B) {
			var there, back [2]int
			if err := errors.Join(unix.Pipe(there[:]), unix.Pipe(back[:])); err != nil {
				b.Fatal(err)
			}
			ended := make(chan bool)
			begun := make(chan bool)
			go func() {
				runtime.LockOSThread()
				defer close(ended)
				close(begun)
				var word [1]byte
				for {
					if n, err := unix.Read(there[0], word[:]); n != 1 || err != nil {
						return
					}
					if _, err := unix.Write(back[1], word[:]); err != nil {
						return
					}
				}
			}()
			<-begun
			start(b)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var word [1]byte
			for b.Loop() {
				if _, err := unix.Write(there[1], word[:]); err != nil {
					b.Fatal(err)
				}
				if _, err := unix.Read(back[0], word[:]); err != nil {
					b.Fatal(err)
				}
			}
			_ = unix.Close(there[1])
			<-ended
			for _, fd := range []int{there[0], back[0], back[1]} {
				_ = unix.Close(fd)
			}
		})
	}
}

// TestCallsOfATrial: a trial's calls are counted in its warm-up, of a row of ours and of another system's.
func TestCallsOfATrial(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out of -short")
	}
	if countedHere(t, os.Getpid()) == nil {
		return
	}
	task := digits()
	task.Job.Optimizer.Rate = 1e-30 // nothing is learned, as fake peers do
	task.Cap = 1
	p := small(t, byProcess(), task, "server-bsp")
	p.Systems = append(p.Systems, fakePeers(t, "good")...)
	p.Workers = []int{2}
	for _, x := range run(t, p).Tables[0].Rows {
		for role, u := range x.Use {
			n := x.Trials[0].Result.PerRole[role].Calls
			if u.CallsUnknown != "" || n == nil || n.Updates < warmUpdates || n.All < n.Transfers || n.Transfers < 2 {
				t.Errorf("%s, %s: %+v of %+v, error %q", x.System, role, n, u, x.Error)
			}
			if x.System == "server-bsp" && u.TransfersUpdate < 2 { // what it is sent, and what it sends
				t.Errorf("%s, %s: %v transfers in an update", x.System, role, u.TransfersUpdate)
			}
		}
		if len(x.Use) == 0 {
			t.Errorf("%s: no use, error %q", x.System, x.Error)
		}
	}
}
