package observe

import (
	"sync/atomic"
	"time"
)

// A Recorder is what one training thread reports to: a Split for its steps, a Set for its counters, and a queue through which steps
// leave the thread. Nothing here allocates, waits or takes a lock. A nil Recorder is off.
//
// Begin, Enter, Leave, Pass, Move and End belong to the one training thread; the other methods may be called from any.
type Recorder struct {
	base  time.Time
	hub   *Hub // nil: nobody collects
	set   *Set
	queue queue
	split Split
	thin  thinner

	overlapped [NumPhases]atomic.Int64 // background work since the last End
	anyOverlap atomic.Bool
	anomalies  uint64 // published so far
}

// Facts are what a thread knows about a step at its end. Samples are added to the counter of that name; bytes are not: the carrier that
// moves them counts them.
type Facts struct {
	Clock        int64
	Samples      int64
	Loss         float64 // mean over the samples
	StalenessMax uint16
	BytesOut     uint64
	BytesIn      uint64
}

// NewRecorder returns a Recorder that belongs to no hub: its Set and steps are read by its owner, who calls Drain. Times count from
// base.
func NewRecorder(source Source, base time.Time) *Recorder {
	return &Recorder{base: base, set: NewSet(source)}
}

// Now returns the time since the run began, on the monotonic clock.
func (r *Recorder) Now() time.Duration {
	if r == nil {
		return 0
	}
	return time.Since(r.base)
}

// Begin opens a step.
func (r *Recorder) Begin(step int64) {
	if r != nil {
		r.split.Begin(step, time.Since(r.base))
	}
}

// BeginIn is Begin and Enter of p at one reading of the clock. A reading takes about as long as all else that is done at such a call, and
// short steps are made of few of them.
func (r *Recorder) BeginIn(step int64, p Phase) {
	if r != nil {
		now := time.Since(r.base)
		r.split.Begin(step, now)
		r.split.Enter(p, now)
	}
}

// Enter suspends the open phase and opens p.
func (r *Recorder) Enter(p Phase) {
	if r != nil {
		r.split.Enter(p, time.Since(r.base))
	}
}

// Leave resumes the phase that the last Enter suspended.
func (r *Recorder) Leave() {
	if r != nil {
		r.split.Leave(time.Since(r.base))
	}
}

// Pass is Leave without a reading of the clock, for a phase that the next one follows at once: see Split.Pass.
func (r *Recorder) Pass() {
	if r != nil {
		r.split.Pass()
	}
}

// Ended returns when the last finished step ended, without a reading of the clock; false where nothing is recorded.
func (r *Recorder) Ended() (time.Time, bool) {
	if r == nil {
		return time.Time{}, false
	}
	return r.base.Add(r.split.step.Start + r.split.step.Wall()), true
}

// Move books d of one phase as another: see Split.Move.
func (r *Recorder) Move(from, to Phase, d time.Duration) {
	if r != nil {
		r.split.Move(from, to, d)
	}
}

// Overlap counts background work for the step under way. Any goroutine may call it.
func (r *Recorder) Overlap(p Phase, d time.Duration) {
	if r != nil {
		r.overlapped[p].Add(int64(d))
		r.anyOverlap.Store(true)
	}
}

// End closes the step, adds it to the Set and sends it on its way to the sinks. It returns the step's wall time.
func (r *Recorder) End(f Facts) time.Duration {
	if r == nil {
		return 0
	}
	s := &r.split.step
	r.split.close(time.Since(r.base))
	s.Clock, s.Samples, s.Loss = f.Clock, f.Samples, f.Loss
	s.StalenessMax, s.BytesOut, s.BytesIn = f.StalenessMax, f.BytesOut, f.BytesIn
	if r.anyOverlap.Load() {
		r.takeOverlap(s)
	}
	r.set.publish(s)
	if r.split.anomalies != r.anomalies {
		r.set.Add(Anomalies, r.split.anomalies-r.anomalies)
		r.anomalies = r.split.anomalies
	}
	if r.thin.keep(s) && !r.queue.push(s) {
		r.set.Add(Dropped, 1)
	}
	return s.Wall()
}

func (r *Recorder) takeOverlap(s *Step) {
	r.anyOverlap.Store(false)
	for p := range r.overlapped {
		if d := r.overlapped[p].Swap(0); d != 0 {
			s.Overlapped[p] += time.Duration(d)
			r.set.Add(OverlapTime(Phase(p)), uint64(max(d, 0)))
		}
	}
}

// Abandon forgets an open step, for a thread that leaves its loop with an error.
func (r *Recorder) Abandon() {
	if r != nil {
		r.split.Abandon()
	}
}

// Step returns the last finished step. Only the training thread may ask.
func (r *Recorder) Step() Step {
	if r == nil {
		return Step{}
	}
	return r.split.step
}

// Add adds n to c.
func (r *Recorder) Add(c Counter, n uint64) {
	if r != nil {
		r.set.Add(c, n)
	}
}

// Put sets g to x.
func (r *Recorder) Put(g Gauge, x float64) {
	if r != nil {
		r.set.Put(g, x)
	}
}

// Observe counts v in d.
func (r *Recorder) Observe(d Distribution, v uint64) {
	if r != nil {
		r.set.Observe(d, v)
	}
}

// Evaluate records the result of an evaluation, such as "valid.auc".
func (r *Recorder) Evaluate(name string, value float64, step int64) error {
	if r == nil {
		return nil
	}
	return r.set.Evaluate(name, value, step)
}

// Event tells the hub what happened.
func (r *Recorder) Event(level Level, kind string, step int64, text string) {
	if r != nil && r.hub != nil {
		r.hub.Event(Event{Source: r.set.source, Level: level, Kind: kind, Step: step, Text: text})
	}
}

// Set returns the Recorder's Set.
func (r *Recorder) Set() *Set {
	if r == nil {
		return nil
	}
	return r.set
}

// Drain takes the steps that wait in the queue, and calls f with each. A hub does this for its recorders; only one goroutine may.
func (r *Recorder) Drain(f func(Step)) {
	if r == nil {
		return
	}
	last := uint32(0)
	r.queue.drain(func(s Step) {
		last = s.Every
		f(s)
	})
	if last != 0 {
		r.set.Put(KeptOneIn, float64(last))
	}
}
