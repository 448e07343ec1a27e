package pstest_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/ps"
)

// TestCase11Forms: 100 columns, ten deltas, shards of 50; Get equals the deltas. (Angel)
func TestCase11Forms(t *testing.T) {
	begin(t, child{Case: "11", Servers: 2, Clients: 1, Min: 50}, nil).finish()
}

func case11Tables(*child) []ps.Spec {
	var specs []ps.Spec
	for _, cell := range []ps.Cell{ps.Float32, ps.Float64, ps.Int32, ps.Int64} {
		for f, s := range []ps.Spec{{Rows: 1}, {Rows: 1, Partition: ps.Hash}, {}, {Sparse: true}, {Rows: 7}, {Rows: 7, Partition: ps.Hash}} {
			for _, mode := range []ps.Mode{ps.BSP, ps.SSP, ps.ESSP} {
				s.Name, s.Cell, s.Cols, s.Mode = fmt.Sprint(cell, f, mode), cell, 100, mode
				specs = append(specs, s)
			}
		}
	}
	return specs
}

func case11(in *inside, w *ps.Worker) error {
	for round := range 3 {
		for _, after := range []bool{false, true} { // its own writes, then what the servers have
			if after {
				if _, err := w.Clock(in.ctx); err != nil {
					return err
				}
			}
			for _, s := range case11Tables(in.child) {
				var err error
				switch s.Cell {
				case ps.Float64:
					err = case11Of[float64](in, w, s.Name, round, after)
				case ps.Int32:
					err = case11Of[int32](in, w, s.Name, round, after)
				case ps.Int64:
					err = case11Of[int64](in, w, s.Name, round, after)
				default:
					err = case11Of[float32](in, w, s.Name, round, after)
				}
				if err != nil {
					return fmt.Errorf("table %s, round %d, after clock %v: %w", s.Name, round, after, err)
				}
			}
		}
	}
	return w.Finish(in.ctx)
}

func case11Of[T ps.Number](in *inside, w *ps.Worker, name string, round int, after bool) error {
	tab, want, row := tableOf[T](w, name), make([]T, 100), make([]T, 100)
	for r := range round + 1 {
		for k := range 10 {
			want[k*9+r] += T(k + 1)
			if r == round && !after {
				if err := tab.Inc(0, int64(k*9+r), T(k+1)); err != nil {
					return err
				}
			}
		}
	}
	if _, err := tab.Get(in.ctx, 0, row); err != nil {
		return err
	}
	cells := make([]T, 3)
	if _, err := tab.GetCells(in.ctx, 0, []int64{0, 9, 99}, cells); err != nil {
		return err
	}
	var seen []T
	if _, err := tab.View(in.ctx, 0, func(v []T) { seen = slices.Clone(v) }); err != nil {
		return err
	}
	if !slices.Equal(row, want) || !slices.Equal(seen, want) || !slices.Equal(cells, []T{want[0], want[9], want[99]}) {
		return fmt.Errorf("row %v, view %v, cells %v; want %v", row, seen, cells, want)
	}
	return nil
}

// TestCase13Push: three subscribers, ten rows: no pull after the first round, v = M; evicted rows cost no byte from the next round on.
func TestCase13Push(t *testing.T) {
	begin(t, child{Case: "13", Servers: 1, Clients: 3, Cache: 20 * 264}, nil).finish()
}

func case13Tables(*child) []ps.Spec {
	return []ps.Spec{{Name: "t", Rows: 10, Cols: 8, Mode: ps.ESSP, Staleness: 1}, {Name: "other", Rows: 60, Cols: 8, Mode: ps.ESSP, Staleness: 1}}
}

func case13(in *inside, w *ps.Worker) error {
	tab, other, row := tableOf[float32](w, "t"), tableOf[float32](w, "other"), make([]float32, 8)
	var first, before ps.Counters
	for i := range 20 {
		for r := range int64(10) {
			if i < 10 {
				v, err := tab.Get(in.ctx, r, row)
				if err != nil {
					return err
				}
				if i > 1 && v != ps.Clock(i) { // all are here: M
					return fmt.Errorf("round %d: value clock %d", i, v)
				}
			}
			if err := tab.Inc(r, int64(in.Index), 1); err != nil {
				return err
			}
		}
		if i == 10 { // other rows throw those of t out
			for range 2 {
				for r := range int64(60) {
					if _, err := other.Get(in.ctx, r, row); err != nil {
						return err
					}
				}
			}
		}
		if err := w.Barrier(in.ctx); err != nil {
			return err
		}
		c := in.client.Counters()
		switch {
		case i == 0:
			first = c
		case i < 10 && c.Pulls != first.Pulls:
			return fmt.Errorf("round %d: %d requests, the first round made %d", i, c.Pulls, first.Pulls)
		case i > 1 && i < 10 && c.Pushed-before.Pushed != 10:
			return fmt.Errorf("round %d: %d rows are pushed, want 10", i, c.Pushed-before.Pushed)
		case i == 10 && c.Evicted < 50:
			return fmt.Errorf("%d rows are evicted", c.Evicted)
		case i > 11 && (c.Pushed != before.Pushed || c.BytesReceived != before.BytesReceived):
			return fmt.Errorf("round %d: %d rows of evicted ones, %d bytes", i, c.Pushed-before.Pushed, c.BytesReceived-before.BytesReceived)
		}
		before = c
	}
	return w.Finish(in.ctx)
}

// TestCase14SmallCache: a cache of 8 rows, tables of 64, four workers inside View. (Bösen aborts)
func TestCase14SmallCache(t *testing.T) {
	begin(t, child{Case: "14", Servers: 2, Clients: 1, Workers: 4, Min: 64, Cache: 8 * 264}, nil).finish()
}

func case14Tables(*child) []ps.Spec {
	var specs []ps.Spec
	for _, s := range []ps.Spec{{Mode: ps.SSP, Staleness: 2}, {Mode: ps.ESSP, Staleness: 2}, {Mode: ps.BSP}, {Mode: ps.ASP}} {
		s.Name, s.Rows, s.Cols = s.Mode.String(), 64, 16
		specs = append(specs, s)
	}
	return specs
}

func case14(in *inside, w *ps.Worker) error {
	for i := range 12 {
		for _, s := range case14Tables(in.child) {
			tab := tableOf[float32](w, s.Name)
			for r := range int64(8) {
				row := (r*4 + int64(w.Index()) + int64(i)) % 64
				changed := false
				v, err := tab.View(in.ctx, row, func(c []float32) {
					x := c[0]
					time.Sleep(100 * time.Microsecond)
					changed = c[0] != x
				})
				if err != nil {
					return err
				}
				if changed {
					return fmt.Errorf("%s: row %d changed under View", s.Name, row)
				}
				if least := w.Now() - ps.Clock(s.Staleness); s.Mode != ps.ASP && v < least {
					return fmt.Errorf("%s: value clock %d at clock %d", s.Name, v, w.Now())
				}
				if err := tab.Inc(row, 0, 1); err != nil {
					return err
				}
			}
		}
		if _, err := w.Clock(in.ctx); err != nil {
			return err
		}
	}
	if in.client.Counters().Evicted == 0 {
		return errors.New("nothing was evicted")
	}
	return w.Finish(in.ctx)
}
