package transport

import (
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLifeCollects: a garbage collection that begins on the thread of a life asks the runtime's poller there. Without the poller's file
// the whole process ends: "epollwait failed".
func TestLifeCollects(t *testing.T) {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		fd, err := (&life{path: filepath.Join(t.TempDir(), "life")}).listen()
		for range 10 {
			runtime.GC()
		}
		_ = unix.Close(fd)
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}
