//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package processes

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// lockFolder locks a folder of this user's, until unlock is called or this process is gone: its children do not inherit the lock.
func lockFolder(path string) (unlock func() error, err error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errHeld
	}
	if err != nil {
		return nil, err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(s.Uid) != os.Getuid() {
		return nil, errHeld
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errHeld
	}
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errHeld
		}
		return nil, err
	}
	return f.Close, nil
}
