package transport

import "net"

// openShared returns nil until shared memory is built: this file is to be replaced by it.
func openShared(*net.UnixConn, bool) (sharedPath, error) { return nil, nil }
