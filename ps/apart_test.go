package ps

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/transport"
)

// TestApart: rows large enough to be read straight into their place hold what was added, in every mode, on every network, while readers
// look at what was there before.
func TestApart(t *testing.T) {
	cols, shards := int64(700_000), 8
	if testing.Short() {
		cols, shards = 280_000, 4 // a row is in several shards still, and all of them are large enough
	}
	for name, open := range map[string]func() transport.Network{
		"memory":  func() transport.Network { return transport.NewMemory() },
		"unix":    func() transport.Network { return &transport.Unix{Dir: t.TempDir()} },
		"sockets": func() transport.Network { return &transport.Unix{Dir: t.TempDir(), Sockets: true} },
		"tcp":     func() transport.Network { return &transport.TCP{} },
	} {
		for _, servers := range []int{1, 2} {
			for _, mode := range []Mode{BSP, SSP, ASP} {
				if testing.Short() && servers == 2 && mode != SSP {
					continue // all in the full run
				}
				t.Run(name+"/"+mode.String(), func(t *testing.T) {
					spec := Spec{Name: "t", Rows: 2, Cols: cols, Mode: mode}
					if mode == SSP {
						spec.Staleness = 1
					}
					j := newRealJob(t, open(), simOptions{clients: 2, servers: servers, shards: shards, tables: []Spec{spec}})
					defer j.close()
					var wait sync.WaitGroup
					for _, c := range j.clients {
						wait.Go(func() { addAndLook(t, c, mode) })
					}
					wait.Wait()
					landed := uint64(0)
					for _, c := range j.clients {
						c.Lock()
						landed += c.state.InPlace
						if len(c.h.landings) > 0 {
							t.Errorf("%d answers are still to land", len(c.h.landings))
						}
						c.Unlock()
					}
					if servers == 1 && landed == 0 {
						t.Error("no answer was read straight into its place")
					}
				})
			}
		}
	}
}

// TestAskedTwice: who asks for a large row twice at once, of which each server has a part, has it twice.
func TestAskedTwice(t *testing.T) {
	spec := Spec{Name: "t", Rows: 1, Cols: 140_000, Mode: BSP}
	j := newRealJob(t, transport.NewMemory(), simOptions{clients: 1, servers: 2, shards: 2, tables: []Spec{spec}})
	defer j.close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // to end a hang
	defer cancel()
	w, err := j.clients[0].Worker(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tab, rows := tableOf[float32](w, "t"), make([]float32, 2*spec.Cols)
	want := make([]float32, spec.Cols)
	for i := range want {
		want[i] = float32(i)
	}
	if err := tab.DenseInc(0, 0, want); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Clock(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.GetRows(ctx, []int64{0, 0}, rows); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rows[:spec.Cols], want) || !slices.Equal(rows[spec.Cols:], want) {
		t.Error("it has something else")
	}
}

// addAndLook adds 1 to every cell in each of some rounds, and looks at all cells.
func addAndLook(t *testing.T, c *Client, mode Mode) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute) // to end a hang
	defer cancel()
	w, err := c.Worker(ctx)
	if err != nil {
		t.Error(err)
		return
	}
	tab := tableOf[float32](w, "t")
	ones, row := make([]float32, tab.Spec().Cols), make([]float32, tab.Spec().Cols)
	for i := range ones {
		ones[i] = 1
	}
	const rounds = 6
	for n := range rounds {
		round := float32(n)
		if err := tab.DenseInc(1, 0, ones); err != nil {
			t.Error(err)
			return
		}
		var next []Wanted
		if n%2 > 0 {
			next = append(next, tab.Rows(1))
		}
		if _, err := w.Clock(ctx, next...); err != nil {
			t.Error(err)
			return
		}
		if n%2 == 0 {
			tab.Prefetch(1)
		}
		look := func(cells []float32) {
			first := cells[0]
			for i, x := range cells {
				if x < round+1 || x > 2*rounds || mode == BSP && x != 2*(round+1) || x != first && mode == BSP {
					t.Errorf("%v: cell %d after round %v is %v", mode, i, round, x)
					return
				}
			}
		}
		if _, err := tab.View(ctx, 1, look); err != nil {
			t.Error(err)
			return
		}
		if _, err := tab.Get(ctx, 1, row); err != nil {
			t.Error(err)
			return
		}
		look(row)
	}
	if err := w.Barrier(ctx); err != nil {
		t.Error(err)
		return
	}
	if _, err := tab.Get(ctx, 1, row); err != nil {
		t.Error(err)
		return
	}
	for i, x := range row {
		if x != 2*rounds && mode == BSP {
			t.Errorf("%v: cell %d is %v at the end, want %v", mode, i, x, 2*rounds)
			return
		}
	}
	if err := w.Finish(ctx); err != nil {
		t.Error(err)
	}
}
