package observe

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// A Point is what a series did within one stretch of its resolution. Stretches without a frame have no point: a gap is a gap.
type Point struct {
	At             time.Duration // begin of the stretch
	Min, Mean, Max float64
	N              uint32 // values in it

	weight float64 // of Mean: of a rate the seconds it is of, so that the last frame of a run, soon after another, counts as little
}

// resolutions of a history: an hour of seconds, a day of ten seconds, 30 days of minutes.
var resolutions = [...]struct {
	width time.Duration
	keep  int
}{
	{time.Second, 3600},
	{10 * time.Second, 8640},
	{time.Minute, 43200},
}

// A history keeps the series of one source in three resolutions: of a counter its rate, of a gauge and an evaluation its value.
type history struct {
	series   map[string]*series
	last     Frame
	counters [NumCounters]Increments
}

type series [len(resolutions)][]Point

func newHistory() *history { return &history{series: map[string]*series{}} }

// add takes the next frame. The rate of a counter is its increment over the time since the frame before, per second; where it counts
// nanoseconds that is a ratio.
func (h *history) add(f *Frame) {
	seconds := (f.At - h.last.At).Seconds()
	for c := range h.counters {
		n, ok := h.counters[c].Next(f.Source.Incarnation, f.Counters[c])
		if !ok || seconds <= 0 || (n == 0 && f.Counters[c] == 0) {
			continue
		}
		rate := float64(n) / seconds
		if Counter(c).Metric().Unit == Nanoseconds {
			rate /= 1e9
		}
		h.point(Counter(c).Metric().Name, f.At, rate, seconds)
	}
	for g := range Gauge(NumGauges) {
		if x, ok := f.Gauge(g); ok {
			h.point(g.Metric().Name, f.At, x, 1)
		}
	}
	for _, v := range f.Values {
		h.point(v.Name, f.At, v.Value, 1)
	}
	h.last = *f
}

func (h *history) point(name string, at time.Duration, x, weight float64) {
	s := h.series[name]
	if s == nil {
		s = &series{}
		h.series[name] = s
	}
	for i, r := range resolutions {
		s[i] = addPoint(s[i], at-at%r.width, x, weight, r.keep)
	}
}

// addPoint adds x to the stretch that begins at; beyond keep stretches the oldest go, a quarter at a time so that the copying is cheap.
func addPoint(p []Point, at time.Duration, x, weight float64, keep int) []Point {
	if n := len(p); n > 0 && p[n-1].At == at {
		last := &p[n-1]
		last.N++
		last.Min, last.Max = min(last.Min, x), max(last.Max, x)
		last.weight += weight
		last.Mean += (x - last.Mean) * weight / last.weight
		return p
	}
	if len(p) >= keep+keep/4 {
		p = append(p[:0], p[len(p)-keep:]...)
	}
	return append(p, Point{at, x, x, x, 1, weight})
}

// Names returns the series of a source, sorted.
func (h *Hub) Names(source Source) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.find(source)
	if s == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.history.series))
}

// Series returns the points of a series between from and to, in the finest resolution that is at least as coarse as step and reaches
// back to from. A counter's series is its rate a second.
func (h *Hub) Series(source Source, name string, from, to, step time.Duration) ([]Point, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.find(source)
	if s == nil {
		return nil, fmt.Errorf("observe: no source %s in run %q", source, source.Run)
	}
	all := s.history.series[name]
	if all == nil {
		return nil, fmt.Errorf("observe: %s has no series %q", source, name)
	}
	for i, r := range resolutions {
		last := i == len(resolutions)-1
		oldest := s.history.last.At - time.Duration(r.keep)*r.width
		if !last && (step > r.width || oldest > max(from, 0)) {
			continue
		}
		var out []Point
		for _, p := range all[i] {
			if p.At+r.width > from && p.At <= to {
				out = append(out, p)
			}
		}
		return out, nil
	}
	return nil, nil
}
