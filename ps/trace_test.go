package ps

import (
	"testing"
	"time"

	"github.com/trivium-ml/trivium/sim"
)

// TestTrace: cells are changed between a beginning and an end, and reads that wait are counted in and out again, at each lane.
func TestTrace(t *testing.T) {
	const servers, clients, rounds = 2, 3, 10
	var at [servers]struct{ begun, ended, parked, most int }
	j := newSimJob(sim.New(21, sim.Options{}), simOptions{
		clients: clients, servers: servers, min: 8, tables: []Spec{{Name: "a", Rows: 1, Cols: 200, Mode: BSP}},
		server: ServerOptions{Trace: ServerTrace{
			Applies: func(lane int, begin bool) {
				x := &at[lane]
				if begin {
					x.begun++
				} else {
					x.ended++
				}
				if x.begun-x.ended > 1 || x.begun < x.ended {
					t.Errorf("lane %d: cells are changed %d times, and %d times that has ended", lane, x.begun, x.ended)
				}
			},
			Parked: func(lane, change int) {
				x := &at[lane]
				x.parked += change
				x.most = max(x.most, x.parked)
			},
		}},
	})
	for k := range clients {
		j.start(k, 0, func(w *Worker, sleep func(time.Duration)) error {
			tab, g, row := tableOf[float32](w, "a"), make([]float32, 200), make([]float32, 200)
			for i := range g {
				g[i] = 1
			}
			for range rounds {
				if err := tab.DenseInc(0, 0, g); err != nil {
					return err
				}
				sleep(time.Duration(k) * 10 * time.Millisecond) // the first one's reads wait for the others
				if _, err := w.Clock(bg); err != nil {
					return err
				}
				if _, err := tab.Get(bg, 0, row); err != nil {
					return err
				}
			}
			return w.Finish(bg)
		})
	}
	j.run(t, time.Hour)
	if err := j.w.Run(nil, j.w.Now()+time.Second); err != nil {
		t.Fatal(err)
	}
	for lane, x := range at {
		if x.begun < rounds || x.ended != x.begun || x.most == 0 || x.parked != 0 {
			t.Errorf("lane %d: of %d rounds %d were begun and %d ended; at most %d reads waited, and %d do", lane, rounds, x.begun, x.ended, x.most, x.parked)
		}
	}
}
