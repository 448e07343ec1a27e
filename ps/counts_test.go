package ps

import (
	"fmt"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/sim"
)

// TestTableCounters: what is counted of each table is what its reads told, and what was added and read of its cells.
func TestTableCounters(t *testing.T) {
	const rounds = 40
	specs := []Spec{{Name: "a", Rows: 2, Cols: 100, Mode: BSP}, {Name: "b", Rows: 50, Cols: 4, Cell: Float64, Staleness: 2}, {Name: "idle", Rows: 1, Cols: 1}}
	j := newSimJob(sim.New(6, sim.Options{Link: sim.Link{Delay: time.Millisecond, Loss: 0.02, Datagram: true}}), simOptions{clients: 2, servers: 2, min: 50, tables: specs})
	var told [2]map[string]TableCounters
	for k := range 2 {
		told[k] = map[string]TableCounters{}
		j.start(k, 0, func(w *Worker, sleep func(time.Duration)) error {
			a, b := tableOf[float32](w, "a"), tableOf[float64](w, "b")
			w.OnRead(func(table string, v Clock, cached bool) {
				n := told[k][table]
				n.Reads++
				if cached {
					n.Hits++
				}
				n.Stale[w.Now()-v]++
				told[k][table] = n
			})
			row, two, cells := make([]float32, 100), make([]float64, 8), make([]float32, 2)
			for i := range rounds {
				for range 2 { // the second from the cache
					if _, err := a.Get(bg, 0, row); err != nil {
						return err
					}
				}
				if _, err := a.View(bg, 0, func([]float32) {}); err != nil {
					return err
				}
				if _, err := a.GetCells(bg, 1, []int64{3, 70}, cells); err != nil {
					return err
				}
				if _, err := a.GetCells(bg, 0, []int64{3, 70}, cells); err != nil {
					return err
				}
				if _, err := b.GetRows(bg, []int64{int64(k), 7}, two); err != nil {
					return err
				}
				if _, err := b.View(bg, 9, func([]float64) {}); err != nil {
					return err
				}
				sleep(time.Duration(k) * 3 * time.Millisecond) // one lags, and reads what is fresher
				if err := a.DenseInc(0, 0, row); err != nil {
					return err
				}
				if i%2 == 0 {
					if err := b.Inc(7, 1, 1); err != nil {
						return err
					}
				}
				if _, err := w.Clock(bg, b.Rows(7)); err != nil {
					return err
				}
			}
			return w.Finish(bg)
		})
	}
	j.run(t, time.Hour)
	for k, c := range j.clients {
		all := c.state.tableCounters()
		if len(all) != len(specs) {
			t.Fatalf("client %d: %d tables", k, len(all))
		}
		var received, sent uint64
		for i, n := range all {
			want := told[k][specs[i].Name]
			want.Table = specs[i].Name
			if n.Reads != want.Reads || n.Hits != want.Hits || n.Stale != want.Stale || n.Table != want.Table {
				t.Errorf("client %d: %+v, and its reads told %+v", k, n, want)
			}
			received += n.BytesReceived
			sent += n.BytesSent
		}
		a, b, idle := all[0], all[1], all[2]
		if a.Reads != 5*rounds || b.Reads != 2*rounds || a.Stale[0] != a.Reads || idle != (TableCounters{Table: "idle"}) {
			t.Errorf("client %d: %+v", k, all)
		}
		if a.Rounds != rounds || b.Rounds != rounds/2 || a.BytesSent < rounds*400 || a.BytesSent > rounds*500 || b.BytesSent < rounds/2*8 || b.BytesSent > rounds/2*100 {
			t.Errorf("client %d: %d bytes in %d rounds, and %d in %d", k, a.BytesSent, a.Rounds, b.BytesSent, b.Rounds)
		}
		if n := c.state.Counters; received != n.BytesReceived || sent > n.BytesSent || a.BytesReceived < rounds/2*400 || b.BytesReceived == 0 {
			t.Errorf("client %d: %d bytes up and %d down of its tables, %+v of all", k, sent, received, n)
		}
	}
	if told[0]["b"].Stale == told[1]["b"].Stale || told[0]["b"].Stale[0] == 2*rounds {
		t.Error(fmt.Sprint("the reads of b are as stale for both: ", told[0]["b"].Stale))
	}
}

// TestStaleBeyond: reads that lack more rounds than are told apart are counted together, and none lacks fewer than none.
func TestStaleBeyond(t *testing.T) {
	var c clientTable
	for at, v := range map[Clock]Clock{0: 5, 3: 3, 20: 4, 1000: 0, 30: 15} {
		c.counted(at, v, false)
	}
	want := TableCounters{Reads: 5}
	want.Stale[0], want.Stale[15], want.Stale[MaxStale] = 2, 1, 2
	if c.counts != want {
		t.Errorf("%+v, want %+v", c.counts, want)
	}
}
