package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire/control"
)

// A Node is the agent of a machine that is lent: it starts what its coordinator asks for. When the link to the coordinator is lost,
// what it started is ended, since nobody watches over it any more; when the link is back, the machine is offered again.
type Node struct {
	Stream      transport.Stream // StreamName, the node's alone
	Coordinator transport.Name
	Launcher    launch.Launcher
	Offer       Offer
	Patience    time.Duration // for a coordinator that is lost, or does not answer, before Run gives it up with a LostError; 0: as long as the group has, 2.5 s
	Log         *slog.Logger  // nil discards

	// Said is called when the coordinator has taken the offer, or the link to it is lost: nil, or the cause.
	Said func(lost error)

	mu        sync.Mutex
	processes map[uint64]*hosted
	fail      context.CancelCauseFunc // ends Run
	wait      sync.WaitGroup
}

// A hosted process is one that the node has started.
type hosted struct {
	*launch.Process
	killed bool // by the node itself
}

// offerEvery is the time between two offers to a coordinator that does not answer.
const offerEvery = time.Second

// ErrOut is the cause with which Run's context ends where nobody asked for it: the group goes on without this machine, or without its
// coordinator.
var ErrOut = errors.New("fleet: out of the group")

// Run lends the machine until ctx ends, or the coordinator refuses it. It ends what it has started. The coordinator is told that the machine
// leaves, and so does not take it for lost, unless the cause is ErrOut.
func (n *Node) Run(ctx context.Context) error {
	if n.Log == nil {
		n.Log = slog.New(slog.DiscardHandler)
	}
	n.processes = map[uint64]*hosted{}
	defer n.wait.Wait()
	defer n.killAll()
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	n.fail = fail
	events := make(chan transport.Event)
	n.wait.Go(func() {
		for {
			ev, err := n.Stream.Recv(running)
			if err != nil {
				fail(err)
				return
			}
			select {
			case events <- ev:
			case <-running.Done():
				ev.Release()
				return
			}
		}
	})
	taken := false
	if n.Patience == 0 {
		n.Patience = budget
	}
	patience := time.NewTimer(n.Patience)
	defer patience.Stop()
	tick := time.NewTicker(offerEvery)
	defer tick.Stop()
	for {
		if !taken {
			if err := send(running, n.Stream, n.Coordinator, kindOffer, n.Offer); err != nil && ctx.Err() == nil {
				n.Log.Debug("offer not sent", "error", err)
			}
		}
		select {
		case ev := <-events:
			before := taken
			err := n.hear(running, &ev, &taken)
			ev.Release()
			if err != nil {
				return err
			}
			if taken {
				patience.Stop()
			} else if before {
				patience.Reset(n.Patience)
			}
		case <-patience.C:
			return &LostError{n.Coordinator, n.Patience}
		case <-tick.C:
		case <-running.Done():
			if ctx.Err() == nil {
				return context.Cause(running)
			}
			if !errors.Is(context.Cause(ctx), ErrOut) {
				n.leave(ctx)
			}
			return nil
		}
	}
}

// A LostError says that a coordinator has not answered for so long.
type LostError struct {
	Coordinator transport.Name
	Waited      time.Duration
}

func (e *LostError) Error() string {
	return fmt.Sprintf("fleet: the coordinator %v has not answered for %v", e.Coordinator, e.Waited)
}

// A RefusedError says why a coordinator does not take a machine.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return "fleet: the coordinator refuses this machine: " + e.Why }

// leaveWait is how long a coordinator may take to be told that the machine leaves. Whoever asked for that waits, and one that does not hear
// it finds out by itself.
const leaveWait = time.Second

// leave is said before the processes are ended, so that why they end is known before others miss them.
func (n *Node) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWait)
	defer cancel()
	if err := send(ctx, n.Stream, n.Coordinator, kindLeave, nil); err != nil {
		n.Log.Debug("left without a word", "error", err)
	}
}

