package pstest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/ps"
)

// The cases of a parameter server whose servers and workers are processes. Package ps has them in the simulator.

func scenarios() map[string]scenario {
	return map[string]scenario{
		"1": {func(*child) []ps.Spec { return nil }, case1},
		"2": {one(ps.Spec{Rows: 12, Cols: 2, Cell: ps.Int64, Mode: ps.ASP}), case2},
		"3": {case3Tables, case3},
		"4": {one(ps.Spec{Rows: 1, Cols: 4, Staleness: 2}), case4},
		"5": {case5Tables, case5},
		"8": {func(c *child) []ps.Spec {
			return []ps.Spec{{Name: "t", Rows: 1, Cols: 10, Mode: c.Mode, Staleness: c.Staleness}}
		}, case8},
		"9":       {case9Tables, case9},
		"11":      {case11Tables, case11},
		"13":      {case13Tables, case13},
		"14":      {case14Tables, case14},
		"15":      {case15Tables, case15},
		"17":      {case17Tables, case17},
		"19":      {one(ps.Spec{Rows: 1, Cols: 300, Mode: ps.BSP, Optimizer: "adam rate=0.01", Init: ps.Init{Kind: ps.Uniform, A: -1, B: 1, Seed: 5}}), case19},
		"20":      {one(ps.Spec{Rows: 4, Cols: 64, Staleness: 3}), case20},
		"20 read": {one(ps.Spec{Rows: 4, Cols: 64, Staleness: 3}), case20Read},
		"21":      {one(ps.Spec{Cols: 1, Mode: ps.BSP}), case21},
		"23":      {case23Tables, case23},
		"oracle":  {oracleTables, oracleWorker},
	}
}

// one is a table called t.
func one(s ps.Spec) func(*child) []ps.Spec {
	s.Name = "t"
	return func(*child) []ps.Spec { return []ps.Spec{s} }
}

// tableOf asks for a table that is there.
func tableOf[T ps.Number](w *ps.Worker, name string) ps.Table[T] {
	t, err := ps.TableOf[T](w, name)
	if err != nil {
		panic(err)
	}
	return t
}

// TestCase2Counts: 100 requests of every worker to every server; each counts exactly. (ps-lite)
func TestCase2Counts(t *testing.T) {
	begin(t, child{Case: "2", Servers: 3, Clients: 3, Min: 2}, nil).finish()
}

func case2(in *inside, w *ps.Worker) error {
	tab, row := tableOf[int64](w, "t"), make([]int64, 2)
	rows := tab.Spec().Rows
	for i := range 100 {
		for r := range rows {
			if err := tab.Inc(r, 1, 1); err != nil {
				return err
			}
		}
		if _, err := w.Clock(in.ctx); err != nil {
			return err
		}
		r := int64(i) % rows
		if _, err := tab.Get(in.ctx, r, row); err != nil {
			return err
		}
		if row[1] < int64(i+1) {
			return fmt.Errorf("round %d: row %d counts %d", i, r, row[1])
		}
	}
	if err := w.Barrier(in.ctx); err != nil {
		return err
	}
	for r := range rows {
		if _, err := tab.Get(in.ctx, r, row); err != nil {
			return err
		}
		if want := int64(100 * in.Clients); row[1] != want {
			return fmt.Errorf("row %d counts %d, want %d", r, row[1], want)
		}
	}
	return w.Finish(in.ctx)
}

// TestCase4Lead: s = 2, one worker stays at clock 0: the other's Get returns at clocks 0, 1 and 2 and waits at 3; where it never reads,
// three Clocks return and the fourth waits. (Ho et al. 2013)
func TestCase4Lead(t *testing.T) {
	j := begin(t, child{Case: "4", Servers: 2, Clients: 2, Min: 2}, nil)
	for _, what := range []string{"get waits", "clock waits"} {
		if s := j.clients[0].said(); s != what {
			t.Fatalf("found %q, want %q", s, what)
		}
		j.clients[1].tell("go")
	}
	j.finish()
}

