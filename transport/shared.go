package transport

// A sharedPath is memory that the two ends of a unix socket share. Each end has a part that it alone writes; payloads lie there, and the
// frames that travel over the socket say where.
//
// openShared agrees on it with the other end, which does the same at this moment; nothing else passes over the connection meanwhile, and
// a deadline is set on it. It returns nil where either end wants or has none: then all goes through the socket.
type sharedPath interface {
	// place copies payload to this end's part and returns where; false: there is no room now, and it goes through the socket. One
	// goroutine calls it at a time.
	place(payload []byte) (ref uint64, ok bool)
	// view returns the n bytes that the other end placed at ref, after checks: ref and n come from the network.
	view(ref uint64, n int) ([]byte, error)
	// free says that what view returned is no longer read, so that the other end may use its room again. Any goroutine calls it, in any
	// order. For a ref that view would refuse it does nothing.
	free(ref uint64, n int)
	// Close unmaps the memory. It is called once, when no view is in use.
	Close() error
}
