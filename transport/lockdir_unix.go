//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package transport

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockWait is some thousand times as long as who listens has the lock.
const lockWait = time.Second

// lockDir waits until no other process has locked the directory of sockets, and locks it until unlock is called or this process is gone. Where
// its file system has no locks it does nothing. The lock is a file's in it, which goes with the lock: that of the directory itself is for
// whoever owns that, who may hold it as long as he lives. A process that was stopped while it had the lock is waited for no longer than
// lockWait, or than ctx.
func lockDir(ctx context.Context, path string) (unlock func()) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	path = filepath.Join(path, ".lock")
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return func() {} // who listens there will say why not
		}
		for errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
			select {
			case <-time.After(time.Millisecond):
				continue
			case <-ctx.Done():
			}
			return func() { _ = f.Close() }
		}
		mine, err := f.Stat()
		if now, statErr := os.Stat(path); err != nil || statErr == nil && os.SameFile(mine, now) {
			return func() {
				_ = os.Remove(path) // whoever waits for it finds that it is gone, and makes another
				_ = f.Close()
			}
		}
		_ = f.Close()
	}
}
