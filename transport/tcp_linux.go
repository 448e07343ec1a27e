package transport

import (
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// unpace has a connection send what the other end has room for, at once, where what the system has chosen paces it by timers to be careful
// with queues, as BBR does, but there is none to be careful with: within a host, and between ends so near that they share a machine
// (containers, network namespaces) or a switch. Within a host the timers cost half as much again as the copying. Between namespaces a
// parameter server's rounds with frames of 420 KB took over a third longer with BBR; with frames of 358 KB they took up to an eighth less, and
// why is not known. Reno is on every system; where it may not be chosen, all works as it is.
func unpace(c *net.TCPConn, local bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		if local || paced(int(fd)) && near(int(fd)) {
			_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
		}
	})
}

func paced(fd int) bool {
	chosen, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	return err == nil && strings.HasPrefix(chosen, "bbr")
}

// near reports whether the handshake took less than nearRoundTrip.
func near(fd int) bool {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && time.Duration(info.Rtt)*time.Microsecond < nearRoundTrip
}

const nearRoundTrip = 250 * time.Microsecond // a namespace is 13 to 62 µs away; two hosts' systems and a switch are more
