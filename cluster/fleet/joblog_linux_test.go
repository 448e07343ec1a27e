package fleet

import (
	"errors"
	"syscall"
	"testing"
)

// TestLogOnAFullDisk: that a job's words were lost is known when its log is closed.
func TestLogOnAFullDisk(t *testing.T) {
	l, err := newJobLog("/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Write([]byte("a line\n")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write to a full disk: %v", err)
	}
	if err := l.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("its log is closed with %v, want no space left", err)
	}
}
