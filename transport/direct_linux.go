package transport

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A direct writes to a socket without waiting, so that who sends a frame can write it himself: that saves a switch of goroutines, which
// is a good part of a round trip.
type direct struct {
	raw  syscall.RawConn
	call func(fd uintptr) bool // bound once: no allocation per call
	bufs net.Buffers
	n    int
	err  error
}

// newDirect returns nil where the connection cannot do that.
func newDirect(nc net.Conn) *direct {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	d := &direct{raw: raw}
	d.call = d.once
	return d
}

// write writes what the socket takes at once.
func (d *direct) write(bufs net.Buffers) (int, error) {
	d.bufs, d.n, d.err = bufs, 0, nil
	err := d.raw.Write(d.call)
	d.bufs = nil
	if d.err != nil {
		err = d.err
	}
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil // somebody stops the writer's goroutine: that is its business
	}
	return d.n, err
}

func (d *direct) once(fd uintptr) bool {
	for {
		var n int
		var err error
		if len(d.bufs) == 1 {
			n, err = unix.Write(int(fd), d.bufs[0])
		} else {
			n, err = unix.Writev(int(fd), d.bufs)
		}
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
		case err != nil:
			d.err = err
		default:
			d.n = n
		}
		return true
	}
}
