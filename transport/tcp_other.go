//go:build !linux

package transport

import "net"

// unpace is for connections within a host, or nearly. Nothing is to be done here.
func unpace(*net.TCPConn, bool) {}
