package observe

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	drainEvery    = 100 * time.Millisecond // a queue holds a second of steps
	keptEvents    = 1000
	pendingEvents = 1000 // between two rounds of collection
	maxSources    = 1024
)

// A Hub collects what the recorders of a process (and, by Accept, the frames of others) report. It keeps the latest frames and the last
// events, and feeds the sinks: what was before is theirs to keep.
//
// Run is its loop, and the only place that sinks are called from: a sink that hangs or fails stops no step and no reader of the hub.
type Hub struct {
	collecting sync.Mutex // held while sinks are fed

	options Options

	mu      sync.Mutex
	run     string         // whose name all sources have in Latest; empty: each its own
	sources []*sourceState // in order of appearance
	events  []Event        // the last keptEvents
	pending []Event        // not yet given to the sinks
	lost    uint64         // events there was no room for
	relayed []relayed      // what other processes reported, not yet given to the sinks
	sinks   []*sinkState
	polls   []func(now time.Duration)
}

// Options of a Hub. The zero value works.
type Options struct {
	Start    time.Time     // when the run began; zero: now
	Interval time.Duration // between frames; zero: 1 s
	Log      *slog.Logger  // nil discards
}

type sourceState struct {
	source   Source
	recorder *Recorder // nil: frames come through Accept
	ended    []ended   // that it took the place of
	frame    Frame
	heard    time.Duration // when the last frame came
}

// An ended is a recorder whose steps the sinks do not all have yet, with its last frame.
type ended struct {
	recorder *Recorder
	last     Frame
}

type sinkState struct {
	name   string
	sink   Sink
	failed error
	since  time.Time
}

// NewHub returns a Hub without sources.
func NewHub(o Options) *Hub {
	now := time.Now()
	if o.Start.IsZero() {
		o.Start = now
	}
	// What comes from another process or a file has no reading of the monotonic clock: without one, a step of the wall clock would turn
	// times around, and phases and their counters negative.
	o.Start = now.Add(o.Start.Sub(now))
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Hub{options: o}
}

// Start returns when the run began.
func (h *Hub) Start() time.Time { return h.options.Start }

// Now returns the time since the run began.
func (h *Hub) Now() time.Duration { return time.Since(h.options.Start) }

// Recorder returns a new Recorder whose steps and frames this hub collects. Of a nil hub it is nil, which is off. A source that has
// a recorder already gets a new incarnation.
func (h *Hub) Recorder(source Source) *Recorder {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.find(source)
	if s == nil {
		s = &sourceState{source: source}
		h.sources = append(h.sources, s)
	} else {
		last := s.source.Incarnation
		if s.recorder != nil { // of which no frame may have been taken yet
			last = max(last, s.recorder.set.source.Incarnation)
			s.ended = append(s.ended, ended{s.recorder, s.recorder.set.Frame(h.Now())})
		}
		source.Incarnation = max(source.Incarnation, last+1)
	}
	s.recorder = NewRecorder(source, h.options.Start)
	s.recorder.hub = h
	return s.recorder
}

// NameRun gives the run of a hub that has no other its name. Latest puts it into all sources, for processes that were started before it was
// chosen report under the one that was asked for.
func (h *Hub) NameRun(run string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.run = run
}

// Attach adds a sink. Its name is used in events.
func (h *Hub) Attach(name string, s Sink) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sinks = append(h.sinks, &sinkState{name: name, sink: s})
}

// Poll adds a func that is called before each frame is taken: to read host figures into a Set.
func (h *Hub) Poll(f func(now time.Duration)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.polls = append(h.polls, f)
}

func (h *Hub) find(source Source) *sourceState {
	for _, s := range h.sources {
		if s.source.Same(source) {
			return s
		}
	}
	return nil
}

