package transport

import (
	"errors"
	"io"
	"math"
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
	fd    int32                 // to be asked about, not to be used: after Close it may be another's
	apart bool                  // see together
	call  func(fd uintptr) bool // bound once: no allocation per call
	bufs  net.Buffers           // what is left, but for the first from bytes
	from  int
	n     int
	err   error

	beats func() bool // calls may do without the runtime
	iov   []unix.Iovec
	asked int // bytes of iov

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
	if raw.Control(func(fd uintptr) { d.fd = int32(fd) }) != nil {
		return nil
	}
	return d
}

// write writes what the socket takes at once.
func (d *direct) write(bufs net.Buffers) (int, error) {
	d.bufs, d.from, d.n, d.err = bufs, 0, 0, nil
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

// A readiness asks the system about several connections at once.
type readiness struct{ asked []unix.PollFd }

// any reports whether one of them has something to read, or has ended.
func (r *readiness) any(all []*direct) bool {
	r.asked = r.asked[:0]
	for _, d := range all {
		r.asked = append(r.asked, unix.PollFd{Fd: d.fd, Events: unix.POLLIN})
	}
	var at unix.Timespec // at once
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(r.asked))), uintptr(len(r.asked)), uintptr(unsafe.Pointer(&at)), 0, 0, 0)
	return errno == 0 && n > 0
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

// rawBytes are written at most in one call without the runtime's knowledge: some 50 µs, for which it cannot stop the goroutine. They are whole
// lines of the cache, so that the next call's copy is in step with them too.
const rawBytes = 4 * burst &^ 63

// once writes until nothing is left, or the socket is full.
func (d *direct) once(fd uintptr) bool {
	raw, most := d.beats(), math.MaxInt
	if raw {
		most = rawBytes
	}
	for d.gather(most) {
		var n uintptr
		var errno syscall.Errno
		if raw {
			n, _, errno = unix.RawSyscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(unsafe.SliceData(d.iov))), uintptr(len(d.iov)))
		} else {
			n, _, errno = unix.Syscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(unsafe.SliceData(d.iov))), uintptr(len(d.iov)))
		}
		clear(d.iov)
		switch errno {
		case 0:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return true
		default:
			d.err = errno
			return true
		}
		d.n += int(n)
		if int(n) < d.asked {
			return true
		}
		d.advance(int(n))
	}
	return true
}

// gather lays out what the next call writes, most bytes of it, and reports whether there is anything.
func (d *direct) gather(most int) bool {
	part := d.bufs
	if d.apart {
		part = part[:together(part)]
	}
	d.iov, d.asked = d.iov[:0], 0
	from := d.from
	for _, b := range part {
		n := min(len(b)-from, most-d.asked)
		if n <= 0 {
			break
		}
		v := unix.Iovec{Base: &b[from]}
		v.SetLen(n)
		d.iov = append(d.iov, v)
		d.asked += n
		from = 0
	}
	return d.asked > 0
}

// advance drops n bytes that are written. The buffers themselves are the caller's, and stay as they are.
func (d *direct) advance(n int) {
	for d.from += n; len(d.bufs) > 0 && d.from >= len(d.bufs[0]); d.bufs = d.bufs[1:] {
		d.from -= len(d.bufs[0])
	}
}
