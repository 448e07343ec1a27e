package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// memory is a Sink that keeps what it gets and fails when told to.
type memory struct {
	frames []Frame
	steps  []Step
	events []Event
	fail   error
}

func (m *memory) Frame(f Frame) error {
	if m.fail != nil {
		return m.fail
	}
	m.frames = append(m.frames, f)
	return nil
}

func (m *memory) Step(_ Source, s Step) error {
	if m.fail != nil {
		return m.fail
	}
	m.steps = append(m.steps, s)
	return nil
}

func (m *memory) Event(e Event) error {
	m.events = append(m.events, e)
	return nil
}

func step(r *Recorder, i int64, d time.Duration) {
	r.Begin(i)
	r.Enter(Compute)
	time.Sleep(d)
	r.Leave()
	r.End(Facts{Samples: 10, Loss: 1})
}

// TestStartIsMonotonic: a start that came over a network is the same moment, and no step of the wall clock moves it from then on.
func TestStartIsMonotonic(t *testing.T) {
	begin := time.Now().Add(-time.Minute)
	for _, start := range []time.Time{{}, begin, begin.Round(0)} {
		got := NewHub(Options{Start: start}).Start()
		if !strings.Contains(got.String(), " m=") {
			t.Errorf("of %v: %v has no reading of the monotonic clock", start, got)
		}
		if !start.IsZero() && !got.Equal(start) {
			t.Errorf("of %v: %v", start, got)
		}
	}
}

func TestHubCollects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := NewHub(Options{})
		source := Source{Run: "r", Role: Worker}
		r := hub.Recorder(source)
		var sink memory
		hub.Attach("memory", &sink)
		polled := 0
		hub.Poll(func(time.Duration) { polled++ })
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- hub.Run(ctx) }()
		for i := range int64(100) {
			step(r, i, 50*ms)
		}
		r.Event(Info, "checkpoint", 99, "written")
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if len(sink.steps) != 100 || len(sink.events) != 1 || sink.events[0].Source != r.Set().Source() {
			t.Errorf("%d steps, events %v", len(sink.steps), sink.events)
		}
		if len(sink.frames) < 5 || len(sink.frames) > 7 || polled != len(sink.frames) {
			t.Errorf("%d frames in 5 s, polled %d times", len(sink.frames), polled)
		}
		last := sink.frames[len(sink.frames)-1]
		if last.Counter(Samples) != 1000 || last.Counter(PhaseTime(Compute)) != uint64(5*time.Second) {
			t.Errorf("the last frame has %d samples, %d ns of compute", last.Counter(Samples), last.Counter(PhaseTime(Compute)))
		}
		if last := sink.steps[99]; last.Step != 99 || last.Every != 1 {
			t.Errorf("the last step is %+v", last)
		}
		time.Sleep(7 * time.Second)
		if l := hub.Latest(); len(l) != 1 || l[0].Age < 7*time.Second {
			t.Errorf("latest %d reports, age %v", len(l), l[0].Age)
		}
	})
}

func TestFailingSinkCostsMetricsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := NewHub(Options{})
		r := hub.Recorder(Source{Role: Worker})
		bad, good := &memory{fail: errors.New("no space left on device")}, &memory{}
		hub.Attach("run directory", bad)
		hub.Attach("other", good)
		step(r, 0, ms)
		hub.Collect(true)
		bad.fail = nil
		step(r, 1, ms)
		hub.Collect(true)
		if len(bad.steps) != 0 || len(bad.frames) != 0 || len(good.steps) != 2 || len(good.frames) != 2 {
			t.Errorf("the failed sink got %d steps and %d frames, the other %d and %d", len(bad.steps), len(bad.frames), len(good.steps), len(good.frames))
		}
		if len(bad.events) != 1 || bad.events[0].Kind != "metrics-incomplete" || !strings.Contains(bad.events[0].Text, "no space left") {
			t.Errorf("events %v: want one that says metrics are incomplete", bad.events)
		}
		if got := hub.Incomplete(); len(got) != 1 || !strings.HasPrefix(got[0], "run directory: metrics incomplete since ") {
			t.Errorf("incomplete %q", got)
		}
	})
}

