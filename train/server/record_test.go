package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// A sink of events keeps them.
type sink struct{ events []observe.Event }

func (s *sink) Frame(observe.Frame) error               { return nil }
func (s *sink) Step(observe.Source, observe.Step) error { return nil }
func (s *sink) Event(e observe.Event) error {
	s.events = append(s.events, e)
	return nil
}

// TestRecorded: a run has how stale each read of the model was, within the bound, how many of them the cache answered, and what was sent; and of
// each table of the model an event that says so, of worker 0.
func TestRecorded(t *testing.T) {
	for _, c := range []struct {
		o     server.Options
		bound uint64
	}{
		{server.Options{Mode: ps.BSP}, 0},
		{server.Options{Mode: ps.SSP, Staleness: 3}, 3},
		{server.Options{Mode: ps.SSP, Staleness: 3, OptimizerAt: server.AtWorker}, 3},
	} {
		c.o.Slow = server.Slow{Worker: 1, Factor: 3, Unit: 200 * time.Microsecond}
		hub, told := observe.NewHub(observe.Options{Start: time.Now()}), new(sink)
		hub.Attach("events", told)
		x := &crew{env: train.Env{Run: "r", Observe: hub}, workers: 3, servers: 2, o: c.o}
		r, err := x.paced(t, small(job()))
		if err != nil {
			t.Fatal(err)
		}
		hub.Collect(true)
		seen := map[string]bool{}
		var tables []string
		for _, e := range told.events {
			if e.Kind == "table" {
				tables = append(tables, e.Source.String()+": "+e.Text)
			}
		}
		var reads, rounds, bytes int64
		if len(tables) == 1 {
			_, _ = fmt.Sscanf(tables[0], `worker-0: table "model": %d reads,`, &reads) // what is not told stays 0
			_, _ = fmt.Sscanf(tables[0][strings.Index(tables[0], ";")+1:], "%d rounds of %d bytes", &rounds, &bytes)
		}
		if reads < r.Steps || rounds < r.Steps || rounds > r.Steps+3 || bytes < 4*7850 || bytes > 4*7850+100 { // some fill the table
			t.Errorf("%s: told %q after %d updates of 7850 parameters", c.o.Mode, tables, r.Steps)
		}
		for _, report := range hub.Latest() {
			f := &report.Frame
			seen[f.Source.String()] = true
			if f.Counter(observe.BytesOut) == 0 || f.Counter(observe.BytesIn) == 0 {
				t.Errorf("%s: %s: no bytes are counted", c.o.Mode, f.Source)
			}
			h := &f.Distributions[observe.Staleness]
			if f.Source.Role == observe.Server {
				if f.Counter(observe.Updates) == 0 || h.Count != 0 {
					t.Errorf("%s: %s: %d updates, %d reads", c.o.Mode, f.Source, f.Counter(observe.Updates), h.Count)
				}
				n, told := f.Gauge(observe.ParkedRequests)
				if applied := f.Distributions[observe.ServerApply].Count; applied == 0 || !told || n < 0 {
					t.Errorf("%s: %s: cells were changed %d times; %v reads wait (told: %v)", c.o.Mode, f.Source, applied, n, told)
				}
				continue
			}
			if n := f.Counter(observe.Updates); n != uint64(r.Steps) {
				t.Errorf("%s: %s: went through %d updates of %d", c.o.Mode, f.Source, n, r.Steps)
			}
			// The first read misses; what it got is good for as many rounds as the bound.
			hits, misses := f.Counter(observe.CacheHits), f.Counter(observe.CacheMisses)
			if hits+misses != h.Count || misses == 0 || c.bound > 0 && hits <= misses {
				t.Errorf("%s: %s: the cache answered %d reads of %d, and %d it did not", c.o.Mode, f.Source, hits, h.Count, misses)
			}
			if h.Count < uint64(r.Steps) || h.Max > c.bound || c.bound > 0 && f.Source.Rank != 1 && h.Max == 0 {
				t.Errorf("%s: %s: %d reads of %d updates, stale by %d to %d rounds", c.o.Mode, f.Source, h.Count, r.Steps, h.Min, h.Max)
			}
		}
		for _, name := range []string{"worker-0", "worker-1", "worker-2", "server-0", "server-1"} {
			if !seen[name] {
				t.Errorf("%s: no figures of %s: %v", c.o.Mode, name, seen)
			}
		}
	}
}
