package transport

import (
	"net"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Ends that are near are never paced: neither end begins with what the system chose, where that is BBR. Far ones get it back, and what does not
// pace stays from the start.
func TestPacing(t *testing.T) {
	for _, c := range []struct {
		name         string
		chosen       string // by the system
		far, local   bool
		before, then string
	}{
		{"near", "bbr", false, false, "reno", "reno"},
		{"far", "bbr", true, false, "reno", "bbr"},
		{"within a host, however slow", "bbr", true, true, "reno", "reno"},
		{"not paced", "cubic", true, false, "cubic", "cubic"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 100 { // a handshake may be slow once
				before, then := paceOnce(t, c.chosen, c.far, c.local)
				for i := range before {
					if before[i] != c.before {
						t.Fatalf("end %d begins with %s; want %s", i, before[i], c.before)
					}
				}
				if then == [2]string{c.then, c.then} {
					return
				}
			}
			t.Errorf("it does not come to %s", c.then)
		})
	}
}

// paceOnce tells what the ends of a connection begin with, and have then.
func paceOnce(t *testing.T, chosen string, far, local bool) (before, then [2]string) {
	t.Helper()
	p := new(pacing)
	as := func(control func(string, string, syscall.RawConn) error) func(string, string, syscall.RawConn) error {
		return func(network, addr string, c syscall.RawConn) error {
			if err := c.Control(func(fd uintptr) {
				if !choose(fd, chosen) {
					t.Skipf("not run here: the system has no %s", chosen)
				}
			}); err != nil {
				return err
			}
			return control(network, addr, c)
		}
	}
	lc := net.ListenConfig{Control: as(p.listen)}
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if far {
		p.near = 0
	}
	dialed, err := (&net.Dialer{Control: as(p.dial)}).DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialed.Close()
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	for i, nc := range [...]net.Conn{dialed, accepted} {
		before[i] = congestion(t, nc.(syscall.Conn))
		p.begun(nc.(*net.TCPConn), local)
		then[i] = congestion(t, nc.(syscall.Conn))
	}
	return before, then
}

func congestion(t *testing.T, c syscall.Conn) string {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if e := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
	return got
}

// What a network of TCP listens at is prepared, and so is what it dials.
func TestPacingOfCarrier(t *testing.T) {
	c, err := TCP{}.carrier(t.Context(), Name{Job: "j", Role: "worker", ID: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.listeners[0].Close()
	if got := congestion(t, c.listeners[0].(tunedListener).Listener.(syscall.Conn)); strings.HasPrefix(got, "bbr") {
		t.Errorf("it listens with %s", got)
	}
	nc, err := c.dial(t.Context(), c.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if got := congestion(t, nc.(syscall.Conn)); strings.HasPrefix(got, "bbr") {
		t.Errorf("it dialed with %s", got)
	}
}
