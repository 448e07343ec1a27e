package transport

import (
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A pacing is what a system's choice of congestion control that paces connections, as BBR does, comes to at one end: by timers it sends slower
// than it might, to be careful with queues. Where there is none to be careful with, within a host, and between ends so near that they share a
// machine (containers, network namespaces) or a switch, the timers cost half as much again as the copying.
//
// Linux paces a connection for good once BBR has begun it, whatever is chosen for it later. So all begin with Reno, which every system has, and
// those between far ends get back what the system has chosen. Where Reno may not be chosen, all works as it is.
type pacing struct {
	chosen string        // by the system; "": it does not pace
	near   time.Duration // the handshake of near ends takes less
}

// listen prepares a socket that is to listen: what it accepts begins with what it has.
func (p *pacing) listen(_, _ string, c syscall.RawConn) error {
	p.near = 250 * time.Microsecond // a namespace is 13 to 62 µs away; two hosts' systems and a switch are more
	return c.Control(func(fd uintptr) {
		chosen, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		if err == nil && strings.HasPrefix(chosen, "bbr") && choose(fd, "reno") {
			p.chosen = chosen
		}
	})
}

// dial prepares a socket that is to connect.
func (p *pacing) dial(_, _ string, c syscall.RawConn) error {
	if p.chosen == "" {
		return nil
	}
	return c.Control(func(fd uintptr) { choose(fd, "reno") })
}

// begun has a connection paced, as the system chose, if its ends are far.
func (p *pacing) begun(c *net.TCPConn, local bool) {
	if p.chosen == "" || local {
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || time.Duration(info.Rtt)*time.Microsecond >= p.near {
			choose(fd, p.chosen)
		}
	})
}

func choose(fd uintptr, name string) bool {
	return unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name) == nil
}
