package transport

import (
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Memory that processes of a host share, here sharedMemory and Segment: a file without a name, which one makes and passes to others over a
// unix socket.

// sharedSeals are the seals of such a file: nobody can resize it, since reading beyond a file's end kills the process.
const sharedSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// makeShared makes a file of n bytes that nobody can resize, and maps it.
func makeShared(n int) (int, []byte, error) {
	fd, err := unix.MemfdCreate("trivium", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, nil, os.NewSyscallError("memfd_create", err)
	}
	var p []byte
	if err = unix.Ftruncate(fd, int64(n)); err == nil {
		if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sharedSeals); err == nil {
			p, err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		}
	}
	if err != nil {
		_ = unix.Close(fd) // it is of no use
		return -1, nil, fmt.Errorf("%d bytes: %w", n, err)
	}
	return fd, p, nil
}

// mapShared maps a peer's file, if it can never be less than n bytes.
func mapShared(fd, n, prot int) ([]byte, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("the peer's file is no memory: %w", err)
	}
	if seals&sharedSeals != sharedSeals {
		return nil, fmt.Errorf("the peer's memory has the seals %#x, want %#x: it could be cut off under our hands", seals, sharedSeals)
	}
	// Huge pages by reservation are also sealed, but reading one that cannot be had kills the process.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return nil, fmt.Errorf("the peer's file: %w", err)
	} else if fs.Type != unix.TMPFS_MAGIC {
		return nil, fmt.Errorf("the peer's file is on file system %#x, want %#x", fs.Type, unix.TMPFS_MAGIC)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("the peer's file: %w", err)
	} else if st.Size != int64(n) {
		return nil, fmt.Errorf("the peer's memory has %d bytes, want %d", st.Size, n)
	}
	return unix.Mmap(fd, 0, n, prot, unix.MAP_SHARED)
}

// sendFile writes b, and with it the file fd; -1: none.
func sendFile(c *net.UnixConn, b []byte, fd int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	n, _, err := c.WriteMsgUnix(b, rights, nil)
	if err == nil && n < len(b) {
		_, err = c.Write(b[n:])
	}
	return err
}

// receiveFiles fills b and returns the files that came with it, which the caller closes, also those beside an error.
func receiveFiles(c *net.UnixConn, b []byte) (fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := c.ReadMsgUnix(b, oob)
	fds = passedFiles(oob[:oobn])
	if err == nil {
		_, err = io.ReadFull(c, b[n:])
	}
	return fds, err
}

// passedFiles returns the files in the control part of a message.
func passedFiles(oob []byte) []int {
	var fds []int
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil // cut off: the kernel closed them
	}
	for i := range messages {
		if more, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	return fds
}

func closeFiles(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
