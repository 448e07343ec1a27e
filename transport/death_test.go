package transport_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/transport"
)

// TestVictim is a process that TestDeath kills: it opens a port, prints its address, and waits.
func TestVictim(t *testing.T) {
	if flag.Arg(0) != "victim" {
		t.Skip("not run here: it is a child process of TestDeath")
	}
	var n transport.Network = transport.TCP{}
	if flag.Arg(1) != "" {
		n = transport.Unix{Dir: flag.Arg(1)}
	}
	p, err := n.Open(t.Context(), transport.Name{ID: "victim"}, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Stream("s", transport.StreamOptions{}); err != nil {
		t.Fatal(err)
	}
	mib, err := strconv.Atoi(flag.Arg(2))
	if err != nil {
		t.Fatal(err)
	}
	used := make([]byte, mib<<20)
	for i := 0; i < len(used); i += 4096 {
		used[i] = 1
	}
	fmt.Println("address", p.Addr())
	defer runtime.KeepAlive(used)
	_, _ = bufio.NewReader(os.Stdin).ReadByte() // it ends with the parent, if nobody kills it
}

// TestDeath: the death of a process is seen by every peer. The target is 5 ms in 99 of 100 cases, from before the kill; over unix sockets
// also if the process has much memory, which the kernel gives back before it closes the connections. A busy machine takes the process
// down when it finds the time: all peers see it late, together. So the test asserts 20 times the target for the median, and logs the rest.
func TestDeath(t *testing.T) {
	const watchers = 4
	dir := t.TempDir()
	for _, c := range []struct {
		name     string
		n        transport.Network
		mib      int
		deaths   int
		lifeless bool // as on other systems: the connections must tell
	}{
		{"tcp", transport.TCP{}, 0, 8, false},
		{"unix", transport.Unix{Dir: dir}, 0, 15, false},
		{"unix with 256 MiB", transport.Unix{Dir: dir}, 256, 2, false},
		{"unix without life", transport.Unix{Dir: dir}, 0, 4, true},
	} {
		deaths, n := c.deaths, c.n
		if testing.Short() {
			deaths, c.mib = min(deaths, 3), c.mib/8
		}
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 120*time.Second)
			defer cancel()
			half := func() time.Duration {
				var took []time.Duration
				for range deaths {
					in := ""
					if c.name != "tcp" {
						in = dir
					}
					child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestVictim$", "--", "victim", in, strconv.Itoa(c.mib))
					stdin, err := child.StdinPipe()
					if err != nil {
						t.Fatal(err)
					}
					out, err := child.StdoutPipe()
					if err != nil {
						t.Fatal(err)
					}
					if err := child.Start(); err != nil {
						t.Fatal(err)
					}
					var addr string
					for lines := bufio.NewScanner(out); lines.Scan() && addr == ""; {
						addr, _ = strings.CutPrefix(lines.Text(), "address ")
						if addr != "" {
							break
						}
					}
					if life := strings.TrimPrefix(strings.TrimSuffix(addr, ".sock"), "unix:") + ".life"; c.lifeless {
						_ = os.Remove(life) // there is none on other systems
					} else if _, err := os.Stat(life); runtime.GOOS == "linux" && in != "" && err != nil {
						t.Error(err)
					}
					took = append(took, watch(ctx, t, n, addr, watchers, child)...)
					_ = stdin.Close() // the child is dead
					_ = child.Wait()
				}
				slices.Sort(took)
				p99 := took[(len(took)*99-1)/100]
				t.Logf("%d deaths, %d peers each: median %v, 99 of 100 within %v, longest %v", deaths, watchers, took[len(took)/2], p99, took[len(took)-5:])
				return took[len(took)/2]
			}
			// A machine that is busy with something else can hold up those who are to notice: then it is measured again, four times at most.
			for range 5 {
				if half() <= 100*time.Millisecond || t.Failed() {
					return
				}
			}
			t.Error("five times it took half of them longer than 100ms, which is 20 times 5 ms")
		})
	}
}

// watch connects so many ports to the victim, kills it, and returns how long each took to see it.
func watch(ctx context.Context, t *testing.T, n transport.Network, addr string, watchers int, child *exec.Cmd) []time.Duration {
	t.Helper()
	victim := transport.Name{ID: "victim"}
	streams := make([]transport.Stream, watchers)
	for i := range streams {
		p, err := n.Open(ctx, transport.Name{ID: fmt.Sprint(i)}, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if err := p.Know(victim, addr); err != nil {
			t.Fatal(err)
		}
		if streams[i], err = p.Stream("s", transport.StreamOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := streams[i].Send(ctx, victim, transport.Frame{}); err != nil {
			t.Fatal(err)
		}
		for p.Stats().FramesSent == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	seen := make(chan time.Time, watchers)
	for _, s := range streams {
		go func() {
			ev, err := s.Recv(ctx)
			at := time.Now()
			if err != nil || ev.What != transport.LinkLost {
				t.Errorf("event %d (%v), error %v, want LinkLost", ev.What, ev.Err, err)
			}
			seen <- at
		}()
	}
	from := time.Now()
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	for range streams {
		took = append(took, (<-seen).Sub(from))
	}
	return took
}
