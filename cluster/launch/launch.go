// Package launch starts the other processes of a job on this machine: as goroutines, or as child processes that run this very program.
//
// A [Launcher] starts what a [Spec] says, and returns a [Process] that can be stopped and whose [Exit] tells how it ended:
//
//	children := launch.NewChildren()
//	defer children.Close()
//	p, err := children.Start(ctx, launch.Spec{Name: "worker/0", Args: []string{"worker"}, Config: secret})
//	<-p.Exited()
//	log(p.Exit())
//
// A program that is to be started so calls [Enter] before it looks at its arguments:
//
//	if child, ok, err := launch.Enter(os.Args); ok {
//		return work(child.Args, child.Config)
//	}
//
// A child never outlives its parent, however that ends. Its configuration reaches it through a pipe, so that no secret stands in its
// arguments or environment, which others on the machine can read.
package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// A Launcher starts processes. [Children] and [Goroutines] are two; a cluster's scheduler may be another.
type Launcher interface {
	// Start starts one process. ctx limits the start alone.
	Start(ctx context.Context, s Spec) (*Process, error)
	// Close ends the processes that still run, at once, and waits until they have ended.
	Close() error
}

// MaxConfig is the largest configuration of a process, in bytes.
const MaxConfig = 1 << 20

// A Spec is what to start. Only Name is required.
type Spec struct {
	Name   string    // in errors and logs, such as worker/0
	Args   []string  // its arguments, which everyone on the machine may read
	Config []byte    // what only it may read: at most MaxConfig bytes
	Dir    string    // its working directory; "": this process's
	CPUs   []int     // the cores that it may run on; nil: all. Linux only; goroutines share their process's
	Space  string    // file of the network namespace that it is to live in; "": this process's. Linux only, and where that is permitted
	Stdout io.Writer // gets each line that it prints, in one Write; nil discards
	Stderr io.Writer // likewise; the last lines are in its Exit besides
}

func (s *Spec) validate() error {
	var errs []error
	if s.Name == "" {
		errs = append(errs, errors.New("it has no name"))
	}
	if len(s.Config) > MaxConfig {
		errs = append(errs, fmt.Errorf("its configuration has %d bytes, and at most %d go through the pipe", len(s.Config), MaxConfig))
	}
	for _, c := range s.CPUs {
		if c < 0 || c >= maxCPUs {
			errs = append(errs, fmt.Errorf("core %d: want 0 to %d", c, maxCPUs-1))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("launch: start %s: %w", s.Name, err)
	}
	return nil
}

// maxCPUs is what the set of cores of the system call holds.
const maxCPUs = 1024

// A Process was started. Its methods may be called from any goroutine.
type Process struct {
	name   string
	pid    int
	began  time.Time
	signal func(os.Signal) error
	exited chan struct{}

	lock sync.Mutex
	exit Exit
}

// Name is the Spec's.
func (p *Process) Name() string { return p.name }

// PID is the system's number of the process; for a goroutine, that of its own process.
func (p *Process) PID() int {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.pid
}

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Exit says how the process ended, once Exited is closed.
func (p *Process) Exit() Exit {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.exit
}

func (p *Process) end(e Exit) {
	p.lock.Lock()
	e.Name, e.PID, e.Ran = p.name, p.pid, e.At.Sub(p.began)
	p.exit = e
	p.lock.Unlock()
	close(p.exited)
}

// Signal sends s. A process that has ended gets none: os.ErrProcessDone. On Windows, and to a goroutine, os.Interrupt and SIGTERM arrive
// as Child.Stop.
func (p *Process) Signal(s os.Signal) error {
	if err := p.signal(s); err != nil {
		return fmt.Errorf("launch: signal %s (process %d): %w", p.name, p.PID(), err)
	}
	return nil
}

// Kill ends the process at once. A goroutine has its context cancelled, which is all that can be done to it.
func (p *Process) Kill() error {
	err := p.Signal(os.Kill)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// An Exit is how a process ended.
type Exit struct {
	Name   string
	PID    int
	Code   int       // 0: it did what it was to do. -1 with a Signal
	Signal os.Signal // that ended it; nil: none did
	Err    error     // a goroutine's error, or why nothing is known of the end
	At     time.Time // when it was seen
	Ran    time.Duration
	Stderr []string // its last lines
}

// OK tells whether the process ended by itself and without an error.
func (e Exit) OK() bool { return e.Code == 0 && e.Signal == nil && e.Err == nil }

// String says how the process ended, in one line, without what it printed.
func (e Exit) String() string {
	s := fmt.Sprintf("%s (process %d) ", e.Name, e.PID)
	switch {
	case e.Err != nil:
		s += fmt.Sprintf("failed: %v", e.Err)
	case e.Signal == os.Kill:
		s += "was killed: by somebody, or by the system for its memory"
	case e.Signal != nil:
		s += fmt.Sprintf("was ended by a signal: %v", e.Signal)
	default:
		s += fmt.Sprintf("exited with code %d", e.Code)
	}
	return s + fmt.Sprintf(", after %v", e.Ran.Round(time.Millisecond))
}

// AsError is nil if e is OK, else an error with String and the last lines.
func (e Exit) AsError() error {
	if e.OK() {
		return nil
	}
	text := "launch: " + e.String()
	if len(e.Stderr) > 0 {
		text += ". Its last lines:\n\t" + strings.Join(e.Stderr, "\n\t")
	}
	if e.Err != nil {
		return &exitError{text, e.Err}
	}
	return errors.New(text)
}

type exitError struct {
	text string
	err  error
}

func (e *exitError) Error() string { return e.text }
func (e *exitError) Unwrap() error { return e.err }
