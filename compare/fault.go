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

// A Fault is what a row did when a process of it was killed, or stood still for a while, in the middle of its training. A process of
// another system may be no more than what starts the one that trains, so the signal goes to all that it started too.
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
	Link    Link    `json:"link,omitzero"`
	Whole   bool    `json:"whole,omitempty"` // the signal reached what the process had started too
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

// A blow is a fault to come: a signal to a process of that role.
type blow struct {
	table  int // that the row is in
	cell   Cell
	signal string
	role   Role
}

func (b *blow) is(f Fault) bool {
	return f.System == b.cell.System && f.Signal == b.signal && f.Role == b.role
}

// blows are those that the plan asks for: a process of each role of each row of several workers, in the first table where the row is fit for it.
func (r *runner) blows(fit func(table int, c Cell) bool) (list []blow) {
	if !r.plan.Faults {
		return nil
	}
	seen := map[string]bool{}
	for i := range r.groups {
		for _, c := range r.groups[i].cells {
			if seen[c.System] || c.Workers < 2 || r.absent[c.System] != nil || !fit(i, c) {
				continue
			}
			seen[c.System] = true
			for _, signal := range []string{"kill", "stop"} {
				list = append(list, blow{i, c, signal, WorkerRole})
				if c.Servers > 0 {
					list = append(list, blow{i, c, signal, ServerRole})
				}
			}
		}
	}
	return list
}

// openFaults reads those that an earlier process dealt.
func (r *runner) openFaults() error {
	r.dealt = nil
	if err := readJSON(filepath.Join(r.dir.path, faultFile), &r.dealt); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// due reports whether a blow has not been measured: one that could not be is tried again.
func (r *runner) due(b *blow) bool {
	return !slices.ContainsFunc(r.dealt, func(f Fault) bool { return b.is(f) && f.Error == "" })
}

// faults deals the blows that are due, and reports all that were dealt. What is done is kept, and reported also where the plan asks for none.
func (r *runner) faults(ctx context.Context, report *Report) error {
	defer func() { report.Faults = r.dealt }()
	for _, b := range r.blows(func(table int, c Cell) bool { return report.Tables[table].row(c.System).Good > 0 }) {
		if !r.due(&b) {
			continue
		}
		r.plan.Watch.Status(Status{Cell: b.cell, Repeat: 1, Phase: b.signal + " a " + string(b.role), Left: -1})
		f, err := r.fault(ctx, &r.groups[b.table], b.cell, r.plan.Systems[b.cell.index], b.signal, b.role)
		if err != nil {
			return err
		}
		if at := slices.IndexFunc(r.dealt, b.is); at < 0 {
			r.dealt = append(r.dealt, f)
		} else {
			r.dealt[at] = f
		}
		if err := writeJSON(filepath.Join(r.dir.path, faultFile), r.dealt); err != nil {
			return err
		}
	}
	return nil
}

// fault runs a trial and hits a process: another, longer one where it had ended by then. An error is the machine's, or ctx's.
func (r *runner) fault(ctx context.Context, g *group, c Cell, system System, signal string, role Role) (Fault, error) {
	f := Fault{System: c.System, Signal: signal, Role: role, Task: c.Task, Workers: c.Workers, Link: c.Link}
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
	tried := f
	trained, err := r.strike(ctx, c, system, spec, &tried)
	if err == nil && tried.Error == tooShort && trained > 0 { // a small job may be many times faster than in so short a warm-up
		spec.Seconds *= spec.Seconds / trained
		tried = f
		_, err = r.strike(ctx, c, system, spec, &tried)
	}
	return tried, err
}

// tooShort is the Error of a Fault whose trial came to its end before.
const tooShort = "it ended before it could be hit"

// strike runs one trial, hits a process, and returns how long it trained, as far as it says.
func (r *runner) strike(ctx context.Context, c Cell, system System, spec Spec, f *Fault) (trained float64, err error) {
	if spec.OutDir, err = r.dir.begin(c, 0); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(spec.OutDir)) }()
	if spec.spaces, err = r.space(ctx, c.Link); err != nil {
		f.Error = err.Error()
		return 0, ctx.Err()
	}
	t, err := system.Start(ctx, spec)
	if err != nil {
		f.Error, _, _ = why(err)
		return 0, nil
	}
	w := r.hit(ctx, t, f)
	err = t.Stop(context.WithoutCancel(ctx))
	<-w.over
	return w.trained, errors.Join(ctx.Err(), err)
}

