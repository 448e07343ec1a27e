package compare

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A Fault is what a row did when a process of it was killed, or stood still for a while, in the middle of its training.
type Fault struct {
	System  string  `json:"system"`
	Signal  string  `json:"signal"` // kill, stop
	Role    Role    `json:"role"`   // of the process that was hit
	Outcome string  `json:"outcome"`
	Ended   bool    `json:"ended"`                    // of kill: the others ended by themselves
	Seconds float64 `json:"seconds,omitempty"`        // of kill: until they had; of stop: from its end to the next bytes of worker 0
	Others  string  `json:"others,omitempty"`         // of stop: what worker 0 did meanwhile: "went on", "waited", "gave it up"
	Error   string  `json:"error,omitempty"`          // why it was not measured
	Said    string  `json:"said,omitempty"`           // what the row said of it
	Updates int64   `json:"updates_before,omitempty"` // of kill: that were made by then, as far as the row says
	Task    string  `json:"task"`                     // it was training
	Workers int     `json:"workers"`
}

// A faultTimes is when a process is hit, and for how long.
type faultTimes struct {
	after time.Duration // into the training
	stop  time.Duration // that a process stands still
	hang  time.Duration // after which the others are said to hang
}

const (
	faultStop = 3 * time.Second
	faultFile = "faults.json"
)