func case4(in *inside, w *ps.Worker) error {
	tab, row := tableOf[float32](w, "t"), make([]float32, 4)
	if in.Index == 1 { // it stays where it is until it is told to go on
		in.hear()
		for range 3 {
			if _, err := w.Clock(in.ctx); err != nil {
				return err
			}
		}
		if err := w.Barrier(in.ctx); err != nil {
			return err
		}
		in.hear()
		return w.Finish(in.ctx)
	}
	// waits calls until an error says what it waits for. On a busy machine that may not be known when the first ends.
	waits := func(what string, call func(ctx context.Context) error) error {
		for {
			ctx, cancel := context.WithTimeout(in.ctx, 200*time.Millisecond)
			err := call(ctx)
			cancel()
			switch {
			case err == nil:
				return fmt.Errorf("%s returns, and the other is at 0", what)
			case !errors.Is(err, context.DeadlineExceeded) || in.ctx.Err() != nil:
				return fmt.Errorf("%s: error %w, want that it waits for worker 1", what, err)
			case strings.Contains(err.Error(), "held by processes/worker/1"):
				return nil
			}
		}
	}
	for c := range 3 {
		if v, err := tab.Get(in.ctx, 0, row); err != nil {
			return err
		} else if v != 0 {
			return fmt.Errorf("value clock %d at clock %d, and the other is at 0", v, c)
		}
		if _, err := w.Clock(in.ctx); err != nil {
			return err
		}
	}
	err := waits("Get at clock 3", func(ctx context.Context) error {
		_, err := tab.Get(ctx, 0, row)
		return err
	})
	if err != nil {
		return err
	}
	in.say("get waits")
	if v, err := tab.Get(in.ctx, 0, row); err != nil || v < 1 {
		return fmt.Errorf("value clock %d, %w", v, err)
	}
	if err := w.Barrier(in.ctx); err != nil {
		return err
	}
	for range 3 {
		if _, err := w.Clock(in.ctx); err != nil {
			return err
		}
	}
	err = waits("the fourth Clock", func(ctx context.Context) error {
		_, err := w.Clock(ctx)
		return err
	})
	if err != nil {
		return err
	}
	in.say("clock waits")
	return w.Finish(in.ctx)
}

// TestCase8Stragglers: four workers, of which one takes four times as long, in turn. No mode can be faster than start(p, c) =
// max(finish(p, c-1), max over q of finish(q, c-s-1)) says; that would be a read beyond its bound.
func TestCase8Stragglers(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: waits for stragglers")
	}
	const unit = 10 * time.Millisecond
	for _, x := range []struct {
		mode      ps.Mode
		staleness int
		units     time.Duration
	}{{ps.BSP, 0, 48}, {ps.SSP, 1, 25}, {ps.SSP, 3, 21}, {ps.ESSP, 1, 25}, {ps.ASP, 0, 21}} {
		j := begin(t, child{Case: "8", Servers: 1, Clients: 4, Mode: x.mode, Staleness: x.staleness}, nil)
		first, last := int64(1<<62), int64(0)
		for _, p := range j.clients {
			var from, to int64
			if _, err := fmt.Sscanf(p.said(), "%d %d", &from, &to); err != nil {
				t.Fatal(err)
			}
			first, last = min(first, from), max(last, to)
		}
		j.finish()
		took := time.Duration(last - first)
		t.Logf("%s:%d: the last of 12 rounds ends after %.1f units of %v; without any cost %d", x.mode, x.staleness, float64(took)/float64(unit), unit, x.units)
		if took < x.units*unit || took > 20*x.units*unit {
			t.Errorf("%s:%d: the last round ends after %v, want %v to 20 times as much", x.mode, x.staleness, took, x.units*unit)
		}
	}
}

func case8(in *inside, w *ps.Worker) error {
	const unit = 10 * time.Millisecond
	tab, row := tableOf[float32](w, "t"), make([]float32, 10)
	if err := w.Barrier(in.ctx); err != nil {
		return err
	}
	from := time.Now().UnixNano()
	for i := range 12 {
		if _, err := tab.Get(in.ctx, 0, row); err != nil {
			return err
		}
		if i%4 == in.Index {
			time.Sleep(4 * unit)
		} else {
			time.Sleep(unit)
		}
		if i == 11 {
			in.say("%d %d", from, time.Now().UnixNano())
		}
		if err := tab.Inc(0, int64(in.Index), 1); err != nil {
			return err
		}
		if _, err := w.Clock(in.ctx); err != nil {
			return err
		}
	}
	return w.Finish(in.ctx)
}

