package transport

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAnothersSocket: where a process of another user listens, nothing is sent, though no secret is asked for.
func TestAnothersSocket(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not run here: only root can listen as another user")
	}
	path := filepath.Join(t.TempDir(), "another.sock")
	another := &carrier{listeners: []net.Listener{listenAs(t, path, 65534)}, sum: func(net.Conn, string) bool { return false }}
	listening := openPort(Name{ID: "another"}, Options{}, another)
	defer listening.Close()
	p, err := Unix{Dir: t.TempDir()}.Open(t.Context(), Name{ID: "a"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := p.Stream("s", StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Know(listening.Name(), unixScheme+path); err != nil {
		t.Fatal(err)
	}
	if err := s.Send(t.Context(), listening.Name(), Frame{}); err == nil || !strings.Contains(err.Error(), "is user 65534's, this one user 0's") {
		t.Errorf("send: error %v, want one that says whose process it is", err)
	}
}

// listenAs listens at path as that user.
func listenAs(t *testing.T, path string, uid uintptr) net.Listener {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const same = ^uintptr(0)
	become := func(uid uintptr) { // this thread alone
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uid, same); errno != 0 {
			t.Fatal(errno)
		}
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	become(uid)
	err = unix.Listen(fd, 16)
	become(0)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}
