//go:build !linux

package transport

import "net"

// admitUser: who may open the socket is what the directory's mode says; the system is not asked for more here.
func admitUser(net.Conn) error { return nil }

// bootID: not on this system; the host's name has to do.
func bootID() (string, error) { return "", nil }
