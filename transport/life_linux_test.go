package transport_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trivium-ml/trivium/transport"
)

const lastChild = "transport-last-words"

// TestLifeLastWords: what a process sent before it ended without a word is received before its loss is told, small frames and large, also
// where the receiver comes late.
func TestLifeLastWords(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	sizes := []int{64, 20 << 10, 200 << 10}
	if testing.Short() {
		sizes = sizes[1:2]
	}
	for _, size := range sizes {
		p, err := transport.Unix{Dir: dir}.Open(ctx, transport.Name{ID: "parent"}, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.Stream("test", transport.StreamOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestLifeLastWordsChild$", "-test.timeout=2m", "--", lastChild, dir, p.Addr(), fmt.Sprint(size))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { // until the child has ended
			defer close(ended)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				t.Log(lines.Text())
			}
			_ = cmd.Wait()
		}()
		<-ended
		got := 0
		for lost := false; !lost; {
			ev, err := s.Recv(ctx)
			if err != nil {
				t.Fatal(err)
			}
			switch ev.What {
			case transport.Received:
				if int(ev.Key.Chunk) != got || len(ev.Payload) != size {
					t.Errorf("frame %d of %d bytes came as number %d", ev.Key.Chunk, len(ev.Payload), got)
				}
				got++
				ev.Release()
			case transport.LinkLost:
				lost = true
				t.Logf("%d bytes: lost with %v", size, ev.Err)
			}
		}
		if want := lastWords(size); got != want {
			t.Errorf("%d of %d frames of %d bytes came", got, want, size)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// lastWords is how many frames fit what may be under way without a receiver.
func lastWords(size int) int { return min(60, 150<<10/size+1) }

// TestLifeLastWordsChild is the sender of TestLifeLastWords; as a test it does nothing.
func TestLifeLastWordsChild(t *testing.T) {
	i := slices.Index(os.Args, lastChild)
	if i < 0 {
		return
	}
	p, err := transport.Unix{Dir: os.Args[i+1]}.Open(t.Context(), transport.Name{ID: "child"}, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Stream("test", transport.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	parent, size := transport.Name{ID: "parent"}, 0
	if _, err := fmt.Sscan(os.Args[i+3], &size); err != nil {
		t.Fatal(err)
	}
	if err := s.Know(parent, os.Args[i+2]); err != nil {
		t.Fatal(err)
	}
	for n := range lastWords(size) {
		if err := s.Send(t.Context(), parent, transport.Frame{Key: transport.Key{Chunk: uint32(n)}, Payload: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
	os.Exit(0)
}

// TestLifeThreads: a port's thread ends with the port, and leaves no file.
func TestLifeThreads(t *testing.T) {
	dir := t.TempDir()
	threads := func() int {
		all, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	before, ports := threads(), 50
	for i := range ports {
		p, err := transport.Unix{Dir: dir}.Open(t.Context(), transport.Name{ID: fmt.Sprint(i)}, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	limit := time.Now().Add(10 * time.Second)
	for threads() > before+ports/2 && time.Now().Before(limit) {
		runtime.Gosched() // the last thread may be on its way out
	}
	if n := threads(); n > before+ports/2 {
		t.Errorf("%d threads after %d ports, %d before", n, ports, before)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the directory: %v (%v)", left, err)
	}
	if fds, err := os.ReadDir("/proc/self/fd"); err != nil || len(fds) < 3 {
		t.Errorf("the process has %d files open (%v)", len(fds), err)
	}
}

// TestLockedDirectory: who owns the directory of the sockets may have it locked for as long as he lives.
func TestLockedDirectory(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	p, err := transport.Unix{Dir: dir.Name()}.Open(t.Context(), transport.Name{ID: "x"}, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
