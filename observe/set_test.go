package observe

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestFramesHoldWholeSteps takes frames while a thread reports steps: in each, the phases add up to the wall time.
func TestFramesHoldWholeSteps(t *testing.T) {
	r := NewRecorder(Source{Role: Worker}, time.Now())
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := int64(0); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			r.Begin(i)
			r.Enter(Compute)
			for begin := r.Now(); r.Now() < begin+100*time.Microsecond; {
			}
			r.Leave()
			r.Enter(Apply)
			r.Leave()
			r.End(Facts{Samples: 100})
		}
	})
	var last Frame
	for n := range 300 {
		f := r.Set().Frame(r.Now())
		var sum uint64
		for _, p := range Phases() {
			sum += f.Counter(PhaseTime(p))
		}
		if sum != f.Counter(WallTime) || f.Counter(Samples) != 100*f.Counter(Steps) || f.Distributions[StepTime].Count != f.Counter(Steps) {
			t.Fatalf("frame %d: phases %d ns, wall %d ns, %d samples, %d steps, %d durations", n, sum, f.Counter(WallTime),
				f.Counter(Samples), f.Counter(Steps), f.Distributions[StepTime].Count)
		}
		for c := range f.Counters {
			if f.Counters[c] < last.Counters[c] {
				t.Fatalf("frame %d: %v went back from %d to %d", n, Counter(c), last.Counters[c], f.Counters[c])
			}
		}
		if f.Sequence != last.Sequence+1 {
			t.Fatalf("frame %d after %d", f.Sequence, last.Sequence)
		}
		last = f
		r.Drain(func(Step) {})
	}
	close(stop)
	wg.Wait()
}

func TestSetValues(t *testing.T) {
	s := NewSet(Source{Role: Worker, Rank: 3})
	if f := s.Frame(0); f.GaugeSet != 0 || f.Distributions[StepTime].Count != 0 || f.Version != FrameVersion {
		t.Errorf("a new set has gauges %b", f.GaugeSet)
	}
	s.Put(Loss, math.NaN())
	s.Raise(CPUUser, 10)
	s.Raise(CPUUser, 5)
	s.Observe(Staleness, 0)
	s.Observe(Staleness, 3)
	for _, name := range []string{"valid.auc", "test.accuracy", "valid.auc"} {
		if err := s.Evaluate(name, 0.5, 10); err != nil {
			t.Fatal(err)
		}
	}
	if f := s.Frame(0); f.Waited != nil {
		t.Errorf("waited %v for others, of which nothing was said", f.Waited)
	}
	s.PutWaited([]time.Duration{0, 5})
	s.PutWaited([]time.Duration{0, 7})
	f := s.Frame(time.Second)
	if x, ok := f.Gauge(Loss); !ok || !math.IsNaN(x) {
		t.Errorf("loss %v, set %t: a loss that is not a number must survive", x, ok)
	}
	if _, ok := f.Gauge(LearningRate); ok {
		t.Error("the learning rate was never set")
	}
	if f.Counter(CPUUser) != 10 {
		t.Errorf("processor time went to %d", f.Counter(CPUUser))
	}
	if d := f.Distributions[Staleness]; d.Count != 2 || d.Min != 0 || d.Max != 3 || d.Sum != 3 {
		t.Errorf("staleness: count %d, %d to %d, sum %d", d.Count, d.Min, d.Max, d.Sum)
	}
	if !slices.Equal(f.Waited, []time.Duration{0, 7}) {
		t.Errorf("waited %v", f.Waited)
	}
	if len(f.Values) != 2 || f.Values[0].Name != "test.accuracy" || f.Values[1].Name != "valid.auc" {
		t.Errorf("values %v, want two by name", f.Values)
	}
	for i := range maxValues {
		if err := s.Evaluate(string(rune('a'+i%26))+string(rune('a'+i/26)), 0, 0); (err != nil) != (i >= maxValues-2) {
			t.Fatalf("value %d: %v", i, err)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	check := func(m Metric) {
		if m.Name == "" || m.Help == "" || seen[m.Name] {
			t.Errorf("metric %+v: no name, no help, or twice", m)
		}
		seen[m.Name] = true
	}
	for c := range Counter(NumCounters) {
		check(c.Metric())
	}
	for g := range Gauge(NumGauges) {
		check(g.Metric())
	}
	for d := range Distribution(NumDistributions) {
		check(d.Metric())
	}
	if PhaseTime(Other).String() != "phase_time.other" || OverlapTime(Load).String() != "overlapped_time.load" {
		t.Errorf("phase counters are %v and %v", PhaseTime(Other), OverlapTime(Load))
	}
}

func BenchmarkAdd(b *testing.B) {
	s := NewSet(Source{})
	b.ReportAllocs()
	for b.Loop() {
		s.Add(Samples, 1)
	}
}

func BenchmarkFrame(b *testing.B) {
	r := NewRecorder(Source{Role: Worker}, time.Now())
	for i := range int64(1000) {
		r.Begin(i)
		r.End(Facts{Samples: 100})
	}
	b.ReportAllocs()
	var seen uint64
	for b.Loop() {
		f := r.Set().Frame(0)
		seen += f.Counters[Samples]
	}
	if seen == 0 {
		b.Error("no samples in any frame")
	}
}
