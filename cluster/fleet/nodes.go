package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire/control"
)

// lentNodes are the machines lent to this coordinator.
type lentNodes struct {
	s     transport.Stream
	build string
	log   *slog.Logger

	changed chan struct{} // 1: the list has changed since it was last received from

	mu   sync.Mutex
	lent []*lent // in order of their arrival
	next uint64
}

// A lent machine.
type lent struct {
	name      transport.Name
	offer     Offer
	since     time.Time
	processes map[uint64]*remote
}

// A remote process runs on a node.
type remote struct {
	process *launch.Process
	end     func(launch.Exit)
	stderr  io.Writer
	started chan started // one answer
}

// newLentNodes returns the machines that offer themselves on s, which is its alone. Only programs of that build are taken.
func newLentNodes(s transport.Stream, build string, log *slog.Logger) *lentNodes {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &lentNodes{s: s, build: build, log: log, changed: make(chan struct{}, 1)}
}

// Run takes offers and what nodes tell, until ctx ends, whose error it then returns.
func (v *lentNodes) Run(ctx context.Context) error {
	for {
		ev, err := v.s.Recv(ctx)
		if err != nil {
			return err
		}
		switch ev.What {
		case transport.LinkLost:
			v.Lost(ev.From, ev.Err)
		case transport.Received:
			if err := v.hear(ctx, &ev); err != nil {
				v.log.Warn("message refused", "node", ev.From.String(), "error", err)
			}
		}
		ev.Release()
	}
}

func (v *lentNodes) hear(ctx context.Context, ev *transport.Event) error {
	switch ev.Kind {
	case kindOffer:
		var o Offer
		if err := control.Decode("offer", ev.Payload, &o); err != nil {
			return err
		}
		return v.take(ctx, ev.From, o)
	case kindStarted:
		var s started
		if err := control.Decode("started", ev.Payload, &s); err != nil {
			return err
		}
		if p := v.process(ev.From, s.Seq, s.Error != ""); p != nil {
			p.process.Started(s.PID)
			select {
			case p.started <- s:
			default: // it said so before, and others are to be heard
			}
		}
	case kindLine:
		var l line
		if err := control.Decode("line", ev.Payload, &l); err != nil {
			return err
		}
		if p := v.process(ev.From, l.Seq, false); p != nil && p.stderr != nil {
			_, err := p.stderr.Write(l.Text)
			return err
		}
	case kindExited:
		var e exited
		if err := control.Decode("exit", ev.Payload, &e); err != nil {
			return err
		}
		if p := v.process(ev.From, e.Seq, true); p != nil {
			x := launch.Exit{Code: e.Code, At: time.Now(), Stderr: e.Stderr}
			if e.Signal != 0 {
				x.Signal = syscall.Signal(e.Signal)
			}
			if e.Error != "" {
				x.Err = errors.New(e.Error)
			}
			p.end(x)
		}
	case kindLeave:
		v.Lost(ev.From, errLeft)
	default:
		return fmt.Errorf("fleet: unknown kind %d", ev.Kind)
	}
	return nil
}

// take adds a machine, or refuses it.
func (v *lentNodes) take(ctx context.Context, from transport.Name, o Offer) error {
	why := ""
	switch {
	case o.Build != v.build:
		why = fmt.Sprintf("it runs another program (build %s, the coordinator's is %s): start the same one on all machines", short(o.Build), short(v.build))
	case o.Cores < 1:
		why = fmt.Sprintf("it lends %d cores", o.Cores)
	}
	if why != "" {
		v.log.Warn("node refused", "node", from.String(), "host", o.Host, "why", why)
		return send(ctx, v.s, from, kindRefused, refused{why})
	}
	v.mu.Lock()
	known := v.find(from) != nil
	if !known {
		v.lent = append(v.lent, &lent{name: from, offer: o, since: time.Now(), processes: map[uint64]*remote{}})
		v.change()
	}
	v.mu.Unlock()
	if !known {
		v.log.Info("node joined", "node", from.String(), "host", o.Host, "cores", o.Cores, "memory", o.Memory)
	}
	return send(ctx, v.s, from, kindWelcome, nil)
}

func short(build string) string { return build[:min(12, len(build))] }

// errLeft is why a machine is gone that said so: nothing is wrong with it.
var errLeft = errors.New("its node was asked to end")

// Lost takes a machine away, with all that runs there: its link is lost, the group has convicted it, or it leaves. What comes first says why.
func (v *lentNodes) Lost(n transport.Name, why error) {
	v.mu.Lock()
	i := slices.IndexFunc(v.lent, func(l *lent) bool { return l.name == n })
	if i < 0 {
		v.mu.Unlock()
		return
	}
	gone := v.lent[i]
	v.lent = slices.Delete(v.lent, i, i+1)
	v.change()
	v.mu.Unlock()
	if errors.Is(why, errLeft) {
		v.log.Info("node left", "node", n.String(), "host", gone.offer.Host)
	} else {
		v.log.Warn("node lost", "node", n.String(), "host", gone.offer.Host, "error", why)
	}
	for _, p := range gone.processes {
		p.end(launch.Exit{Code: -1, At: time.Now(), Err: &MachineLostError{n.ID, why}})
	}
}

// A MachineLostError is why a process has ended, or does not start: its machine is gone.
type MachineLostError struct {
	ID  string // of the machine
	Why error
}

