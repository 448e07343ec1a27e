package transport

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A direct writes to a socket without waiting, so that who sends a frame can write it himself: that saves a switch of goroutines, which
// is a good part of a round trip.
type direct struct {
	raw   syscall.RawConn
	apart bool                  // see together
	call  func(fd uintptr) bool // bound once: no allocation per call
	bufs  net.Buffers
	n     int
	err   error

	glance func(fd uintptr) bool // likewise
	into   []byte
	got    int
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
	d := &direct{raw: raw, apart: isUnix(nc)}
	d.call, d.glance = d.once, d.onceInto
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

// read reads without waiting.
func (d *direct) read(dst []byte) (n int, err error) {
	var errno error
	err = d.raw.Read(func(fd uintptr) bool {
		for {
			if n, errno = unix.Read(int(fd), dst); errno != unix.EINTR {
				return true
			}
		}
	})
	switch {
	case err != nil:
		return 0, err
	case errno == nil && n == 0:
		return 0, io.EOF
	case errno != nil:
		return 0, errRead // there is no more
	}
	return n, nil
}

// look reads what there is, without waiting: 0 bytes where there is nothing, and -1 where something is wrong. One goroutine calls it, the
// one that reads.
func (d *direct) look(dst []byte) int {
	d.into, d.got = dst, 0
	if err := d.raw.Read(d.glance); err != nil {
		d.got = -1
	}
	d.into = nil
	return d.got
}

func (d *direct) onceInto(fd uintptr) bool {
	n, errno := unix.Read(int(fd), d.into)
	switch {
	case errno == nil && n > 0:
		d.got = n
	case errno != unix.EAGAIN && errno != unix.EINTR:
		d.got = -1
	}
	return true
}

func (d *direct) once(fd uintptr) bool {
	for len(d.bufs) > 0 {
		part := d.bufs
		if d.apart {
			part = part[:together(part)]
		}
		var n int
		var err error
		if len(part) == 1 {
			n, err = unix.Write(int(fd), part[0])
		} else {
			n, err = unix.Writev(int(fd), part)
		}
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return true
		case err != nil:
			d.err = err
			return true
		}
		d.n += n
		for _, b := range part {
			n -= len(b)
		}
		if n < 0 {
			return true // the socket is full
		}
		d.bufs = d.bufs[len(part):]
	}
	return true
}
