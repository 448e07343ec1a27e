package transport

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

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

	beats func() bool // calls may do without the runtime
	iov   []unix.Iovec

	glance, await func(fd uintptr) bool // bound as well; the reader's
	into          []byte
	got           int
	errno         syscall.Errno
}

// newDirect returns nil where the connection cannot do that.
func newDirect(nc net.Conn, beats func() bool) *direct {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	d := &direct{raw: raw, apart: isUnix(nc), beats: beats}
	d.call, d.glance, d.await = d.once, d.onceInto, d.untilInto
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
	d.into = dst
	if err := d.raw.Read(d.glance); err != nil {
		d.got = -1
	}
	d.into = nil
	return d.got
}

// yield lets another thread run that waits for this processor. It costs a third of a microsecond where there is none.
func (*direct) yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// wait is Read of the connection, but for the runtime's part: see pulse.
func (d *direct) wait(dst []byte) (int, error) {
	d.into = dst
	err := d.raw.Read(d.await)
	d.into = nil
	switch {
	case err != nil:
		return 0, err
	case d.errno != 0:
		return 0, os.NewSyscallError("read", d.errno)
	case d.got == 0:
		return 0, io.EOF
	}
	return d.got, nil
}

func (d *direct) onceInto(fd uintptr) bool {
	if d.readRaw(fd); d.errno == unix.EAGAIN {
		d.got = 0
	} else if d.errno != 0 || d.got == 0 {
		d.got = -1
	}
	return true
}

func (d *direct) untilInto(fd uintptr) bool {
	d.readRaw(fd)
	return d.errno != unix.EAGAIN
}

// readRaw takes from a socket what it has. It never waits, so the runtime need not be told.
func (d *direct) readRaw(fd uintptr) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(d.into))), uintptr(len(d.into)))
		d.got, d.errno = int(n), errno
		if errno != unix.EINTR {
			return
		}
	}
}

// writeRaw gives a socket what it takes, likewise.
func (d *direct) writeRaw(fd uintptr, part net.Buffers) (int, error) {
	d.iov = d.iov[:0]
	for _, b := range part {
		v := unix.Iovec{Base: unsafe.SliceData(b)}
		v.SetLen(len(b))
		d.iov = append(d.iov, v)
	}
	n, _, errno := unix.RawSyscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(unsafe.SliceData(d.iov))), uintptr(len(d.iov)))
	clear(d.iov)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// rawBytes are written at most without the runtime's knowledge: some 50 µs, for which it cannot stop the goroutine.
const rawBytes = 256 << 10

func total(bufs net.Buffers) int {
	n := 0
	for _, b := range bufs {
		n += len(b)
	}
	return n
}

func (d *direct) once(fd uintptr) bool {
	raw := d.beats() && total(d.bufs) <= rawBytes
	for len(d.bufs) > 0 {
		part := d.bufs
		if d.apart {
			part = part[:together(part)]
		}
		var n int
		var err error
		if raw && len(part) <= batchFrames {
			n, err = d.writeRaw(fd, part)
		} else if len(part) == 1 {
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
