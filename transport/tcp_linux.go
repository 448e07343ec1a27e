package transport

import (
	"net"

	"golang.org/x/sys/unix"
)

// tuneLocal is for connections within a host, where no queue is between the ends: what a system of many distant clients has chosen to be
// careful with queues (BBR paces what it sends by timers) costs half as much again as the copying. Reno sends what the other end has room
// for, and every system has it; where it may not be chosen, all works as it is.
func tuneLocal(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
	})
}