func (n *Node) hear(ctx context.Context, ev *transport.Event, taken *bool) error {
	if ev.From != n.Coordinator {
		return nil
	}
	if ev.What == transport.LinkLost {
		if *taken {
			*taken = false
			n.Log.Warn("the coordinator is lost; its processes are ended", "error", ev.Err)
			n.say(errors.Join(errors.New("fleet: the link to the coordinator is lost"), ev.Err))
		}
		n.killAll() // also before the welcome, which a start may overtake
		return nil
	}
	if ev.What != transport.Received {
		return nil
	}
	switch ev.Kind {
	case kindWelcome:
		if !*taken {
			*taken = true
			n.say(nil)
		}
	case kindRefused:
		var r refused
		if err := control.Decode("refusal", ev.Payload, &r); err != nil {
			return err
		}
		return &RefusedError{r.Why}
	case kindStart:
		var s start
		if err := control.Decode("start", ev.Payload, &s); err != nil {
			return err
		}
		n.start(ctx, &s)
	case kindSignal:
		var s signalled
		if err := control.Decode("signal", ev.Payload, &s); err != nil {
			return err
		}
		n.mu.Lock()
		p := n.processes[s.Seq]
		n.mu.Unlock()
		if p != nil {
			if err := p.Signal(syscall.Signal(s.Signal)); err != nil {
				n.Log.Debug("signal not sent", "error", err) // its exit is on the way
			}
		}
	}
	return nil
}

func (n *Node) say(lost error) {
	if n.Said != nil {
		n.Said(lost)
	}
}

func (n *Node) start(ctx context.Context, s *start) {
	p, err := n.Launcher.Start(ctx, launch.Spec{Name: s.Name, Args: s.Args, Config: s.Config, Stderr: lineSender{ctx, n, s.Seq}})
	h := &hosted{Process: p}
	answer := started{Seq: s.Seq}
	if err != nil {
		answer.Error = control.Text(err.Error())
	} else {
		answer.PID = p.PID()
		n.mu.Lock()
		n.processes[s.Seq] = h
		n.mu.Unlock()
	}
	n.Log.Info("process started", "name", s.Name, "pid", answer.PID, "error", answer.Error)
	n.tell(ctx, kindStarted, answer)
	if err != nil {
		return
	}
	n.wait.Go(func() {
		<-p.Exited()
		n.mu.Lock()
		delete(n.processes, s.Seq)
		killed := h.killed
		n.mu.Unlock()
		x := p.Exit()
		e := exited{Seq: s.Seq, Code: x.Code, Ran: x.Ran}
		for _, line := range x.Stderr {
			e.Stderr = append(e.Stderr, control.Text(line))
		}
		if sig, ok := x.Signal.(syscall.Signal); ok {
			e.Signal = int(sig)
		}
		if x.Err != nil {
			e.Error = control.Text(x.Err.Error())
		}
		how := x.String()
		if killed && !x.OK() { // no riddle for who reads the log
			how = fmt.Sprintf("%s (process %d) was ended by this node, after %v", x.Name, x.PID, x.Ran.Round(time.Millisecond))
		}
		n.Log.Info("process ended", "name", s.Name, "exit", how)
		n.tell(ctx, kindExited, e)
	})
}

// tell sends the coordinator what it hears of a lost link otherwise. One that takes nothing, and keeps its link, would never know it: it
// is given up.
func (n *Node) tell(ctx context.Context, kind uint8, v any) {
	err := send(ctx, n.Stream, n.Coordinator, kind, v)
	if err == nil {
		return
	}
	n.Log.Debug("not told to the coordinator", "kind", kind, "error", err)
	if errors.Is(err, context.DeadlineExceeded) {
		n.fail(&LostError{n.Coordinator, sendWait})
	}
}

// A lineSender sends the lines of a process's standard error to the coordinator.
type lineSender struct {
	ctx context.Context
	n   *Node
	seq uint64
}

func (l lineSender) Write(p []byte) (int, error) {
	l.n.tell(l.ctx, kindLine, line{l.seq, p})
	return len(p), nil
}

func (n *Node) killAll() {
	n.mu.Lock()
	var all []*hosted
	for _, h := range n.processes {
		h.killed = true
		all = append(all, h)
	}
	n.mu.Unlock()
	for _, h := range all {
		if err := h.Kill(); err != nil {
			n.Log.Error("not killed", "error", fmt.Sprint(err))
		}
	}
}