func TestAcceptRefuses(t *testing.T) {
	hub := NewHub(Options{})
	s := Source{Run: "r", Role: Worker, Rank: 3}
	frame := func(version uint16, incarnation, sequence uint64) Frame {
		s.Incarnation = incarnation
		return Frame{Version: version, Source: s, Sequence: sequence, At: time.Duration(sequence) * time.Second}
	}
	for _, c := range []struct {
		f    Frame
		want string
	}{
		{frame(1, 1, 1), ""},
		{frame(2, 1, 2), "worker-3 has version 2, this program reads version 1"},
		{frame(1, 1, 3), ""}, // 2 was lost
		{frame(1, 1, 3), "used once"},
		{frame(1, 1, 2), "came after frame 3"},
		{frame(1, 2, 1), ""},
		{frame(1, 1, 4), "incarnation 1, which ended when 2 began"},
	} {
		err := hub.Accept(c.f)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("frame %d of incarnation %d, version %d: %v, want %q", c.f.Sequence, c.f.Source.Incarnation, c.f.Version, err, c.want)
		}
	}
}

// TestHubIsBounded: whatever others report, a hub holds no more sources, events and steps that wait than it says.
func TestHubIsBounded(t *testing.T) {
	hub := NewHub(Options{})
	for rank := range maxSources + 1 {
		err := hub.Accept(Frame{Version: FrameVersion, Source: Source{Role: Worker, Rank: rank}, Sequence: 1})
		if (err == nil) != (rank < maxSources) {
			t.Fatalf("the frame of source %d: %v", rank+1, err)
		}
	}
	for n := range pendingRelayed + 1 {
		if err := hub.RelayStep(Source{Role: Worker}, Step{}); (err == nil) != (n < pendingRelayed) {
			t.Fatalf("step %d that waits: %v", n+1, err)
		}
	}
	for n := range 3 * keptEvents {
		if hub.Event(Event{Step: int64(n)}); len(hub.Events()) > keptEvents || hub.Events()[len(hub.Events())-1].Step != int64(n) {
			t.Fatalf("after %d events %d are kept, the last is %+v", n+1, len(hub.Events()), hub.Events()[len(hub.Events())-1])
		}
	}
	var sink memory
	hub.Attach("memory", &sink)
	hub.Collect(false)
	if n := len(sink.events); n != pendingEvents+1 || !strings.HasPrefix(sink.events[n-1].Text, "2000 events came faster") || len(sink.steps) != pendingRelayed {
		t.Errorf("the sink got %d events, the last %q, and %d steps", n, sink.events[n-1].Text, len(sink.steps))
	}
}

// TestReplacedRecorder: the steps and counts that a recorder has when another takes its place reach the sinks, and in their order.
func TestReplacedRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := NewHub(Options{})
		source := Source{Run: "r", Role: Worker}
		var sink memory
		hub.Attach("memory", &sink)
		for i := range int64(3) {
			step(hub.Recorder(source), i, 50*ms)
		}
		hub.Collect(true)
		var steps []int64
		for _, s := range sink.steps {
			steps = append(steps, s.Step)
		}
		if !slices.Equal(steps, []int64{0, 1, 2}) {
			t.Errorf("steps %v, want 0, 1 and 2", steps)
		}
		for i, f := range sink.frames {
			if f.Source.Incarnation != uint64(i) || f.Counter(Samples) != 10 {
				t.Errorf("frame %d is of incarnation %d, with %d samples", i, f.Source.Incarnation, f.Counter(Samples))
			}
		}
		if len(sink.frames) != 3 {
			t.Errorf("%d frames, want one of each recorder", len(sink.frames))
		}
	})
}

