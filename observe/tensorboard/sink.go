package tensorboard

import (
	"fmt"
	"strings"
	"time"

	"github.com/trivium-ml/trivium/observe"
)

// sinkState is what a Writer remembers of the frames that it was given.
type sinkState struct {
	sources map[observe.Source]*charted
	newest  int64 // step of any source: where training is
}

// charted is one source's last frame.
type charted struct {
	prefix  string // of its tags: none for worker 0
	last    observe.Frame
	started bool
	values  map[string]int64 // the step of the last written evaluation
}

// gaugeTags are the gauges that become charts.
var gaugeTags = []struct {
	gauge observe.Gauge
	tag   string
}{
	{observe.Loss, "train/batch_loss"}, // train/loss is an evaluation's: the mean of its epoch
	{observe.LearningRate, "train/learning_rate"},
	{observe.GradientNorm, "train/gradient_norm"},
	{observe.CurrentEpoch, "train/epoch"},
	{observe.ResidentBytes, "host/resident_bytes"},
	{observe.HeapBytes, "host/heap_bytes"},
	{observe.CPUUse, "host/busy_cores"},
}

// Frame makes points of a frame, over the step as x axis: gauges as they are, samples/s, the share of each phase in the time since
// the frame before, the distribution of step times in it, how many reads of tables the cache answered, and each evaluation once.
// A source that makes no steps, such as a process as a whole, has the step at which the others are. It takes part in the limits of Scalar. The
// tags of others than worker 0 begin with their source, such as worker-1/train/batch_loss.
func (w *Writer) Frame(f observe.Frame) error {
	w.mu.Lock()
	c := w.charts.of(f.Source)
	step := w.charts.at(&f)
	w.mu.Unlock()
	at := time.Now()
	scalar := func(tag string, v float64) error { return w.Scalar(at, c.prefix+tag, step, v) }
	for _, g := range gaugeTags {
		if v, ok := f.Gauge(g.gauge); ok {
			if err := scalar(g.tag, v); err != nil {
				return err
			}
		}
	}
	for _, v := range f.Values {
		if last, ok := c.values[v.Name]; ok && last == v.Step {
			continue
		}
		c.values[v.Name] = v.Step
		if err := w.Scalar(at, c.prefix+strings.Replace(v.Name, ".", "/", 1), v.Step, v.Value); err != nil {
			return err
		}
	}
	last, again := c.last, c.started && c.last.Source.Incarnation == f.Source.Incarnation
	c.last, c.started = f, true
	if !again || f.At <= last.At || f.Counter(observe.Steps) == last.Counter(observe.Steps) {
		return nil
	}
	return w.intervals(&f, &last, at, step, c.prefix)
}

// intervals adds what happened between two frames.
func (w *Writer) intervals(f, last *observe.Frame, at time.Time, step int64, prefix string) error {
	since := func(c observe.Counter) float64 { return float64(f.Counter(c) - last.Counter(c)) }
	if err := w.Scalar(at, prefix+"speed/samples_per_second", step, since(observe.Samples)/(f.At-last.At).Seconds()); err != nil {
		return err
	}
	if wall := since(observe.WallTime); wall > 0 {
		for _, p := range observe.Phases() {
			if f.Counter(observe.PhaseTime(p)) == 0 {
				continue // a phase that this strategy does not have
			}
			if err := w.Scalar(at, prefix+"phases/"+p.String(), step, since(observe.PhaseTime(p))/wall); err != nil {
				return err
			}
		}
	}
	if hits, misses := since(observe.CacheHits), since(observe.CacheMisses); hits+misses > 0 {
		if err := w.Scalar(at, prefix+"tables/cache_hit_ratio", step, hits/(hits+misses)); err != nil {
			return err
		}
	}
	h := f.Distributions[observe.StepTime].Since(&last.Distributions[observe.StepTime])
	return w.Histogram(at, prefix+"speed/step_seconds", step, fromBuckets(&h, 1e-9))
}

// fromBuckets makes a TensorBoard histogram of ours, in values times scale.
func fromBuckets(h *observe.Histogram, scale float64) Histogram {
	out := Histogram{Min: float64(h.Min) * scale, Max: float64(h.Max) * scale, Sum: float64(h.Sum) * scale}
	for b, n := range h.Buckets {
		if n == 0 {
			continue
		}
		lo, hi := observe.BucketBounds(b)
		// TensorBoard takes a bucket to begin at the limit before it, so an empty one must stand between two that do not touch.
		low := float64(lo) * scale
		if k := len(out.Limits); k == 0 || out.Limits[k-1] < low*(1-1e-12) {
			out.Limits, out.Counts = append(out.Limits, low), append(out.Counts, 0)
		}
		out.Limits, out.Counts = append(out.Limits, (float64(hi)+1)*scale), append(out.Counts, float64(n))
		middle := (float64(lo) + float64(hi)) / 2 * scale
		out.SumSquares += float64(n) * middle * middle
	}
	return out
}

// Step does nothing: frames carry what charts show, at most once a second.
func (w *Writer) Step(observe.Source, observe.Step) error { return nil }

// Event writes warnings and errors as text.
func (w *Writer) Event(e observe.Event) error {
	if e.Level == observe.Info || e.Level == "" {
		return nil
	}
	return w.Text(e.Time, "events", max(e.Step, 0), fmt.Sprintf("**%s** %s: %s", e.Level, e.Kind, e.Text))
}

func (s *sinkState) of(source observe.Source) *charted {
	source.Incarnation = 0
	if s.sources == nil {
		s.sources = map[observe.Source]*charted{}
	}
	c := s.sources[source]
	if c == nil {
		c = &charted{values: map[string]int64{}}
		if source.Role != observe.Worker || source.Rank != 0 { // worker 0 measures the model, and need not be the first to report
			c.prefix = source.String() + "/"
		}
		s.sources[source] = c
	}
	return c
}

// at is the step of a frame.
func (s *sinkState) at(f *observe.Frame) int64 {
	x, ok := f.Gauge(observe.CurrentStep)
	if !ok {
		return s.newest
	}
	s.newest = max(s.newest, int64(x))
	return int64(x)
}

// StandardLayout is the arrangement of charts for what Frame writes.
func StandardLayout() []Category {
	var phases []string
	for _, p := range observe.Phases() {
		phases = append(phases, Exactly("phases/"+p.String()))
	}
	return []Category{
		{"Speed", []Chart{{"samples/s of all workers", []string{`speed/samples_per_second$`}}, {"phases, share of a step", phases}}},
		{"Learning", []Chart{{"loss", []string{`loss$`}}, {"accuracy", []string{`/accuracy$`, `/auc$`}}}},
	}
}
