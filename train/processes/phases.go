package processes

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/train"
)

// The phases of a job.
const (
	starting = iota
	opening
	training
)

func (d *Driver) phase() int {
	phase := training
	for _, p := range d.workers {
		switch {
		case !p.hello:
			return starting
		case p.ready == nil:
			phase = opening
		}
	}
	return phase
}

// begin lets the workers train, if they agree on the data.
func (d *Driver) begin(ctx context.Context, wait *sync.WaitGroup) {
	d.compare()
	if d.lost == nil && d.Ready != nil {
		if err := d.ready(ctx, wait); err != nil {
			d.fail(d.workers[0], err)
		}
	}
	if d.lost == nil {
		d.broadcast(ctx, kindBegin, nil)
	}
}

func (d *Driver) ready(ctx context.Context, wait *sync.WaitGroup) error {
	first := d.workers[0].ready
	facts := Facts{Label: first.Label, Checksum: first.Checksum, Notes: first.Notes, Rows: first.Rows}
	if d.Data != nil { // each has its own rows, and this process needs them no more
		facts.Rows, d.Data = d.Data.Train.Rows(), nil
	}
	if len(first.Schema) > 0 {
		if err := json.Unmarshal(first.Schema, &facts.Schema); err != nil {
			return err
		}
	}
	store, err := d.Ready(facts)
	if err != nil {
		return err
	}
	if store == nil {
		store = nowhere{}
	}
	return d.serveStore(ctx, wait, blobStream, store)
}

// compare makes sure that all workers read the same data. What they generate is the same, since their program and their job are.
func (d *Driver) compare() {
	first := d.workers[0]
	for _, p := range d.workers[1:d.Workers] {
		if p.ready.Checksum != "" && p.ready.Checksum != first.ready.Checksum {
			d.fail(p, &train.JobError{Err: fmt.Errorf(
				"the data differs: worker %d (on %s) reads %s with checksum %s, worker %d (on %s) with %s; give all the same file, or --ship-data",
				first.index, first.host, d.Job.Data.Source, first.ready.Checksum, p.index, p.host, p.ready.Checksum)})
			return
		}
	}
}

// late says who keeps the others waiting, and with what: the first of them counts as lost.
func (d *Driver) late() {
	if d.lost != nil {
		return
	}
	what := fmt.Sprintf("did not end within %v", d.limit)
	holds := func(p *part) bool { return d.trained || !p.serves } // servers end after the workers
	switch phase := d.phase(); {
	case d.stopped || d.trained:
	case phase == starting:
		what, holds = fmt.Sprintf("did not start within %v", d.Hello), func(p *part) bool { return !p.hello }
	default:
		what, holds = fmt.Sprintf("had not opened its data after %v", d.Open), func(p *part) bool { return p.ready == nil }
	}
	also := "; likewise "
	for _, p := range d.workers {
		switch {
		case p.result != nil || p.gone || !holds(p):
		case d.lost == nil:
			d.lost = &WorkerError{Index: p.index, Name: p.title(), Lost: true, Step: d.stepOf(p), Text: "it " + what}
		default:
			d.lost.Text += also + p.title()
			also = ", "
		}
	}
}

// quietTicks is in how many parts Silence is counted. Ticks that this process missed, because it was stopped itself, do not count.
const quietTicks = 20

// lostTicks is how many are enough once the job has failed: who says nothing then, with its link in order, has not heard that it is to end,
// and will not. Where the link is lost an exit is on its way.
const lostTicks = 2

// lostWait is how long they are at least: some signs of life.
const lostWait = 8 * aliveEvery

// tick is how often listen is called.
func (d *Driver) tick() time.Duration { return max(d.Silence/quietTicks, time.Millisecond) }

// attend notes who was heard since the last tick: what came and was not read yet, since this process has much to do, is a sign of life too.
func (d *Driver) attend() {
	for _, p := range d.workers {
		if at := d.stream.Heard(p.name); !at.Equal(p.heard) {
			p.heard, p.quiet = at, 0
		}
	}
}

// listen finds who has said nothing for too long: a process that is stopped, or hangs. The group of members finds it too, and sooner,
// but only once all have joined it; what it found, others say.
func (d *Driver) listen() {
	for _, p := range d.workers {
		if !p.hello || p.gone || p.result != nil {
			continue
		}
		limit := quietTicks
		if d.lost != nil && !p.cut {
			limit = min(quietTicks, max(lostTicks, int(lostWait/d.tick())))
		}
		if p.quiet++; p.quiet <= limit {
			continue
		}
		if d.lost == nil {
			d.lost = &WorkerError{
				Index: p.index, Name: p.title(), Lost: true, Step: d.stepOf(p),
				Text: d.silent(p),
			}
		}
		if d.lost.Index == p.index {
			d.hearsay = false // how it ends is this driver's doing
		}
		if err := p.process.Kill(); err != nil {
			d.Log.Warn("not killed", "process", p.title(), "error", err)
		}
	}
}

// silent says what it means that p has said nothing for so long.
func (d *Driver) silent(p *part) string {
	if p.process.PID() == os.Getpid() { // a goroutine: it was not stopped alone
		return fmt.Sprintf("it is a thread of this process (%d), and has said nothing for %v: it hangs, or this machine has too much to do; "+
			"fewer workers may help", p.pid, d.Silence)
	}
	return fmt.Sprintf("process %d on %s has said nothing for %v: it was stopped, or its machine is gone", p.pid, p.host, d.Silence)
}

// stop tells the workers to end, once.
func (d *Driver) stop(ctx context.Context, kind uint8, v any) {
	if !d.stopped {
		d.stopped, d.told.kind, d.told.v = true, kind, v
		d.broadcast(ctx, kind, v)
	}
}

// release tells the servers to end once no worker needs them.
func (d *Driver) release(ctx context.Context, deadline *time.Timer) {
	if d.trained {
		return
	}
	for _, p := range d.workers[:d.Workers] {
		if p.result == nil && !p.gone {
			return
		}
	}
	d.trained, d.limit = true, d.Grace
	deadline.Reset(d.limit)
	d.tell(ctx, d.workers[d.Workers:], kindStop, nil)
}

func (d *Driver) over() bool {
	for _, p := range d.workers {
		if p.result == nil && !p.gone {
			return false
		}
	}
	return true
}

// farewell gives the workers time to leave.
func (d *Driver) farewell(exits <-chan int) {
	deadline := time.After(d.Grace)
	for _, p := range d.workers {
		for !p.gone {
			select {
			case i := <-exits:
				d.workers[i].gone = true
			case <-deadline:
				return
			}
		}
	}
}

func (d *Driver) killAll() {
	for _, p := range d.workers {
		if p.gone {
			continue
		}
		if err := p.process.Kill(); err != nil {
			d.Log.Warn("not killed", "worker", p.index, "error", err)
		}
	}
	limit := time.After(killWait)
	for _, p := range d.workers {
		select {
		case <-p.process.Exited():
		case <-limit:
			return
		}
	}
}

// killWait is how long a killed process is waited for: the kernel takes it away as soon as it may.
const killWait = 5 * time.Second
