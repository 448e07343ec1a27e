//go:build !linux

package transport

import "net"

// openShared: not on this system; payloads go through the socket.
func openShared(*net.UnixConn, bool) (sharedPath, error) { return nil, nil }