// TestThinning reports steps at 20,000 a second: about 1,000 are kept, and each says one in how many.
func TestThinning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(Source{Role: Worker}, time.Now())
		kept := 0
		var last Step
		for i := range int64(60_000) {
			step(r, i, 50*time.Microsecond)
			if i%200 == 0 {
				r.Drain(func(s Step) { kept++; last = s })
			}
		}
		if kept < 2900 || kept > 3200 || last.Every != 20 {
			t.Errorf("%d of 60,000 steps in 3 s were kept, at the end one in %d", kept, last.Every)
		}
		f := r.Set().Frame(r.Now())
		if f.Counter(Steps) != 60_000 || f.Counter(Dropped) != 0 || f.Distributions[StepTime].Count != 60_000 {
			t.Errorf("%d steps counted, %d dropped: counters and histograms see all", f.Counter(Steps), f.Counter(Dropped))
		}
		if one, _ := f.Gauge(KeptOneIn); one != 20 {
			t.Errorf("kept one in %g", one)
		}
	})
}

// TestNobodyDrains fills the queue: steps are dropped and counted, and the thread goes on.
func TestNobodyDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(Source{Role: Worker}, time.Now())
		for i := range int64(queueSteps + 10) {
			step(r, i, 2*ms)
		}
		if n := r.Set().Frame(0).Counters[Dropped]; n != 10 {
			t.Errorf("%d steps dropped, want 10", n)
		}
		n := 0
		r.Drain(func(s Step) {
			if s.Step != int64(n) {
				t.Errorf("step %d in place of %d", s.Step, n)
			}
			n++
		})
		if n != queueSteps {
			t.Errorf("%d steps drained, want %d", n, queueSteps)
		}
	})
}

func TestNilRecorderIsOff(t *testing.T) {
	var hub *Hub
	r := hub.Recorder(Source{})
	r.Begin(0)
	r.Enter(Load)
	r.Overlap(Push, ms)
	r.Move(Load, Pull, ms)
	r.Leave()
	r.Add(Samples, 1)
	r.Put(Loss, 1)
	r.Observe(StepTime, 1)
	r.Event(Info, "x", 0, "y")
	r.Drain(func(Step) { t.Error("a nil recorder has a step") })
	r.Abandon()
	if r.End(Facts{}) != 0 || r.Set() != nil || r.Evaluate("a.b", 1, 1) != nil {
		t.Error("a nil recorder is not off")
	}
}

func TestRecorderDoesNotAllocate(t *testing.T) {
	r := NewRecorder(Source{Role: Worker}, time.Now())
	var i int64
	got := testing.AllocsPerRun(500, func() {
		r.Begin(i)
		r.Enter(Compute)
		r.Overlap(Push, 3)
		r.Leave()
		r.Add(Updates, 1)
		r.End(Facts{Samples: 1})
		i++
	})
	if got != 0 {
		t.Errorf("%g allocations a step", got)
	}
	if r.Step().Overlapped[Push] == 0 {
		t.Error("overlapped work was lost")
	}
}

func ExampleRecorder() {
	hub := NewHub(Options{})
	r := hub.Recorder(Source{Run: "4f2a", Strategy: "local", Role: Worker})
	for i := range int64(3) {
		r.Begin(i)
		r.Enter(Load)
		r.Leave()
		r.Enter(Compute)
		r.Leave()
		r.End(Facts{Samples: 100, Loss: 0.7})
	}
	hub.Collect(true)
	f := hub.Latest()[0].Frame
	var sum uint64
	for _, p := range Phases() {
		sum += f.Counter(PhaseTime(p))
	}
	fmt.Println(f.Source, f.Counter(Steps), "steps", f.Counter(Samples), "samples, phases add up:", sum == f.Counter(WallTime))
	// Output: worker-0 3 steps 300 samples, phases add up: true
}
