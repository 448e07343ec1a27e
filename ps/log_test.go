package ps

import (
	"testing"
	"time"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/sim"
)

// TestLog reads a lane's log beside it: the reader holds the same bits, and takes nothing twice or out of order. Of table d each round reads
// and writes the same rows, so that their keys come with the reads alone, which are not in the log.
func TestLog(t *testing.T) {
	for _, exact := range []bool{false, true} {
		specs := []Spec{
			{Name: "a", Rows: 1, Cols: 200, Mode: BSP, Optimizer: "adam"},
			{Name: "b", Cols: 7, Mode: BSP, Sparse: true},
			{Name: "d", Rows: 480, Cols: 1, Mode: BSP}, // twenty rows a shard: their list has a number
		}
		if !exact {
			specs = append(specs, Spec{Name: "c", Rows: 40, Cols: 8, Mode: SSP, Staleness: 2, Optimizer: "adagrad"})
		}
		logs := make([][]Entry, 3)
		j := newSimJob(sim.New(9, sim.Options{}), simOptions{clients: 3, servers: 3, min: 8, exact: exact, tables: specs, client: Options{piece: 200}, server: ServerOptions{
			Trace: ServerTrace{Logged: func(lane int, e Entry) { logs[lane] = append(logs[lane], e) }},
		}})
		for k := range 3 {
			j.start(k, 0, func(w *Worker, sleep func(time.Duration)) error {
				d, rows, x := tableOf[float32](w, "d"), make([]int64, 480), make([]float32, 480)
				for i := range rows {
					rows[i] = int64(i)
				}
				for c := range 20 {
					if _, err := d.GetRows(bg, rows, x); err != nil {
						return err
					}
					for _, r := range rows {
						if err := d.Inc(r, 0, 1); err != nil {
							return err
						}
					}
					for _, s := range specs {
						tab := tableOf[float32](w, s.Name)
						g := make([]float32, s.Cols)
						for i := range g {
							g[i] = draw.Unit(uint64(k), 73, uint64(c*1000+i))
						}
						if err := tab.DenseInc(int64(c*k)%max(s.Rows, 1), 0, g); err != nil {
							return err
						}
					}
					sleep(time.Duration(k) * time.Millisecond)
					if _, err := w.Clock(bg); err != nil {
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
		for l, log := range logs {
			r, err := NewServerState(j.p, l, ServerOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i, e := range log {
				if i > 0 && r.Replay(log[i-1]) || i+1 < len(log) && r.Replay(log[i+1]) {
					t.Fatalf("entry %d: a repeat, or one out of order, is taken", e.Index)
				}
				if !r.Replay(e) {
					t.Fatalf("entry %d is not taken", e.Index)
				}
			}
			want := j.lane(l)
			if r.m != want.m || r.m != 21 {
				t.Errorf("lane %d: the reader's M is %d, the lane's %d", l, r.m, want.m)
			}
			for i, lt := range want.tables {
				for _, k := range lt.here {
					if string(r.tables[i].shards[k].image().encode()) != string(lt.shards[k].image().encode()) {
						t.Errorf("lane %d, table %q, shard %d: the reader holds other bits", l, lt.spec.Name, k)
					}
				}
			}
			for i, c := range want.clients {
				if r.clients[i].next != c.next {
					t.Errorf("lane %d, client %d: watermark %d, want %d", l, i, r.clients[i].next, c.next)
				}
			}
		}
	}
}
