package observe

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// FrameVersion is the version of the catalogue that a Frame's numbers follow.
const FrameVersion = 1

// MaxRanks bounds the workers that a Set tells apart.
const MaxRanks = maxSources

// maxValues bounds the evaluation values of a Set: a dozen metrics on three splits fit.
const maxValues = 64

// A Set holds one Source's counters, gauges and histograms. One thread writes steps; counters and gauges may be written by any;
// readers take no lock and stop no writer.
type Set struct {
	source Source

	// publishing is odd while the numbers of a step are being written, so that a frame holds whole steps only.
	publishing atomic.Uint64
	sequence   atomic.Uint64
	counters   [NumCounters]atomic.Uint64
	gauges     [NumGauges]atomic.Uint64 // the bits of float64
	gaugeSet   atomic.Uint64            // bit g: gauge g has a value
	hists      [NumDistributions]liveHistogram

	values   atomic.Pointer[[]Value] // replaced as a whole, so readers need no lock
	valuesMu sync.Mutex              // among writers
	waited   atomic.Pointer[[]time.Duration]
}

// A Value is an evaluation's result, such as valid.auc, at the step it was taken.
type Value struct {
	Name  string
	Value float64
	Step  int64
}

// A Frame is a Set at one moment: cumulative values, so that a lost frame loses no count.
type Frame struct {
	Version  uint16
	Source   Source
	Sequence uint64
	At       time.Duration // since the run began

	Counters      [NumCounters]uint64
	Gauges        [NumGauges]float64
	GaugeSet      uint64 // bit g: gauge g has a value
	Distributions [NumDistributions]Histogram
	Values        []Value         // by name
	Waited        []time.Duration // how long the source has waited for the worker of each rank; nil: for nobody
}

// Counter returns the value of c.
func (f *Frame) Counter(c Counter) uint64 { return f.Counters[c] }

// Gauge returns the value of g, and whether it ever had one.
func (f *Frame) Gauge(g Gauge) (float64, bool) { return f.Gauges[g], f.GaugeSet>>g&1 == 1 }

// NewSet returns the empty Set of a source.
func NewSet(source Source) *Set { return &Set{source: source} }

// Source returns whose numbers these are.
func (s *Set) Source() Source { return s.source }

// Add adds n to c.
func (s *Set) Add(c Counter, n uint64) { s.counters[c].Add(n) }

// Raise sets c to total if that is more: for counters that somebody else counts, such as processor time.
func (s *Set) Raise(c Counter, total uint64) {
	for {
		old := s.counters[c].Load()
		if total <= old || s.counters[c].CompareAndSwap(old, total) {
			return
		}
	}
}

// Put sets g to x.
func (s *Set) Put(g Gauge, x float64) {
	s.gauges[g].Store(math.Float64bits(x))
	if bit := uint64(1) << g; s.gaugeSet.Load()&bit == 0 {
		s.gaugeSet.Or(bit)
	}
}

// Observe counts v in d. One goroutine writes a distribution.
func (s *Set) Observe(d Distribution, v uint64) { s.hists[d].add(v) }

// Evaluate records the result of an evaluation, such as "valid.auc", at a step.
func (s *Set) Evaluate(name string, value float64, step int64) error {
	s.valuesMu.Lock()
	defer s.valuesMu.Unlock()
	var next []Value
	if old := s.values.Load(); old != nil {
		next = slices.Clone(*old)
	}
	at, found := slices.BinarySearchFunc(next, name, func(v Value, name string) int { return cmp.Compare(v.Name, name) })
	switch {
	case found:
		next[at] = Value{name, value, step}
	case len(next) == maxValues:
		return fmt.Errorf("observe: %s: %d evaluation values are kept, no room for %q", s.source, maxValues, name)
	default:
		next = slices.Insert(next, at, Value{name, value, step})
	}
	s.values.Store(&next)
	return nil
}

// PutWaited sets how long the source has waited, in all, for the worker of each rank, of which there are at most MaxRanks. by is not to be
// changed any more.
func (s *Set) PutWaited(by []time.Duration) { s.waited.Store(&by) }

// Frame returns the values now, with the next sequence number. Steps are in it whole.
func (s *Set) Frame(now time.Duration) Frame {
	f := Frame{Version: FrameVersion, Source: s.source, Sequence: s.sequence.Add(1), At: now}
	for try := 0; !s.readWhole(&f) && try < frameTries; try++ {
		if try < frameTries/2 {
			runtime.Gosched()
		} else {
			time.Sleep(100 * time.Microsecond) // the writer lost its processor inside publish
		}
	}
	if v := s.values.Load(); v != nil {
		f.Values = *v // never written after it was stored
	}
	if by := s.waited.Load(); by != nil {
		f.Waited = *by
	}
	return f
}

// frameTries bounds how often a frame is read again because a step ended meanwhile. Reading takes 2 µs, the shortest step about 50, so
// a second try almost always does. If none does, within about 10 ms, a torn frame is better than none: the next one is whole, and
// counters still never go backwards.
const frameTries = 200

// readWhole reads all values and tells whether no step was published meanwhile.
func (s *Set) readWhole(f *Frame) bool {
	before := s.publishing.Load()
	s.read(f)
	return before&1 == 0 && s.publishing.Load() == before
}

func (s *Set) read(f *Frame) {
	for c := range f.Counters {
		f.Counters[c] = s.counters[c].Load()
	}
	f.GaugeSet = s.gaugeSet.Load()
	for g := range f.Gauges {
		f.Gauges[g] = math.Float64frombits(s.gauges[g].Load())
	}
	for d := range f.Distributions {
		s.hists[d].read(&f.Distributions[d])
	}
}

// publish adds a step to the counters, so that a frame sees all of it or nothing.
func (s *Set) publish(step *Step) {
	s.publishing.Add(1)
	var wall time.Duration
	for p, d := range step.Phases {
		if d != 0 {
			wall += d
			s.counters[int(firstPhase)+p].Add(uint64(d))
		}
	}
	s.counters[WallTime].Add(uint64(wall))
	s.counters[Steps].Add(1)
	if step.Samples != 0 {
		s.counters[Samples].Add(uint64(step.Samples))
	}
	s.hists[StepTime].add(uint64(wall))
	s.Put(CurrentStep, float64(step.Step))
	s.Put(Loss, step.Loss)
	s.publishing.Add(1)
}

// A liveHistogram is a Histogram that one goroutine writes while others read. Its count is the sum of its buckets.
type liveHistogram struct {
	buckets  [NumBuckets]atomic.Uint64
	sum      atomic.Uint64
	min, max atomic.Uint64 // min is stored as its complement, so that zero means none
}

func (h *liveHistogram) add(v uint64) {
	if ^v > h.min.Load() {
		h.min.Store(^v)
	}
	if v > h.max.Load() {
		h.max.Store(v)
	}
	h.sum.Add(v)
	h.buckets[Bucket(v)].Add(1)
}

func (h *liveHistogram) read(into *Histogram) {
	into.Count = 0
	for b := range into.Buckets {
		n := h.buckets[b].Load()
		into.Buckets[b] = n
		into.Count += n
	}
	into.Sum, into.Min, into.Max = h.sum.Load(), ^h.min.Load(), h.max.Load()
	if into.Count == 0 {
		into.Sum, into.Min, into.Max = 0, 0, 0
	}
}
