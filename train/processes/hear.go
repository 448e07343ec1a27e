package processes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire/control"
)

// hear takes a message of a worker.
func (d *Driver) hear(ctx context.Context, ev *transport.Event, wait *sync.WaitGroup) {
	p := d.part(ev.From)
	if p == nil {
		return
	}
	if p.cut = ev.What == transport.LinkLost; ev.What != transport.Received {
		return // a lost link is either an exit, or comes back
	}
	p.quiet = 0
	var err error
	decode := func(what string, v any) bool {
		err = control.Decode(what, ev.Payload, v)
		return err == nil
	}
	switch ev.Kind {
	case kindAlive:
	case kindAsked:
		d.stop(ctx, kindStop, nil)
	case kindHello:
		var h hello
		if decode("hello", &h) {
			d.greet(ctx, p, h, wait)
		}
	case kindReady:
		var r ready
		if decode("ready", &r) {
			p.ready = &r
		}
	case kindBegin, kindProgress, kindEvaluated, kindCheckpointed:
		var at position
		if decode("progress", &at) {
			p.at = at
			if ev.Kind == kindEvaluated {
				p.metrics = at.Metrics
			}
			d.progress(ev.Kind, p)
		}
	case kindSaid:
		var s said
		if decode("words", &s) {
			d.say(p, s)
		}
	case kindObservation:
		if p.receiver != nil {
			err = p.receiver.Accept(ev.Payload)
		}
	case kindReport:
		if len(p.report)+len(ev.Payload) > maxReport {
			err = fmt.Errorf("a report of more than %d bytes", maxReport)
			break
		}
		p.report = append(p.report, ev.Payload...)
	case kindResult:
		var r result
		if decode("result", &r) {
			d.finished(ctx, p, &r)
		}
	default:
		err = fmt.Errorf("unknown kind %d", ev.Kind)
	}
	if err != nil {
		d.Log.Warn("message refused", "worker", p.index, "error", err)
	}
}

func (d *Driver) part(n transport.Name) *part {
	for _, p := range d.workers {
		if p.name == n {
			return p
		}
	}
	return nil
}

// called returns the process of that ROLE/ID; nil: none of the job's.
func (d *Driver) called(name string) *part {
	for _, p := range d.workers {
		if p.name.Role+"/"+p.name.ID == name {
			return p
		}
	}
	return nil
}

func (d *Driver) greet(ctx context.Context, p *part, h hello, wait *sync.WaitGroup) {
	p.hello, p.host, p.pid = true, h.Host, h.PID
	if d.stopped && (!p.serves || d.told.kind != kindStop || d.trained) {
		d.tell(ctx, []*part{p}, d.told.kind, d.told.v)
		return
	}
	if h.Build != d.Build {
		d.fail(p, &train.JobError{Err: fmt.Errorf("on %s it runs another program: build %.12s, want %.12s; was its file replaced?", h.Host, h.Build, d.Build)})
		return
	}
	if d.Started != nil {
		d.Started(p.index, h.PID, h.Host)
	}
	if d.Data == nil || p.serves {
		return
	}
	wait.Go(func() {
		if err := d.shipTo(ctx, p.name, p.index); err != nil && ctx.Err() == nil {
			d.Log.Error("data not shipped", "worker", p.index, "error", err)
			_ = d.send(ctx, p.name, kindAbort, said{Text: "the data cannot be sent: " + err.Error()}) // else its exit tells
		}
	})
}

// progress shows how far the job is. Where each worker walks its own rows, the figures add up.
func (d *Driver) progress(kind uint8, p *part) {
	at := d.workers[0].at
	if d.Topology.Shards {
		for _, q := range d.workers[1:] {
			at.Samples += q.at.Samples
			at.BeganSamples += q.at.BeganSamples
			at.Row += q.at.Row
			at.Rows += q.at.Rows
		}
	} else if p.index != 0 {
		return
	} else if d.apart() {
		at.Samples = d.mean()
	}
	w := &d.Watch
	switch {
	case kind == kindBegin && p.index == 0 && w.Begin != nil:
		w.Begin(at.progress())
	case kind == kindProgress && w.Progress != nil:
		w.Progress(at.progress())
	case kind == kindEvaluated && p.index == 0 && w.Evaluated != nil:
		w.Evaluated(at.progress(), p.at.Metrics)
	case kind == kindCheckpointed && w.Checkpointed != nil:
		w.Checkpointed(at.progress(), p.at.Name)
	}
}

// apart tells whether the workers may be after different updates.
func (d *Driver) apart() bool { return d.Topology.Apart != nil && d.Topology.Apart(d.Options) }

// mean is the rows of the job, by what its workers have said last of those that they count.
func (d *Driver) mean() (samples int64) {
	for _, p := range d.workers[:d.Workers] {
		samples += p.at.Samples
	}
	return samples / int64(d.Workers)
}