func (e *MachineLostError) Error() string {
	if errors.Is(e.Why, errLeft) {
		return fmt.Sprintf("the machine %s has left: %v", e.ID, e.Why)
	}
	return fmt.Sprintf("the machine %s is lost: %v", e.ID, e.Why)
}
func (e *MachineLostError) Unwrap() error { return e.Why }

// process returns one of a node's; for its last message it takes it out.
func (v *lentNodes) process(node transport.Name, seq uint64, last bool) *remote {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.find(node)
	if l == nil {
		return nil
	}
	p := l.processes[seq]
	if last {
		delete(l.processes, seq)
	}
	return p
}

func (v *lentNodes) find(n transport.Name) *lent {
	for _, l := range v.lent {
		if l.name == n {
			return l
		}
	}
	return nil
}

// change has Changed say so.
func (v *lentNodes) change() {
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

// Changed receives once after changes of the list, also those of before the call: nobody who lists, then waits, misses one. It is for one
// reader.
func (v *lentNodes) Changed() <-chan struct{} { return v.changed }

// A Lent says what there is of one machine.
type Lent struct {
	Name      transport.Name `json:"-"`
	ID        string         `json:"id"`
	Offer     Offer          `json:"offer"`
	Since     time.Time      `json:"since"`
	Processes int            `json:"processes"`
}

// List returns the machines, in order of their arrival.
func (v *lentNodes) List() []Lent {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []Lent
	for _, l := range v.lent {
		out = append(out, Lent{l.name, l.name.ID, l.offer, l.since, len(l.processes)})
	}
	return out
}

// Launcher starts its i-th process on the machine of id nodes[i].
func (v *lentNodes) Launcher(nodes []string) launch.Launcher { return &placed{v: v, nodes: nodes} }

// A placed launcher is one job's.
type placed struct {
	v     *lentNodes
	nodes []string

	mu   sync.Mutex
	at   int
	made []*launch.Process
}

// Start implements launch.Launcher.
func (l *placed) Start(ctx context.Context, s launch.Spec) (*launch.Process, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == len(l.nodes) {
		return nil, fmt.Errorf("fleet: start %s: there are machines for %d processes", s.Name, len(l.nodes))
	}
	p, err := l.v.start(ctx, l.nodes[l.at], s)
	if err != nil {
		return nil, fmt.Errorf("fleet: start %s: %w", s.Name, err)
	}
	l.at++
	l.made = append(l.made, p)
	return p, nil
}

// closeWait bounds what Close waits for the end of killed processes.
const closeWait = 10 * time.Second

// Close implements launch.Launcher.
func (l *placed) Close() error {
	l.mu.Lock()
	made := l.made
	l.mu.Unlock()
	var errs []error
	deadline := time.After(closeWait)
	for _, p := range made {
		errs = append(errs, p.Kill())
	}
	for _, p := range made {
		select {
		case <-p.Exited():
		case <-deadline:
			return errors.Join(append(errs, fmt.Errorf("fleet: %s did not end within %v", p.Name(), closeWait))...)
		}
	}
	return errors.Join(errs...)
}

// start starts a process on the machine of that id.
func (v *lentNodes) start(ctx context.Context, id string, s launch.Spec) (*launch.Process, error) {
	v.mu.Lock()
	i := slices.IndexFunc(v.lent, func(l *lent) bool { return l.name.ID == id })
	if i < 0 {
		v.mu.Unlock()
		return nil, &MachineLostError{id, errors.New("it is not lent any more")}
	}
	on := v.lent[i]
	v.next++
	seq := v.next
	p := &remote{stderr: s.Stderr, started: make(chan started, 1)}
	// The signal's context is the start's caller's no more: a process is signalled long after.
	p.process, p.end = launch.NewProcess(s.Name, func(sig os.Signal) error {
		n, ok := sig.(syscall.Signal)
		if !ok {
			return fmt.Errorf("the signal %v does not travel", sig)
		}
		return send(context.WithoutCancel(ctx), v.s, on.name, kindSignal, signalled{seq, int(n)})
	})
	on.processes[seq] = p
	v.mu.Unlock()
	waiting, cancel := context.WithTimeoutCause(ctx, startWait, fmt.Errorf("no word of %s within %v", s.Name, startWait))
	defer cancel()
	err := send(waiting, v.s, on.name, kindStart, start{seq, s.Name, s.Args, s.Config})
	if err == nil {
		err = p.answer(waiting)
	}
	if err != nil {
		if waiting.Err() != nil {
			_ = p.process.Kill() // it may run all the same
		}
		v.process(on.name, seq, true)
		return nil, fmt.Errorf("on the machine %s: %w", id, err)
	}
	return p.process, nil
}

// answer waits for the node's word that the process runs. One that has ended meanwhile has been started all the same.
func (p *remote) answer(ctx context.Context) error {
	verdict := func(a started) error {
		if a.Error != "" {
			return errors.New(a.Error)
		}
		return nil
	}
	select {
	case a := <-p.started:
		return verdict(a)
	case <-p.process.Exited():
		select {
		case a := <-p.started:
			return verdict(a)
		default:
			return p.process.Exit().AsError() // the machine is lost
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// startWait is how long a machine may take to say that a process runs.
const startWait = 30 * time.Second