// hit waits until t trains, and hits a process of f's role. Stop brings what it returns to its end.
func (r *runner) hit(ctx context.Context, t Trial, f *Fault) *watched {
	w := watch(t)
	select {
	case <-w.begun:
	case <-w.over:
		select {
		case <-w.begun: // and is over already
		default:
			f.Error = "it did not begin: " + fmt.Sprint(w.ended)
			return w
		}
	case <-ctx.Done():
		return w
	}
	processes := t.Processes()
	victim, first := pick(processes, f.Role), pick0(processes)
	switch {
	case victim == nil || first == nil || victim.PID <= 1 || victim.PID == os.Getpid():
		f.Error = "not measured: its processes cannot be told apart"
	case within(ctx, w.over, r.plan.fault.after):
		f.Error = tooShort
		if w.ended != nil {
			text, _, _ := why(w.ended)
			f.Error += ": " + text
		}
	case f.Signal == "kill":
		r.kill(ctx, w, processes, victim, f)
	default:
		r.halt(ctx, w, first, victim, f)
	}
	return w
}

// A watched trial is one whose events are walked until they end, which Stop brings about.
type watched struct {
	begun, over chan struct{}
	ended       error   // once it is over: why it has no result
	update      int64   // once it is over: its last
	trained     float64 // seconds, once it is over; 0: it came to no end of its own
}

func watch(t Trial) *watched {
	w := &watched{begun: make(chan struct{}), over: make(chan struct{})}
	go func() {
		defer close(w.over)
		started, finished := false, false
		for e, err := range t.Events() {
			switch {
			case err != nil:
				w.ended = err
			case e.Kind == Begin && !started:
				started = true
				close(w.begun)
			case e.Kind == Updated && e.Update > 0:
				w.update = e.Update
			case e.Kind == Finished:
				finished, w.trained = true, e.Seconds
			}
		}
		if w.ended == nil && !finished {
			w.ended = errors.New("it ended without a result")
		}
	}()
	return w
}

// within waits for c, and says whether it was closed in that time.
func within(ctx context.Context, c <-chan struct{}, d time.Duration) bool {
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

// kill ends the victim with what it started, and measures when the others end.
func (r *runner) kill(ctx context.Context, w *watched, processes []Process, victim *Process, f *Fault) {
	x := r.plan.fault
	at := r.plan.now()
	var to int
	to, f.Whole = reach(victim.PID)
	if err := signalTo(to, killSignal); err != nil {
		f.Error = err.Error()
		return
	}
	gone := make(chan struct{})
	stop := make(chan struct{})
	go func() { defer close(gone); untilGone(processes, victim.PID, stop) }()
	f.Ended = within(ctx, gone, x.hang)
	close(stop)
	<-gone
	f.Seconds = r.plan.now().Sub(at).Seconds()
	if within(ctx, w.over, x.hang/3) { // what the row says of it is still on its way
		f.Updates = w.update
		if w.ended != nil {
			f.Said, _, _ = why(w.ended)
		}
	}
	f.Outcome = "the others end"
	if !f.Ended {
		f.Outcome = fmt.Sprintf("hangs: the others are still there after %v", x.hang)
	}
}

// halt lets the victim, and what it started, stand still for a while, and measures what first does meanwhile and how soon it goes on.
func (r *runner) halt(ctx context.Context, w *watched, first, victim *Process, f *Fault) {
	x := r.plan.fault
	var to int
	to, f.Whole = reach(victim.PID)
	if err := signalTo(to, stopSignal); err != nil {
		f.Error = err.Error()
		return
	}
	within(ctx, w.over, x.stop/3) // what was on its way arrives
	a, known := sentBytes(first)
	within(ctx, w.over, x.stop-x.stop/3)
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
	if err := signalTo(to, contSignal); err != nil && alive(victim.PID) { // else it was given up, and ended meanwhile
		f.Error = err.Error()
		return
	}
	if known && f.Others == "waited" {
		for ctx.Err() == nil && r.plan.now().Sub(at) < x.hang {
			if n, ok := sentBytes(first); !ok || n-b > 64<<10 {
				f.Seconds = r.plan.now().Sub(at).Seconds()
				break
			}
			if within(ctx, w.over, 2*time.Millisecond) {
				break
			}
		}
	}
	switch {
	case !within(ctx, w.over, 2*x.hang):
		f.Outcome = fmt.Sprintf("hangs: no end %v after it went on", 2*x.hang)
	case w.ended != nil: // a process that stands still was taken for dead
		f.Said, _, _ = why(w.ended)
		f.Outcome, f.Others, f.Seconds = "ends with an error", "gave it up", 0
	default:
		f.Outcome = "goes on"
	}
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
