package server

import (
	"fmt"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/ps"
)

// record has what this process sends, receives and refuses counted at its worker, or, where it only serves, as a server's.
func (c *cluster) record() {
	if c.env.Observe == nil {
		return
	}
	r := c.figures
	if r == nil {
		r = c.env.Observe.Recorder(observe.Source{Run: c.env.Run, Strategy: "server", Role: observe.Server, Rank: c.env.Rank})
		c.figures = r
	}
	c.env.CountTraffic(r)
	host, refused := c.host, uint64(0)
	serves := c.server >= 0 // then trace hears of them
	c.env.Observe.Poll(func(time.Duration) {
		if n := host.Refused(); n > refused && !serves {
			r.Add(observe.Refused, n-refused)
			refused = n
		}
	})
}

// trace records what this process serves: messages that it refuses, rounds of lost workers that are torn, and where it only serves the rounds
// that it has applied, how long their cells took, and the reads that wait.
func (c *cluster) trace() (t ps.ServerTrace) {
	r := c.figures
	if r == nil {
		return t
	}
	t.Refused = func(ps.Name, string) { r.Add(observe.Refused, 1) }
	t.Torn = func(x ps.Torn) {
		n := x.To - x.From
		r.Add(observe.TornRounds, uint64(n))
		const text = "a server had %d rounds of %s, which was lost, from round %d on, that another had not"
		r.Event(observe.Warn, "torn", -1, fmt.Sprintf(text, n, x.Client, x.From))
	}
	if c.env.Role != observe.Server {
		return t
	}
	var mu sync.Mutex // lanes have a goroutine each, and a distribution one writer
	began, parked := map[int]time.Time{}, 0
	r.Put(observe.ParkedRequests, 0)
	t.Applied = func(int, int, ps.Clock, int) { r.Add(observe.Updates, 1) }
	t.Applies = func(lane int, begin bool) {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		if begin {
			began[lane] = now
		} else {
			r.Observe(observe.ServerApply, uint64(now.Sub(began[lane])))
		}
	}
	t.Parked = func(_, change int) {
		mu.Lock()
		defer mu.Unlock()
		parked += change
		r.Put(observe.ParkedRequests, float64(parked))
	}
	return t
}

// observeFlight records how long this worker's rounds are on their way while it does something else.
func (w *worker) observeFlight() {
	if w.run.Recorder != nil {
		w.host.OnFlight(func(d time.Duration) { w.run.Overlap(observe.Push, d) })
	}
}

// observeReads records how stale each read of the model is: by how many rounds of this worker's clock what it returned may lack others'
// updates; whether the cache answered it; and how many rounds ahead of the slowest the worker is.
func (w *worker) observeReads() {
	if w.run.Recorder == nil {
		return
	}
	w.w.OnRead(func(table string, v ps.Clock, cached bool) {
		if table == factsTable || table == agreeTable { // not the model's
			return
		}
		now := w.w.Now()
		stale := max(now-v, 0)
		w.run.Observe(observe.Staleness, uint64(stale))
		if cached {
			w.run.Add(observe.CacheHits, 1)
		} else {
			w.run.Add(observe.CacheMisses, 1)
		}
		w.run.Put(observe.WorkerClock, float64(now))
		w.run.Put(observe.WorkerLead, float64(w.w.Lead()))
	})
}

// tellTables tells what this worker has done with each table of the model.
func (w *worker) tellTables() {
	for _, n := range w.client.TableCounters() {
		if n.Table == factsTable || n.Table == agreeTable || n.Reads+n.Rounds == 0 {
			continue
		}
		w.run.Event(observe.Info, "table", w.run.At().Step, tableText(&n))
	}
}

// tableText is a table's counters in words.
func tableText(n *ps.TableCounters) string {
	s := fmt.Sprintf("table %q: %d reads", n.Table, n.Reads)
	if n.Reads > 0 {
		sum, most := uint64(0), 0
		for old, reads := range n.Stale {
			if sum += uint64(old) * reads; reads > 0 {
				most = old
			}
		}
		least := ""
		if most == ps.MaxStale {
			least = " or more"
		}
		s += fmt.Sprintf(", %.1f %% of them from the cache, lacking %.2f rounds%s on average and %d%s at most", 100*float64(n.Hits)/float64(n.Reads), float64(sum)/float64(n.Reads), least, most, least)
	}
	s += fmt.Sprintf("; %d rounds", n.Rounds)
	if n.Rounds > 0 {
		s += fmt.Sprintf(" of %.0f bytes", float64(n.BytesSent)/float64(n.Rounds))
	}
	return s + fmt.Sprintf("; %d bytes of cells received", n.BytesReceived)
}

// observeWaits records for how long this worker has waited for each other since all began to train: what it waited before, and for workers that
// open their data last, is not of any update.
func (w *worker) observeWaits() {
	if w.run.Recorder == nil {
		return
	}
	set, from, peers := w.run.Set(), w.w, w.placement.Clients
	before := from.Waited()
	w.env.Observe.Poll(func(time.Duration) {
		now := from.Waited()
		if len(now) == 0 {
			return
		}
		by := make([]time.Duration, len(peers))
		for rank, n := range peers {
			by[rank] = now[n] - before[n]
		}
		set.PutWaited(by)
	})
}