// say hands on what a worker says: notes only of worker 0, since all have the same.
func (d *Driver) say(p *part, s said) {
	switch {
	case s.Notice && d.Watch.Notice != nil:
		d.Watch.Notice(s.Level, p.title()+": "+s.Text)
	case !s.Notice && p.index == 0 && d.Watch.Note != nil:
		d.Watch.Note(s.Text)
	}
}

// finished takes a worker's result.
func (d *Driver) finished(ctx context.Context, p *part, r *result) {
	p.result = r
	if r.Reason == trivium.Interrupted { // one was asked to end: the job is
		d.stop(ctx, kindStop, nil)
	}
	p.at.Step, p.at.Samples = max(p.at.Step, r.Steps), max(p.at.Samples, r.Samples) // who failed may not say how far it was
	if d.hearsay && d.lost.Index == p.index && r.Fault != faultNone && r.Fault != faultUnreachable {
		d.lost, d.hearsay = nil, false
	}
	switch r.Fault {
	case faultNone:
	case faultMisuse:
		d.fail(p, &train.JobError{Err: errors.New(r.Error)})
	case faultDiverged:
		d.fail(p, &trivium.DivergedError{Step: r.Step, Loss: r.Loss, Tensor: r.Tensor, Largest: r.Largest})
	case faultUnreachable:
		// A worker knows what it waited for, so it overrides a server, unless it only repeats what this driver told it.
		who := d.called(r.Lost)
		if d.lost != nil && (!d.hearsay || !d.ofServer || p.serves || who == nil) {
			return
		}
		d.hearsay = who != nil // its exit, or its own words, will say more
		if who == nil {
			who = p
		}
		d.lost = &WorkerError{Index: who.index, Name: who.title(), Lost: true, Step: d.stepOf(p), Text: r.Error}
		d.ofServer = p.serves
	default:
		d.fail(p, errors.New(r.Error))
	}
}

// exited takes note of a worker that ended.
func (d *Driver) exited(ctx context.Context, p *part) {
	p.gone = true
	if p.result != nil {
		return
	}
	e := p.process.Exit()
	// It was asked to end before it could heed that, by a Ctrl-C or a hangup, which the driver has got too, or by whoever stops its host's processes.
	if !p.hello && slices.Contains([]os.Signal{os.Interrupt, syscall.SIGHUP, syscall.SIGTERM}, e.Signal) {
		p.result = &result{Reason: trivium.Interrupted}
		d.stop(ctx, kindStop, nil)
		return
	}
	why := control.Text(e.String()) // it has what the process printed
	d.Log.Warn("worker lost", "worker", p.index, "step", p.at.Step, "exit", why)
	if d.lost == nil || d.hearsay && d.lost.Index == p.index {
		d.lost = &WorkerError{Index: p.index, Name: p.title(), Lost: true, Step: d.stepOf(p), Text: why}
		d.hearsay = false
	}
	n := p.name
	d.broadcast(ctx, kindDied, died{Role: n.Role, ID: n.ID, Incarnation: n.Incarnation, Why: why})
}

// fail notes the first failure.
func (d *Driver) fail(p *part, cause error) {
	if d.lost == nil {
		d.lost = &WorkerError{Index: p.index, Name: p.title(), Step: d.stepOf(p), Text: cause.Error(), cause: cause}
	}
}

// stepOf is how far the job is known to be with p: where worker 0 is, which makes the checkpoints, or further.
func (d *Driver) stepOf(p *part) int64 { return max(p.at.Step, d.workers[0].at.Step) }

// broadcast tells all workers that are left.
func (d *Driver) broadcast(ctx context.Context, kind uint8, v any) {
	to := d.workers
	if kind == kindStop { // servers end after the workers
		to = to[:d.Workers]
	}
	d.tell(ctx, to, kind, v)
}

// tell tells those of to that are left, all at once: one that takes nothing at present keeps it from no other. Who does not hear it is
// found by its exit.
func (d *Driver) tell(ctx context.Context, to []*part, kind uint8, v any) {
	ctx, cancel := context.WithTimeout(ctx, tellWait)
	defer cancel()
	var telling sync.WaitGroup
	defer telling.Wait()
	for _, p := range to {
		if p.gone || !p.hello {
			continue
		}
		telling.Go(func() {
			if err := d.send(ctx, p.name, kind, v); err != nil {
				d.Log.Warn("not told", "process", p.title(), "kind", kind, "error", err)
			}
		})
	}
}

func (d *Driver) send(ctx context.Context, to transport.Name, kind uint8, v any) error {
	f, err := message(kind, v)
	if err != nil {
		return err
	}
	return d.stream.Send(ctx, to, f)
}