// Event records what happened. It only queues: the sinks get it from Run.
func (h *Hub) Event(e Event) {
	if h == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if e.Level == "" {
		e.Level = Info
	}
	level := map[Level]slog.Level{Info: slog.LevelInfo, Warn: slog.LevelWarn, Error: slog.LevelError}[e.Level]
	h.options.Log.Log(context.Background(), level, e.Text, "kind", e.Kind, "source", e.Source.String(), "step", e.Step)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remember(e)
	if len(h.pending) == pendingEvents {
		h.lost++
		return
	}
	h.pending = append(h.pending, e)
}

func (h *Hub) remember(e Event) {
	if len(h.events) == keptEvents {
		h.events = append(h.events[:0], h.events[keptEvents/10:]...)
	}
	h.events = append(h.events, e)
}

// Accept takes a frame that came from elsewhere, or from a recorder of this hub. It refuses another version, a sequence number that
// was there already, and an incarnation that has ended.
func (h *Hub) Accept(f Frame) error {
	if f.Version != FrameVersion {
		return fmt.Errorf("observe: frame %d of %s has version %d, this program reads version %d", f.Sequence, f.Source, f.Version, FrameVersion)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.find(f.Source)
	if s == nil {
		if len(h.sources) == maxSources {
			return fmt.Errorf("observe: frame of %s refused: %d sources report already", f.Source, maxSources)
		}
		s = &sourceState{source: f.Source}
		h.sources = append(h.sources, s)
	}
	if f.Source.Incarnation < s.source.Incarnation {
		return fmt.Errorf("observe: frame %d of %s is of incarnation %d, which ended when %d began",
			f.Sequence, f.Source, f.Source.Incarnation, s.source.Incarnation)
	}
	if f.Source.Incarnation == s.frame.Source.Incarnation && f.Sequence <= s.frame.Sequence {
		return fmt.Errorf("observe: frame %d of %s came after frame %d: a sequence number is used once",
			f.Sequence, f.Source, s.frame.Sequence)
	}
	s.source, s.frame, s.heard = f.Source, f, h.Now()
	return nil
}

// A relayed is a frame or a step of another process.
type relayed struct {
	frame  *Frame
	source Source
	step   Step
}

// pendingRelayed bounds what waits between two rounds of collection.
const pendingRelayed = 1 << 16

// Relay is Accept for a frame of another process, which the sinks get with the next round of Run.
func (h *Hub) Relay(f Frame) error {
	if err := h.Accept(f); err != nil {
		return err
	}
	return h.relay(relayed{frame: &f})
}

// RelayStep gives a step of another process to the sinks, with the next round of Run.
func (h *Hub) RelayStep(source Source, s Step) error {
	return h.relay(relayed{source: source, step: s})
}

func (h *Hub) relay(r relayed) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.relayed) == pendingRelayed {
		return fmt.Errorf("observe: what %s reports is dropped: %d frames and steps wait already", r.origin(), pendingRelayed)
	}
	h.relayed = append(h.relayed, r)
	return nil
}

func (r *relayed) origin() Source {
	if r.frame != nil {
		return r.frame.Source
	}
	return r.source
}

// Run collects until ctx ends, and then once more, so that nothing that was recorded before is lost to the sinks. The recorders may
// outlive it.
func (h *Hub) Run(ctx context.Context) error {
	tick := time.NewTicker(min(drainEvery, h.options.Interval))
	defer tick.Stop()
	h.Collect(true)
	frameAt := h.Now() + h.options.Interval
	for {
		select {
		case <-ctx.Done():
			h.Collect(true)
			return nil
		case <-tick.C:
		}
		now := h.Now()
		due := now >= frameAt
		if due {
			frameAt = now - now%h.options.Interval + h.options.Interval
		}
		h.Collect(due)
	}
}