// faults hits a process of each role of each row, where the plan asks for that. What is done is kept, and reported also where it does not.
func (r *runner) faults(ctx context.Context, report *Report) error {
	path := filepath.Join(r.dir.path, faultFile)
	if err := readJSON(path, &report.Faults); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !r.plan.Faults {
		return nil
	}
	seen := map[string]bool{}
	for i := range r.groups {
		g := &r.groups[i]
		for _, c := range g.cells {
			system := r.plan.Systems[c.index]
			if seen[c.System] || c.Workers < 2 || r.absent[c.System] != nil || report.Tables[i].row(c.System).Good == 0 {
				continue
			}
			seen[c.System] = true
			roles := []Role{WorkerRole}
			if c.Servers > 0 {
				roles = append(roles, ServerRole)
			}
			for _, signal := range []string{"kill", "stop"} {
				for _, role := range roles {
					same := func(f Fault) bool { return f.System == c.System && f.Signal == signal && f.Role == role }
					if slices.ContainsFunc(report.Faults, same) {
						continue
					}
					r.plan.Watch.Status(Status{Cell: c, Repeat: 1, Done: len(r.done), Total: r.total, Phase: signal + " a " + string(role), Left: -1})
					f, err := r.fault(ctx, g, c, system, signal, role)
					if err != nil {
						return err
					}
					report.Faults = append(report.Faults, f)
					if err := writeJSON(path, report.Faults); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// fault runs one trial and hits a process. An error is the machine's, or ctx's.
func (r *runner) fault(ctx context.Context, g *group, c Cell, system System, signal string, role Role) (f Fault, err error) {
	f = Fault{System: c.System, Signal: signal, Role: role, Task: c.Task, Workers: c.Workers}
	e, err := r.evaluator(ctx, g.task)
	if err != nil {
		return f, err
	}
	spec, _, err := r.spec(ctx, e, g, c, system)
	if err != nil {
		return f, err
	}
	spec.Snapshots, spec.WarmUp, spec.Updates = nil, 0.2, 1
	x := r.plan.fault
	spec.Seconds = (x.after + 2*x.stop).Seconds()
	spec.limit = r.plan.Limit + x.after + x.stop + 3*x.hang // to its training it may take as long as in any trial
	if spec.OutDir, err = r.dir.begin(c, 0); err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(spec.OutDir)) }()
	if spec.spaces, err = r.space(ctx, c.Link); err != nil {
		f.Error = err.Error()
		return f, ctx.Err()
	}
	t, err := system.Start(ctx, spec)
	if err != nil {
		f.Error, _ = why(err)
		return f, nil
	}
	over := r.hit(ctx, t, &f)
	err = t.Stop(context.WithoutCancel(ctx))
	<-over
	return f, errors.Join(ctx.Err(), err)
}

// hit waits until t trains, and hits a process of f's role. Stop closes what it returns.
func (r *runner) hit(ctx context.Context, t Trial, f *Fault) <-chan struct{} {
	x := r.plan.fault
	begun, over := make(chan struct{}), make(chan struct{})
	var ended error
	var update int64
	go func() { // walks the events until they end, which Stop brings about
		defer close(over)
		started, finished := false, false
		for e, err := range t.Events() {
			switch {
			case err != nil:
				ended = err
			case e.Kind == Begin && !started:
				started = true
				close(begun)
			case e.Kind == Updated && e.Update > 0:
				update = e.Update
			case e.Kind == Finished:
				finished = true
			}
		}
		if ended == nil && !finished {
			ended = errors.New("it ended without a result")
		}
	}()
	wait := func(c <-chan struct{}, d time.Duration) bool {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-c:
			return true
		case <-ctx.Done():
		case <-timer.C:
		}
		return false
	}
	select {
	case <-begun:
	case <-over:
		f.Error = "it did not begin: " + fmt.Sprint(ended)
		return over
	case <-ctx.Done():
		return over
	}
	processes := t.Processes()
	victim, first := pick(processes, f.Role), pick0(processes)
	if victim == nil || first == nil || victim.PID <= 1 || victim.PID == os.Getpid() {
		f.Error = "not measured: its processes cannot be told apart"
		return over
	}
	if wait(over, x.after) {
		f.Error = "it ended before it could be hit"
		return over
	}
	if f.Signal == "kill" {
		at := r.plan.now()
		if err := signalProcess(victim.PID, killSignal); err != nil {
			f.Error = err.Error()
			return over
		}
		gone := make(chan struct{})
		stop := make(chan struct{})
		go func() { defer close(gone); untilGone(processes, victim.PID, stop) }()
		f.Ended = wait(gone, x.hang)
		close(stop)
		<-gone
		f.Seconds = r.plan.now().Sub(at).Seconds()
		if wait(over, x.hang/3) { // what the row says of it is still on its way
			f.Updates = update
			if ended != nil {
				f.Said, _ = why(ended)
			}
		}
		switch {
		case f.Ended:
			f.Outcome = "the others end"
		default:
			f.Outcome = fmt.Sprintf("hangs: the others are still there after %v", x.hang)
		}
		return over
	}
	if err := signalProcess(victim.PID, stopSignal); err != nil {
		f.Error = err.Error()
		return over
	}
	wait(over, x.stop/3) // what was on its way arrives
	a, known := sentBytes(first)
	wait(over, x.stop-x.stop/3)
	b, _ := sentBytes(first)
	// A worker that waits still sends heartbeats and acknowledgements.
	switch {
	case !known:
		f.Others = "not measured: its bytes are not counted apart"
	case b-a > 64<<10:
		f.Others = "went on"
	default:
		f.Others = "waited"
	}
	at := r.plan.now()
	if err := signalProcess(victim.PID, contSignal); err != nil && alive(victim.PID) { // else it was given up, and ended meanwhile
		f.Error = err.Error()
		return over
	}
	if known && f.Others == "waited" {
		for r.plan.now().Sub(at) < x.hang {
			if n, ok := sentBytes(first); !ok || n-b > 64<<10 {
				f.Seconds = r.plan.now().Sub(at).Seconds()
				break
			}
			if wait(over, 2*time.Millisecond) {
				break
			}
		}
	}
	switch {
	case !wait(over, 2*x.hang):
		f.Outcome = fmt.Sprintf("hangs: no end %v after it went on", 2*x.hang)
	case ended != nil: // a process that stands still was taken for dead
		f.Said, _ = why(ended)
		f.Outcome, f.Others, f.Seconds = "ends with an error", "gave it up", 0
	default:
		f.Outcome = "goes on"
	}
	return over
}

// pick returns the last process of a role: not the first, which often leads.
func pick(list []Process, role Role) *Process {
	var last *Process
	for i, p := range list {
		if p.Role == role && (last == nil || p.Rank > last.Rank) {
			last = &list[i]
		}
	}
	return last
}

// pick0 returns worker 0.
func pick0(list []Process) *Process {
	for i, p := range list {
		if p.Role == WorkerRole && p.Rank == 0 {
			return &list[i]
		}
	}
	return nil
}

// untilGone returns when all processes but one are, or when it is stopped.
func untilGone(list []Process, but int, stop <-chan struct{}) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if !slices.ContainsFunc(list, func(p Process) bool { return p.PID != but && p.Role == WorkerRole && alive(p.PID) }) {
			return
		}
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

// sentBytes is what left a process by its own interface.
func sentBytes(p *Process) (int64, bool) {
	if p.Iface == "" {
		return 0, false
	}
	n, ok := interfaceBytes(p.PID, p.Iface)
	return n[1], ok
}
