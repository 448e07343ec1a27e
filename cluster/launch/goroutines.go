package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
)

// Goroutines starts goroutines of this process, for tests and for several workers in one process. They share its memory, and a fault of
// one that Go cannot catch ends all.
type Goroutines struct {
	run     func(ctx context.Context, c Child) error
	cancel  context.CancelCauseFunc
	ctx     context.Context // of all
	running sync.WaitGroup

	lock   sync.Mutex
	closed bool
}

var _ Launcher = (*Goroutines)(nil)

// NewGoroutines returns a launcher whose processes are calls of run. A call gets the wish that it end as Child.Stop; its context ends when
// it is killed, and then it must return: Close waits for it.
func NewGoroutines(run func(ctx context.Context, c Child) error) *Goroutines {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Goroutines{run: run, ctx: ctx, cancel: cancel}
}

var errKilled = errors.New("killed")

// Start implements Launcher. Spec.Dir, Spec.CPUs and Spec.Space have no meaning for a goroutine, and must be empty.
func (g *Goroutines) Start(ctx context.Context, s Spec) (*Process, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	if s.Dir != "" || s.CPUs != nil || s.Space != "" {
		return nil, fmt.Errorf("launch: start %s: a goroutine has no directory and no cores of its own", s.Name)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("launch: start %s: %w", s.Name, err)
	}
	g.lock.Lock()
	defer g.lock.Unlock()
	if g.closed {
		return nil, fmt.Errorf("launch: start %s: the launcher was closed", s.Name)
	}
	of, cancel := context.WithCancelCause(g.ctx)
	stop := make(chan struct{})
	var stopped sync.Once
	context.AfterFunc(of, func() { stopped.Do(func() { close(stop) }) }) // killed, by Close too: Child.Stop says so
	p := &Process{name: s.Name, pid: os.Getpid(), exited: make(chan struct{}), began: time.Now()}
	p.signal = func(sig os.Signal) error {
		select {
		case <-p.exited:
			return os.ErrProcessDone
		default:
		}
		switch sig {
		case os.Kill:
			cancel(errKilled)
		case os.Interrupt, syscall.SIGTERM:
			stopped.Do(func() { close(stop) })
		default:
			return fmt.Errorf("a goroutine cannot get %v", sig)
		}
		return nil
	}
	var kept last
	stderr := &lines{emit: func(line []byte) error {
		kept.add(line)
		if s.Stderr == nil {
			return nil
		}
		_, err := s.Stderr.Write(append(append(make([]byte, 0, len(line)+1), line...), '\n'))
		return err
	}}
	stdout := &lines{emit: func(line []byte) error {
		if s.Stdout == nil {
			return nil
		}
		_, err := s.Stdout.Write(append(append(make([]byte, 0, len(line)+1), line...), '\n'))
		return err
	}}
	child := Child{
		Name: s.Name, Args: append([]string(nil), s.Args...), Config: append([]byte(nil), s.Config...), Stop: stop,
		Stdout: stdout, Stderr: stderr,
	}
	g.running.Go(func() {
		err := call(of, g.run, child, stderr)
		stdout.flush()
		stderr.flush()
		exit := Exit{At: time.Now(), Stderr: kept.get()}
		switch {
		case errors.Is(context.Cause(of), errKilled):
			exit.Code, exit.Signal = -1, os.Kill
		case err != nil:
			exit.Code, exit.Err = 1, err
		}
		cancel(nil)
		p.end(exit)
	})
	return p, nil
}

// call runs run, and turns a panic into an error.
func call(ctx context.Context, run func(context.Context, Child) error, c Child, stderr io.Writer) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
			_, _ = stderr.Write(debug.Stack())
		}
	}()
	return run(ctx, c)
}

// Close implements Launcher.
func (g *Goroutines) Close() error {
	g.lock.Lock()
	g.closed = true
	g.lock.Unlock()
	g.cancel(errKilled)
	g.running.Wait()
	return nil
}
