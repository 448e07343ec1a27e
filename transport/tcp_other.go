//go:build !linux

package transport

import (
	"net"
	"syscall"
)

// A pacing has nothing to do here.
type pacing struct{}

func (*pacing) listen(string, string, syscall.RawConn) error { return nil }

func (*pacing) dial(string, string, syscall.RawConn) error { return nil }

func (*pacing) begun(*net.TCPConn, bool) {}
