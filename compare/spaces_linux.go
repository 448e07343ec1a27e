package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
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
	return []string{fmt.Sprintf("qdisc add dev %s root tbf rate %dmbit burst %d latency 50ms", device, l.Mbit, l.burst())}
}

// do runs f on the thread of the namespace: a socket that it opens is in there.
func (s *space) do(f func()) {
	done := make(chan struct{})
	s.work <- func() {
		defer close(done)
		f()
	}
	<-done
}

// speed measures the link, by one connection between the last two spaces: a row has the first, and some systems remember what a path was like. What
// the two values are says speedOf.
func (s *spaces) speed(ctx context.Context) (mbit, trip float64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, speedLimit, fmt.Errorf("no end after %v", speedLimit))
	defer cancel()
	during := speedTime
	if s.link.Mbit == 0 {
		during = freeTime
	}
	a, b, err := s.connect(ctx, len(s.list)-2, len(s.list)-1)
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _, _ = a.Close(), b.Close() })
		reno(a)
		mbit, trip, err = speedOf(a, b, s.link.burst(), during)
		stop()
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return mbit, trip, err
}

// connect connects space i with space j. Both ends are the caller's to close.
func (s *spaces) connect(ctx context.Context, i, j int) (a, b net.Conn, err error) {
	var l net.Listener
	s.list[j].do(func() {
		var plain net.ListenConfig
		plain.SetMultipathTCP(false) // as the rows have it
		l, err = plain.Listen(ctx, "tcp4", s.at(j)+":0")
	})
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })() // Accept knows no context
	s.list[i].do(func() { a, err = new(net.Dialer).DialContext(ctx, "tcp4", l.Addr().String()) })
	if err != nil {
		return nil, nil, err
	}
	if b, err = l.Accept(); err != nil {
		return nil, nil, errors.Join(err, a.Close())
	}
	return a, b, nil
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

// reno has a connection find its rate by loss alone, whatever the system's way is: BBR takes a slow link with a short queue for a policed one, and
// goes at three quarters of what it carries.
func reno(c net.Conn) {
	if raw, err := c.(syscall.Conn).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno") })
	}
}
