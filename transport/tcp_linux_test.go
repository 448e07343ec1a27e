package transport

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// A connection that the system would pace is not paced where its other end is near; and what is not paced stays as it is.
func TestUnpace(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	after := func(t *testing.T, chosen string) string {
		t.Helper()
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		raw, err := nc.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var got string
		control := func(f func(fd int)) {
			if err := raw.Control(func(fd uintptr) { f(int(fd)) }); err != nil {
				t.Fatal(err)
			}
		}
		control(func(fd int) { err = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, chosen) })
		if err != nil {
			t.Skipf("not run here: the system has no %s: %v", chosen, err)
		}
		unpace(nc.(*net.TCPConn), false)
		control(func(fd int) { got, err = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION) })
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	t.Run("paced", func(t *testing.T) {
		for range 100 { // a handshake may be slow once
			if after(t, "bbr") == "reno" {
				return
			}
		}
		t.Error("bbr stays")
	})
	t.Run("not paced", func(t *testing.T) {
		if got := after(t, "cubic"); got != "cubic" {
			t.Errorf("%s took cubic's place", got)
		}
	})
}
