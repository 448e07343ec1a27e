package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// A jobLog is what a job prints: a file that grows, and that others follow.
type jobLog struct {
	path string

	mu      sync.Mutex
	f       *os.File // nil: nothing is added any more
	size    int64    // bytes; of one that is full, more than maxLog
	failed  error    // of the first Write that did
	changed chan struct{}
}

// maxLog bounds a log: a job may print at each update for weeks, and the disk is that of all jobs. The largest measurement of bench net,
// which is a job's log too, is half of it.
const maxLog = 64 << 20

// newJobLog begins the log of a job that has not begun.
func newJobLog(path string) (*jobLog, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &jobLog{path: path, f: f, changed: make(chan struct{})}, nil
}

// endedLog is that of a job that ended before this coordinator began.
func endedLog(path string) *jobLog { return &jobLog{path: path, changed: make(chan struct{})} }

func (l *jobLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return 0, os.ErrClosed
	}
	if l.size > maxLog { // the job goes on all the same
		return len(p), nil
	}
	words := p
	if l.size += int64(len(p)); l.size > maxLog {
		words = fmt.Appendf(nil, "this log is full: of what the job prints, %d MiB are kept, and nothing from here on\n", maxLog>>20)
	}
	_, err := l.f.Write(words)
	if l.failed == nil {
		l.failed = err
	}
	close(l.changed)
	l.changed = make(chan struct{})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close says that nothing is added any more. It returns why the log is incomplete, if it is.
func (l *jobLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	err := errors.Join(l.failed, l.f.Close())
	l.f = nil
	close(l.changed)
	l.changed = make(chan struct{})
	return err
}

// copyTo writes the log to w, and, if it is to follow, what is added, until the job has ended or ctx does. flush is called when w has
// all that there is.
func (l *jobLog) copyTo(ctx context.Context, w io.Writer, follow bool, flush func()) error {
	f, err := os.Open(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it has printed nothing
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		l.mu.Lock()
		changed, more := l.changed, l.f != nil
		l.mu.Unlock()
		if _, err := io.Copy(w, f); err != nil {
			return err
		}
		flush()
		if !follow || !more {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
