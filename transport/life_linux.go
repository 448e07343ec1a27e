package transport

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// A life is a socket at which a process listens and never says a word: who is connected hears of the process's death, at once.
//
// The kernel takes a killed process down thread by thread, and closes the files that all threads share after it has given back the
// memory: 1 ms after the kill where little is in use, 7 ms with 64 MiB, 60 ms with 512 MiB. So this socket belongs to a thread that
// does nothing else and shares its files with no other: they go with the thread, 0.1 ms after the kill. Only if that thread is the
// last to go are they as late as all others.
type life struct {
	path  string
	news  chan struct{} // peers may have come and gone; has room for one
	over  chan struct{} // closed: the thread is to end
	ended chan struct{}
}

// openLife listens at path. What a dead process left there is replaced.
func openLife(path string) (*life, error) {
	l := &life{path, make(chan struct{}, 1), make(chan struct{}), make(chan struct{})}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ready := make(chan error, 1)
	go l.hold(ready, make(chan struct{}))
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("transport: listen at %s: %w", path, err)
	}
	return l, nil
}

// hold keeps the socket, on a thread that ends with it.
func (l *life) hold(ready chan<- error, locked chan<- struct{}) {
	runtime.LockOSThread() // never unlocked: the thread is of no use to others
	close(locked)
	if unix.Gettid() == unix.Getpid() { // the first thread cannot end before all, and its files are those that /proc shows
		again := make(chan struct{})
		go l.hold(ready, again)
		<-again
		runtime.UnlockOSThread()
		return
	}
	defer close(l.ended)
	fd, err := l.listen()
	ready <- err
	if err != nil {
		return
	}
	var peers []unix.PollFd
	for {
		select {
		case <-l.news:
			peers = meet(fd, peers)
		case <-l.over:
			_ = unix.Close(fd) // the thread ends anyway
			for _, p := range peers {
				_ = unix.Close(int(p.Fd))
			}
			return
		}
	}
}

// meet accepts who has connected since, and closes what is left of those who are gone. One that nobody accepts takes its place in the queue
// for ever, also when it is gone: of a port that lives long, and whose peers come and go, the later ones would find no room.
func meet(fd int, peers []unix.PollFd) []unix.PollFd {
	for {
		peer, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
		if err != nil {
			break // that is all; or there are no more files, and it stays in the queue
		}
		peers = append(peers, unix.PollFd{Fd: int32(peer)})
	}
	if _, err := unix.Poll(peers, 0); err != nil {
		return peers // interrupted: the next time
	}
	return slices.DeleteFunc(peers, func(p unix.PollFd) bool {
		gone := p.Revents != 0
		if gone {
			_ = unix.Close(int(p.Fd))
		}
		return gone
	})
}

// tend has the thread see who has come and gone.
func (l *life) tend() {
	select {
	case l.news <- struct{}{}:
	default: // it will
	}
}

// listen gives the thread files of its own, and among them the socket.
func (l *life) listen() (int, error) {
	if err := ownFiles(); err != nil {
		return -1, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: l.path})
	}
	if err == nil {
		err = os.Chmod(l.path, 0o600)
	}
	if err == nil {
		err = unix.Listen(fd, lifeBacklog)
	}
	return fd, err
}

// ownFiles gives the calling thread its own table of files, and leaves in it what the Go runtime may use on any thread: the
// network poller, which it asks when a garbage collection that began here lets the world go on (without it the process ends), and
// standard error.
func ownFiles() error {
	r, w, err := os.Pipe() // the poller exists from now on
	if err := errors.Join(err, r.Close(), w.Close()); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_FILES); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	const own = "/proc/thread-self/fd"
	files, err := os.ReadDir(own)
	if err != nil {
		return err
	}
	for _, f := range files {
		fd, err := strconv.Atoi(f.Name())
		if err != nil || fd == unix.Stderr {
			continue
		}
		switch at, _ := os.Readlink(filepath.Join(own, f.Name())); at {
		case "anon_inode:[eventpoll]", "anon_inode:[eventfd]":
		default:
			_ = unix.Close(fd)
		}
	}
	return nil
}

const lifeBacklog = 4096 // of peers that come at once; the system may allow fewer, and who finds no room does without

// leave gives the path up, before the port gives up its name: from then on it is the next one's. Who is connected stays so.
func (l *life) leave() error { return os.Remove(l.path) }

// Close tells those who are connected that this port is gone.
func (l *life) Close() error {
	close(l.over)
	<-l.ended
	return nil
}