// TestCase9ServerRule is MXNet's dist_sync_kvstore: a rule that adds twice the gradients' sum.
func TestCase9ServerRule(t *testing.T) {
	begin(t, child{Case: "9", Servers: 2, Clients: 3}, nil).finish()
}

func case9Tables(*child) []ps.Spec {
	var specs []ps.Spec
	for name, size := range map[string][2]int64{"small": {2, 3}, "large": {1200, 1200}, "rows": {2, 3}, "long": {2, 1200}} {
		specs = append(specs, ps.Spec{Name: name, Rows: size[0], Cols: size[1], Mode: ps.BSP, Optimizer: "twice", Init: ps.Init{Kind: ps.Constant, A: 1}})
	}
	return specs
}

func case9(in *inside, w *ps.Worker) error {
	r := int64(in.Index)
	row, g := make([]float32, 1200), make([]float32, 1200)
	for i := range g {
		g[i] = float32(r + 1)
	}
	for k := range 4 {
		for _, name := range []string{"small", "large", "rows", "long"} {
			tab := tableOf[float32](w, name)
			s := tab.Spec()
			for i := range s.Rows {
				if (name == "small" || name == "large") || i == r%2 {
					if err := tab.DenseInc(i, 0, g[:s.Cols]); err != nil {
						return err
					}
				}
			}
		}
		if _, err := w.Clock(in.ctx); err != nil {
			return err
		}
		for _, c := range []struct {
			table string
			row   int64
			each  int
		}{{"small", 0, 12}, {"small", 1, 12}, {"large", 0, 12}, {"large", 1199, 12}, {"rows", 0, 8}, {"rows", 1, 4}, {"long", 0, 8}, {"long", 1, 4}} {
			tab := tableOf[float32](w, c.table)
			x := row[:tab.Spec().Cols]
			if _, err := tab.Get(in.ctx, c.row, x); err != nil {
				return err
			}
			for i, x := range x {
				if want := float32(1 + c.each*(k+1)); x != want {
					return fmt.Errorf("%s, round %d: row %d, cell %d is %v, want %v", c.table, k, c.row, i, x, want)
				}
			}
		}
	}
	return w.Finish(in.ctx)
}

// TestCase15Finish: workers with 10 and 7 rounds; after Finish nobody waits. (Multiverso FinishTrain)
func TestCase15Finish(t *testing.T) {
	begin(t, child{Case: "15", Servers: 2, Clients: 2, Min: 1}, nil).finish()
}

func case15Tables(*child) []ps.Spec {
	var specs []ps.Spec
	for _, s := range []ps.Spec{{Mode: ps.BSP}, {}, {Staleness: 1}, {Staleness: 5}, {Mode: ps.ESSP}, {Mode: ps.ESSP, Staleness: 5}} {
		s.Name, s.Rows, s.Cols = fmt.Sprint(s.Mode, s.Staleness), 1, 4
		specs = append(specs, s)
	}
	return specs
}

func case15(in *inside, w *ps.Worker) error {
	row, rounds := make([]float32, 4), []int{10, 7}
	for i := range rounds[in.Index] {
		for _, s := range case15Tables(in.child) {
			tab := tableOf[float32](w, s.Name)
			if _, err := tab.Get(in.ctx, 0, row); err != nil {
				return err
			}
			if want := float32(min(i, 7)); s.Mode == ps.BSP && row[1-in.Index] != want {
				return fmt.Errorf("round %d: the other's cell is %v, want %v", i, row[1-in.Index], want)
			}
			if err := tab.Inc(0, int64(in.Index), 1); err != nil {
				return err
			}
		}
		if _, err := w.Clock(in.ctx); err != nil {
			return err
		}
	}
	return w.Finish(in.ctx)
}
