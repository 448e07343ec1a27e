package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// Children starts child processes that run this program, whatever has become of its file.
type Children struct {
	starts  chan func() // run on the thread that children are started from
	ended   chan struct{}
	running sync.WaitGroup

	lock   sync.Mutex
	closed bool
	live   map[*Process]struct{}

	noDeathSignal bool // for tests of what other systems have to do without
}

var _ Launcher = (*Children)(nil)

// NewChildren returns a launcher without processes. It keeps one thread: Linux kills a child when the thread that started it ends, which
// with any other thread could be at any time. Close ends the launcher.
func NewChildren() *Children {
	c := &Children{starts: make(chan func()), ended: make(chan struct{}), live: map[*Process]struct{}{}}
	go func() {
		defer close(c.ended)
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		for start := range c.starts {
			start()
		}
	}()
	return c
}

// Start implements Launcher. It returns when the process runs; that it has called Enter is not known yet.
func (c *Children) Start(ctx context.Context, s Spec) (*Process, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	fail := func(err error) (*Process, error) { return nil, fmt.Errorf("launch: start %s: %w", s.Name, err) }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if s.Dir != "" { // the system's own error would name the program
		if st, err := os.Stat(s.Dir); err != nil {
			return fail(fmt.Errorf("its working directory: %w", err))
		} else if !st.IsDir() {
			return fail(fmt.Errorf("its working directory: %s is none", s.Dir))
		}
	}
	path, err := program()
	if err != nil {
		return fail(err)
	}
	var files []*os.File
	defer func() { // what the child has, this process need not keep
		for _, f := range files {
			f.Close()
		}
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			if r, w, err = os.Pipe(); err != nil {
				err = fmt.Errorf("a pipe: %w", err)
			}
		}
		return r, w
	}
	lifelineR, lifelineW := pipe()
	stdoutR, stdoutW := pipe()
	stderrR, stderrW := pipe()
	for _, f := range []*os.File{lifelineR, stdoutW, stderrW} {
		if f != nil {
			files = append(files, f)
		}
	}
	abandon := func(err error) (*Process, error) {
		for _, f := range []*os.File{lifelineW, stdoutR, stderrR} {
			if f != nil {
				f.Close()
			}
		}
		return fail(err)
	}
	if err != nil {
		return abandon(err)
	}
	cmd := &exec.Cmd{
		Path: path, Args: append([]string{os.Args[0], childArgument + s.Name}, s.Args...), Dir: s.Dir, Stdout: stdoutW, Stderr: stderrW,
		SysProcAttr: attributes(!c.noDeathSignal),
	}
	give(cmd, lifelineR)

	line := &closer{file: lifelineW}
	p := &Process{name: s.Name, exited: make(chan struct{}), began: time.Now()}
	p.signal = func(sig os.Signal) error { return send(cmd.Process, lifelineW, p.exited, sig) }
	if err := c.start(ctx, cmd, s, p); err != nil {
		return abandon(err)
	}

	var lastLines last
	var printing sync.WaitGroup
	printing.Go(func() { passOn(stdoutR, s.Stdout, nil) })
	printing.Go(func() { passOn(stderrR, s.Stderr, &lastLines) })
	// A child that does not read its configuration breaks the pipe at its end.
	printing.Go(func() { _ = writeConfig(lifelineW, s.Config) })
	go func() {
		defer c.running.Done()
		state, err := cmd.Process.Wait()
		at := time.Now()
		line.close()
		// What the child printed is in the pipes, and their ends are there too, unless something that it started holds them open.
		end := at.Add(printWait)
		_, _ = stdoutR.SetReadDeadline(end), stderrR.SetReadDeadline(end)
		printed := make(chan struct{})
		go func() { printing.Wait(); close(printed) }()
		select {
		case <-printed:
		case <-time.After(time.Until(end)): // also where the writer of the Spec takes its time
		}
		exit := Exit{At: at, Err: err, Stderr: lastLines.get()}
		if err == nil {
			exit.Code, exit.Signal = state.ExitCode(), signalOf(state)
		}
		c.lock.Lock()
		delete(c.live, p)
		c.lock.Unlock()
		p.end(exit)
		<-printed
		stdoutR.Close()
		stderrR.Close()
	}()
	return p, nil
}

// printWait is how long what a child has printed is read after its end, where that does not end by itself. It is longer than a busy machine
// keeps those who read waiting: after 100 ms a child's last words were lost at times.
const printWait = time.Second

// start runs cmd.Start on the launcher's thread, with the cores that the child is to have, which it inherits.
func (c *Children) start(ctx context.Context, cmd *exec.Cmd, s Spec, p *Process) error {
	c.lock.Lock()
	if c.closed {
		c.lock.Unlock()
		return errors.New("the launcher was closed")
	}
	c.running.Add(1) // from here on Close waits
	c.lock.Unlock()
	result := make(chan error, 1)
	run := func() {
		restore, err := pin(s.CPUs)
		var leave func() error
		if err == nil {
			leave, err = enter(s.Space)
		}
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			p.pid = cmd.Process.Pid
			c.lock.Lock()
			c.live[p] = struct{}{}
			c.lock.Unlock()
		}
		for _, f := range []func() error{leave, restore} {
			if f != nil {
				err = errors.Join(err, f())
			}
		}
		result <- err
	}
	var err error
	select {
	case c.starts <- run:
		err = <-result
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		c.running.Done()
	}
	return err
}

// Close implements Launcher.
func (c *Children) Close() error {
	c.lock.Lock()
	if c.closed {
		c.lock.Unlock()
		<-c.ended
		return nil
	}
	c.closed = true
	c.lock.Unlock()
	// A start that was under way may add one more: so until none is left.
	done := make(chan struct{})
	go func() { c.running.Wait(); close(done) }()
	var errs []error
	for {
		c.lock.Lock()
		live := make([]*Process, 0, len(c.live))
		for p := range c.live {
			live = append(live, p)
		}
		c.lock.Unlock()
		for _, p := range live {
			if err := p.Kill(); err != nil {
				errs = append(errs, err)
			}
		}
		select {
		case <-done:
			close(c.starts)
			<-c.ended
			return errors.Join(errs...)
		case <-time.After(10 * time.Millisecond):
			errs = nil
		}
	}
}

// passOn copies what a child prints, line by line, until it ends.
func passOn(r *os.File, w io.Writer, keep *last) {
	l := &lines{emit: func(line []byte) error {
		if keep != nil {
			keep.add(line)
		}
		if w != nil {
			// Who cannot print what a child prints does not end the child for it.
			_, _ = w.Write(append(append(make([]byte, 0, len(line)+1), line...), '\n'))
		}
		return nil
	}}
	_, _ = io.Copy(l, r)
	l.flush()
}
