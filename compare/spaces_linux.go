package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A space is a network namespace: that of a thread which does nothing else, so that it is gone when the process is.
type space struct {
	path   string // of the file that stands for it
	thread int
	work   chan func()
	ended  chan struct{}
}

// newSpace makes one, or says why that is not permitted.
func newSpace() (*space, error) {
	s := &space{work: make(chan func()), ended: make(chan struct{})}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		defer close(s.ended)
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			s.thread = unix.Gettid()
			s.path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), s.thread)
		}
		made <- err
		if err != nil {
			return
		}
		for f := range s.work {
			f()
		}
	}()
	if err := <-made; err != nil {
		<-s.ended
		return nil, fmt.Errorf("network namespaces want root, or the capability CAP_SYS_ADMIN: %w", err)
	}
	return s, nil
}

func (s *space) close() {
	close(s.work)
	<-s.ended
}

// ip runs commands of ip, and then of tc, within the namespace.
func (s *space) ip(ctx context.Context, ip, tc []string) (err error) {
	done := make(chan struct{})
	s.work <- func() {
		defer close(done)
		err = errors.Join(batch(ctx, "ip", ip), batch(ctx, "tc", tc))
	}
	<-done
	return err
}

// unfiltered keeps the host's firewall (the module br_netfilter, where a container system has loaded it) out of a bridge of the namespace: no
// switch looks into what passes it. Where the module is not there, neither are its files.
func (s *space) unfiltered() {
	done := make(chan struct{})
	s.work <- func() {
		defer close(done)
		for _, tables := range []string{"iptables", "ip6tables", "arptables"} {
			_ = os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+tables, []byte("0\n"), 0)
		}
	}
	<-done
}

// batchLimit is for one tool's commands, which take it milliseconds.
const batchLimit = 30 * time.Second

// batch gives a tool commands on its standard input.
func batch(ctx context.Context, tool string, commands []string) error {
	if len(commands) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, batchLimit, fmt.Errorf("no end after %v", batchLimit))
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, "-batch", "-")
	cmd.WaitDelay = time.Second // what it started may keep its output open
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		said, _, _ := strings.Cut(strings.TrimSpace(out.String()), "\n")
		return fmt.Errorf("links between network namespaces want CAP_NET_ADMIN, and the programs ip and tc: %s: %w: %s", tool, err, orElse(said, "it says nothing"))
	}
	return nil
}

// newSpaces makes n of them.
func newSpaces(ctx context.Context, link Link, n int) (_ *spaces, err error) {
	s := &spaces{link: link}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.hub, err = newSpace(); err != nil {
		return nil, err
	}
	for range n {
		x, err := newSpace()
		if err != nil {
			return nil, err
		}
		s.list = append(s.list, x)
	}
	commands := []string{"link set lo up", "link add br0 type bridge", "link set br0 up"}
	var shape []string
	for i, x := range s.list {
		commands = append(commands,
			fmt.Sprintf("link add v%d type veth peer name %s", i, spaceInterface),
			fmt.Sprintf("link set %s netns %d", spaceInterface, x.thread),
			fmt.Sprintf("link set v%d master br0 up", i))
		shape = append(shape, link.shape(fmt.Sprintf("v%d", i))...)
	}
	if err := s.hub.ip(ctx, commands, shape); err != nil {
		return nil, err
	}
	s.hub.unfiltered()
	for i, x := range s.list {
		up := []string{
			"link set lo up", fmt.Sprintf("addr add %s/24 dev %s", s.at(i), spaceInterface), fmt.Sprintf("link set %s up", spaceInterface),
		}
		if err := x.ip(ctx, up, link.shape(spaceInterface)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// shape is the token bucket that holds a device to the link's rate: a burst of 1 ms, and at most 50 ms of queue.
func (l Link) shape(device string) []string {
	if l.Mbit == 0 {
		return nil
	}
	burst := max(l.Mbit*1000/8, 32<<10)
	return []string{fmt.Sprintf("qdisc add dev %s root tbf rate %dmbit burst %d latency 50ms", device, l.Mbit, burst)}
}

func (s *spaces) close() {
	var wait sync.WaitGroup
	for _, x := range append(s.list, s.hub) {
		if x != nil {
			wait.Go(x.close)
		}
	}
	wait.Wait()
}
