package allreduce

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/observe"
)

// measured is how long this worker's sums took, by what they were of, beside what the group's costs predict. The first update has those
// of all buckets. Touched rows may be others in each: the first sums alone are kept, so that those of ever new sizes do not fill the memory.
type measured struct {
	gathers bool                  // all-gathers are a part of each update: the optimizer is sharded, or touched rows travel as lists
	costs   bool                  // the links' were measured: what is predicted without is a guess
	coded   map[int]time.Duration // what was predicted of sums that a codec encodes, by their bytes

	mu     sync.Mutex
	ops    map[operation]*observe.Histogram // nanoseconds
	paused bool                             // what is summed now is no part of an update
}

// mostMeasured is the number of different sums that are kept, in a megabyte.
const mostMeasured = 256

type operation struct {
	kind      collective.Kind
	algorithm collective.Algorithm
	ranks     int
	bytes     int
	codec     string
	predicted time.Duration
}

// add counts a sum that completed. The group calls it with its lock held.
func (m *measured) add(x collective.Measurement) {
	if x.Kind != collective.AllReduce && x.Kind != collective.ReduceScatter && !(m.gathers && x.Kind == collective.AllGather) {
		return
	}
	of := operation{x.Kind, x.Algorithm, x.Ranks, x.Bytes, x.Codec, x.Predicted}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.paused {
		return
	}
	h := m.ops[of]
	if h == nil {
		if len(m.ops) == mostMeasured {
			return
		}
		if m.ops == nil {
			m.ops = map[operation]*observe.Histogram{}
		}
		h = new(observe.Histogram)
		m.ops[of] = h
	}
	h.Add(uint64(max(x.Took, 0)))
}

// pause says whether what comes is no part of an update.
func (m *measured) pause(yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused = yes
}

// reset forgets what was no part of training.
func (m *measured) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ops = nil
}

// tell makes each operation an event of the run. What it took is from its start, so it holds the wait for workers that started later and,
// for a part of the gradient, what the backward pass left of the processor.
func (m *measured) tell(r *observe.Recorder, step int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, of := range slices.SortedFunc(maps.Keys(m.ops), func(a, b operation) int {
		return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.kind, b.kind), cmp.Compare(a.algorithm, b.algorithm),
			cmp.Compare(a.codec, b.codec), cmp.Compare(a.predicted, b.predicted))
	}) {
		h := m.ops[of]
		lo, hi := h.Quantile(0.5)
		by := of.algorithm.String()
		if of.codec != "" {
			by += " of " + of.codec
			of.predicted = m.coded[of.bytes]
		}
		what := "sum"
		if of.kind != collective.AllReduce {
			what = of.kind.String()
		}
		r.Event(observe.Info, "collective", step, fmt.Sprintf("%s of %d bytes among %d workers, %s: %s in the median of %d, %s",
			what, of.bytes, of.ranks, by, took(time.Duration((lo+hi)/2)), h.Count, m.foretold(of.predicted)))
	}
}

// took is a time in words. Where what the others have of a sum was there before it began, it began and ended in one step of the group's clock.
func took(d time.Duration) string {
	if d = d.Round(time.Microsecond); d == 0 {
		return "too short to measure"
	}
	return d.String()
}

// foretold says what was predicted, and whether from measurements.
func (m *measured) foretold(d time.Duration) string {
	if d == 0 || m.costs {
		return predicted(d)
	}
	return fmt.Sprintf("guessed %v: the links were not measured (--calibrate)", d.Round(time.Microsecond))
}

func predicted(d time.Duration) string {
	if d == 0 {
		return "not predicted"
	}
	return fmt.Sprintf("predicted %v", d.Round(time.Microsecond))
}
