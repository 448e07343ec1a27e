//go:build !linux

package transport

import "net"

// tuneLocal is for connections within a host. Nothing is to be done here.
func tuneLocal(*net.TCPConn) {}