// Collect is one round of Run: it drains the steps, takes frames if so asked, and feeds the sinks. It is for callers that have no Run, or
// want what there is before its next round; who collects at the same time waits.
func (h *Hub) Collect(frames bool) {
	h.collecting.Lock()
	defer h.collecting.Unlock()
	h.mu.Lock()
	sources := append([]*sourceState(nil), h.sources...)
	sinks := append([]*sinkState(nil), h.sinks...)
	polls := append(([]func(time.Duration))(nil), h.polls...)
	others := h.relayed
	h.relayed = nil
	h.mu.Unlock()

	if frames {
		now := h.Now()
		for _, poll := range polls {
			poll(now)
		}
	}
	for _, s := range sources {
		h.mu.Lock()
		recorder, ended := s.recorder, s.ended
		s.ended = nil
		h.mu.Unlock()
		for _, e := range ended {
			h.collectSteps(e.recorder, sinks)
			h.collectFrame(e.last, sinks)
		}
		if recorder != nil {
			h.collectSteps(recorder, sinks)
			if frames {
				h.collectFrame(recorder.set.Frame(h.Now()), sinks)
			}
		}
	}
	for _, r := range others {
		for _, s := range sinks {
			h.feed(s, func() error {
				if r.frame != nil {
					return s.sink.Frame(*r.frame)
				}
				return s.sink.Step(r.source, r.step)
			})
		}
	}
	h.feedEvents(sinks)
	for _, s := range sinks {
		if f, ok := s.sink.(Flusher); ok {
			h.feed(s, f.Flush)
		}
	}
	h.feedEvents(sinks) // what the failure of a sink had to say
}

func (h *Hub) collectSteps(r *Recorder, sinks []*sinkState) {
	source := r.set.source
	r.Drain(func(step Step) {
		for _, s := range sinks {
			h.feed(s, func() error { return s.sink.Step(source, step) })
		}
	})
}

func (h *Hub) collectFrame(f Frame, sinks []*sinkState) {
	if err := h.Accept(f); err != nil {
		return // a frame of a newer incarnation came from elsewhere
	}
	for _, s := range sinks {
		h.feed(s, func() error { return s.sink.Frame(f) })
	}
}

// feed calls a sink unless it has failed; its first error disables it, with an event.
func (h *Hub) feed(s *sinkState, call func() error) {
	if s.failed != nil {
		return
	}
	err := call()
	if err == nil {
		return
	}
	h.mu.Lock()
	s.failed, s.since = err, time.Now()
	h.mu.Unlock()
	h.Event(Event{
		Level: Warn, Kind: "metrics-incomplete", Step: -1,
		Text: fmt.Sprintf("%s: metrics incomplete since %s: %v", s.name, s.since.Format(time.TimeOnly), err),
	})
}

// feedEvents gives the pending events to all sinks, also to those that take no more metrics: a line may still fit.
func (h *Hub) feedEvents(sinks []*sinkState) {
	h.mu.Lock()
	pending := h.pending
	h.pending = nil
	if h.lost > 0 {
		pending = append(pending, Event{
			Time: time.Now(), Level: Warn, Kind: "events-lost", Step: -1,
			Text: fmt.Sprintf("%d events came faster than they could be written", h.lost),
		})
		h.lost = 0
	}
	h.mu.Unlock()
	for _, e := range pending {
		for _, s := range sinks {
			if err := s.sink.Event(e); err != nil {
				h.feed(s, func() error { return err })
			}
		}
	}
}

// Incomplete returns a sentence for each sink that has failed: what, since when, and why.
func (h *Hub) Incomplete() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, s := range h.sinks {
		if s.failed != nil {
			out = append(out, fmt.Sprintf("%s: metrics incomplete since %s: %v", s.name, s.since.Format(time.TimeOnly), s.failed))
		}
	}
	return out
}

// A Report is the latest frame of a source and how long ago it came. Absence is shown: no frame in a while is an age, not a flat line.
type Report struct {
	Frame Frame
	Age   time.Duration
}

// Latest returns the latest frame of each source that has one, in order of appearance.
func (h *Hub) Latest() []Report {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []Report
	for _, s := range h.sources {
		if s.frame.Version == 0 {
			continue
		}
		r := Report{s.frame, now - s.heard}
		r.Frame.Source.Run = cmp.Or(h.run, r.Frame.Source.Run)
		out = append(out, r)
	}
	return out
}

// Events returns the last events, oldest first.
func (h *Hub) Events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Event(nil), h.events...)
}
