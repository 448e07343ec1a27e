package fleet

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
)

// A jobLog is what a job prints: a file that grows, and that others follow.
type jobLog struct {
	path string

	mu      sync.Mutex
	f       *os.File // nil: nothing is added any more
	failed  error    // of the first Write that did
	changed chan struct{}
}

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
	n, err := l.f.Write(p)
	if l.failed == nil {
		l.failed = err
	}
	close(l.changed)
	l.changed = make(chan struct{})
	return n, err
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
