//go:build unix

package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// RunProcesses starts commands, which are the nodes 0, 1, 2 ... of the plan, and does its Crash faults (SIGKILL; when For is over the
// same command is started again) and Pause faults (SIGSTOP, then SIGCONT) to them, and to no other process. It returns when all have
// ended and the plan is done; when ctx ends it kills what still runs. A child that ends otherwise is in the record, and is no error.
func RunProcesses(ctx context.Context, cmds []*exec.Cmd, p Plan) (*Record, error) {
	if err := p.check(len(cmds)); err != nil {
		return nil, err
	}
	for _, f := range p {
		if f.Kind != Crash && f.Kind != Pause || slices.Contains(f.Nodes, Meta) {
			return nil, fmt.Errorf("sim: plan: fault %q: processes can only crash and pause", f)
		}
	}
	x := &children{begun: time.Now(), all: make([]*child, len(cmds))}
	for i, cmd := range cmds {
		x.all[i] = &child{x: x, node: Node(i), cmd: cmd}
	}
	defer x.wg.Wait()
	for _, c := range x.all {
		if err := c.start(); err != nil {
			x.killAll()
			return &x.record, err
		}
	}
	err := x.follow(ctx, p)
	if err == nil {
		err = x.wait(ctx)
	}
	if err != nil {
		x.killAll()
	}
	x.wg.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	return &x.record, err
}

// children are the processes of one RunProcesses.
type children struct {
	begun time.Time
	all   []*child
	wg    sync.WaitGroup

	mu     sync.Mutex
	record Record
}

// child is one command, through its restarts.
type child struct {
	x    *children
	node Node

	mu      sync.Mutex
	cmd     *exec.Cmd // the running one, or the last one
	running bool
	ended   chan struct{}
}

// follow does the plan's faults at their times.
func (x *children) follow(ctx context.Context, p Plan) error {
	var steps heap
	var what []func() error
	add := func(at time.Duration, f func() error) {
		steps.push(entry{int64(at), uint64(len(what)), int32(len(what))})
		what = append(what, f)
	}
	for _, f := range p {
		for _, n := range f.Nodes {
			c := x.all[n]
			switch f.Kind {
			case Crash:
				add(f.At, func() error { return c.signal(syscall.SIGKILL) })
				if f.For > 0 {
					add(f.At+f.For, c.again)
				}
			case Pause:
				add(f.At, func() error { return c.signal(syscall.SIGSTOP) })
				if f.For > 0 {
					add(f.At+f.For, func() error { return c.signal(syscall.SIGCONT) })
				}
			}
		}
	}
	for len(steps) > 0 {
		e := steps.pop()
		if err := sleep(ctx, e.at-int64(time.Since(x.begun))); err != nil {
			return err
		}
		if err := what[e.slot](); err != nil {
			return err
		}
	}
	return nil
}

func (x *children) wait(ctx context.Context) error {
	for _, c := range x.all {
		select {
		case <-c.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (x *children) killAll() {
	for _, c := range x.all {
		_ = c.signal(syscall.SIGKILL)
	}
}

func (x *children) note(n Node, pid int, what string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.record.Events = append(x.record.Events, ProcessEvent{At: time.Since(x.begun), Node: n, PID: pid, What: what, Err: err})
}

func (c *child) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("sim: start process %d: %w", c.node, err)
	}
	c.running = true
	c.ended = make(chan struct{})
	cmd, ended := c.cmd, c.ended
	c.x.note(c.node, cmd.Process.Pid, "start", nil)
	c.x.wg.Go(func() {
		err := cmd.Wait()
		c.mu.Lock()
		c.running = false
		c.mu.Unlock()
		c.x.note(c.node, cmd.Process.Pid, "exit", err)
		close(ended)
	})
	return nil
}

// again starts the same command once more, when the old process is gone.
func (c *child) again() error {
	<-c.ended
	c.mu.Lock()
	old := c.cmd
	c.cmd = &exec.Cmd{
		Path: old.Path, Args: old.Args, Env: old.Env, Dir: old.Dir, Stdin: old.Stdin, Stdout: old.Stdout, Stderr: old.Stderr,
		ExtraFiles: old.ExtraFiles, SysProcAttr: old.SysProcAttr,
	}
	c.mu.Unlock()
	return c.start()
}

// signal sends to the child while it runs: the process is not reaped before, so that the number is still its own.
func (c *child) signal(s syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running {
		return nil
	}
	err := c.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	c.x.note(c.node, c.cmd.Process.Pid, s.String(), err)
	if err != nil {
		return fmt.Errorf("sim: signal process %d: %w", c.node, err)
	}
	return nil
}
