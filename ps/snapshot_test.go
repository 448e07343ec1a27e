package ps

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

// train19 is a BSP run with Adam on tables that are dense, lazy, and of few rows by hash, dense and sparse, whose blocks depend on the number
// of servers: 3 workers' worth of gradients, shared by the clients that there are. It returns the bits of all in the end.
func train19(t *testing.T, servers, clients int, rounds Clock, store *memory, from *Manifest, every Clock) (bits []uint32, cuts []SnapshotResult) {
	t.Helper()
	d := Spec{Name: "dense", Rows: 1, Cols: 500, Mode: BSP, Optimizer: "adam rate=0.01", Init: Init{Kind: Normal, B: 1, Seed: 3}}
	s := Spec{Name: "lazy", Cols: 10, Mode: BSP, Optimizer: "adam rate=0.01", Init: Init{Kind: Uniform, A: -1, B: 1}}
	h := Spec{Name: "hash", Rows: 2, Cols: 520, Mode: BSP, Optimizer: "adam rate=0.01", Init: Init{Kind: Uniform, A: -1, B: 1}, Partition: Hash}
	p := h
	p.Name, p.Sparse = "sparse", true
	j := newSimJob(sim.New(19, sim.Options{}), simOptions{
		clients: clients, servers: servers, min: 16, tables: []Spec{d, s, h, p}, server: ServerOptions{Store: store}, dir: DirectoryOptions{Restore: from},
	})
	for k := range clients {
		j.start(k, 0, func(w *Worker, sleep func(time.Duration)) error {
			a, b := tableOf[float32](w, "dense"), tableOf[float32](w, "lazy")
			e, f := tableOf[float32](w, "hash"), tableOf[float32](w, "sparse")
			w.KeepState(func() []byte { return []byte(fmt.Sprint("client ", k, " at ", w.Now())) })
			for w.Now() < rounds {
				c := w.Now()
				g := make([]float32, 520)
				for i := range g {
					g[i] = draw.Unit(uint64(c), 72, uint64(i))
				}
				if k == 0 { // one gives the gradient, so that the sum does not depend on how many there are
					cols := make([]int64, 104) // some of each block, since an optimizer counts the steps of each
					for i := range cols {
						cols[i] = int64(5*i) + int64(c%5)
					}
					if err := errors.Join(a.DenseInc(0, 0, g[:500]), b.DenseInc(int64(c%7)-3, 0, g[:10]), e.DenseInc(int64(c%2), 0, g), f.BatchInc(int64(c%2), cols, g[:104])); err != nil {
						return err
					}
				}
				sleep(time.Millisecond)
				if err := w.Barrier(bg); err != nil {
					return err
				}
			}
			if k == 0 {
				x := make([]float32, 500)
				if _, err := a.Get(bg, 0, x); err != nil {
					return err
				}
				for r := int64(-3); r <= 3; r++ { // any int64 is an id
					y := make([]float32, 10)
					if _, err := b.Get(bg, r, y); err != nil {
						return err
					}
					x = append(x, y...)
				}
				y := make([]float32, 2*520)
				for _, t := range []Table[float32]{e, f} {
					if _, err := t.GetRows(bg, []int64{0, 1}, y); err != nil {
						return err
					}
					x = append(x, y...)
				}
				for _, v := range x {
					bits = append(bits, math.Float32bits(v))
				}
			}
			return w.Finish(bg)
		})
	}
	if every > 0 {
		var next func()
		next = func() {
			j.w.Call(j.dir, 0, snapshotCall{store}, func(r any, err error) {
				if err != nil {
					if !errors.Is(err, errStopped) {
						j.failures = append(j.failures, err)
					}
					return
				}
				cuts = append(cuts, r.(SnapshotResult))
				if r.(SnapshotResult).Clock < rounds-10 {
					next()
				}
			})
		}
		j.w.After(5*time.Millisecond, next)
	}
	j.run(t, time.Hour)
	return bits, cuts
}

// TestCase19Restore restores a snapshot on other numbers of servers and clients: BSP ends with the bits of a run that went on.
func TestCase19Restore(t *testing.T) {
	want, _ := train19(t, 2, 3, 60, nil, nil, 0)
	store := newMemory()
	same, cuts := train19(t, 2, 3, 60, store, nil, 10)
	if len(cuts) < 3 || fmt.Sprint(same) != fmt.Sprint(want) {
		t.Fatalf("%d snapshots; a run with snapshots ends with other bits: %v", len(cuts), fmt.Sprint(same) != fmt.Sprint(want))
	}
	cut := cuts[len(cuts)/2]
	m, err := ReadManifest(bg, store, cut.Key)
	if err != nil {
		t.Fatal(err)
	}
	if m.Clock != cut.Clock || len(m.Workers) != 3 || string(m.Workers[1].State) != fmt.Sprint("client 1 at ", cut.Clock) {
		t.Errorf("the manifest of the snapshot at clock %d: clock %d, workers %v", cut.Clock, m.Clock, m.Workers)
	}
	for _, servers := range []int{1, 2, 5} {
		for _, clients := range []int{1, 3, 4} {
			got, _ := train19(t, servers, clients, 60, store, m, 0)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("restored at clock %d on %d servers and %d clients: other bits", m.Clock, servers, clients)
			}
		}
	}
}

// TestCase20FullDisk: a snapshot that cannot be written fails by itself, naming the object; the one before it stays, and the run goes on.
func TestCase20FullDisk(t *testing.T) {
	for _, where := range []string{"t00000", "index-00001", "manifest"} {
		store := newMemory()
		j := newSimJob(sim.New(20, sim.Options{}), simOptions{clients: 2, servers: 2, min: 4, tables: []Spec{{Name: "t", Rows: 1, Cols: 20, Cell: Int64, Mode: SSP, Staleness: 3}}, server: ServerOptions{Store: store}})
		for k := range 2 {
			j.start(k, 0, func(w *Worker, sleep func(time.Duration)) error {
				tab, one := tableOf[int64](w, "t"), make([]int64, 20)
				for i := range one {
					one[i] = 1
				}
				for range 100 {
					if err := tab.DenseInc(0, 0, one); err != nil {
						return err
					}
					sleep(time.Millisecond)
					if _, err := w.Clock(bg); err != nil {
						return err
					}
				}
				return w.Finish(bg)
			})
		}
		var results []any
		snap := func(r any, err error) {
			if err != nil {
				r = err
			}
			results = append(results, r)
		}
		j.w.Call(j.dir, 10*time.Millisecond, snapshotCall{store}, snap)
		j.w.After(40*time.Millisecond, func() {
			store.fail = func(key string) error {
				if strings.Contains(key, where) {
					return errors.New("no space left on device")
				}
				return nil
			}
			j.w.Call(j.dir, 0, snapshotCall{store}, snap)
		})
		j.w.After(80*time.Millisecond, func() {
			store.fail = nil
			j.w.Call(j.dir, 0, snapshotCall{store}, snap)
		})
		j.run(t, time.Hour)
		if len(results) != 3 {
			t.Fatalf("%s: %v", where, results)
		}
		if err, ok := results[1].(error); !ok || !strings.Contains(err.Error(), where) || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("%s: %v", where, results[1])
		}
		for _, k := range []int{0, 2} {
			r, ok := results[k].(SnapshotResult)
			if !ok {
				t.Fatalf("%s: snapshot %d: %v", where, k, results[k])
			}
			m, err := ReadManifest(bg, store, r.Key)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range m.Tables[0].Objects {
				b, err := fetch(store, &o.file)
				if err != nil {
					t.Fatal(err)
				}
				p := j.p.withDefaults()
				tab := newTable(&Definition{Spec: Spec{Name: "t", Rows: 1, Cols: 20, Cell: Int64, Mode: SSP, Staleness: 3}}, &p)
				for i := range tab.cut.shards {
					s := newShard[int64](tab, i, nil)
					if err := s.restore(b, o); err != nil {
						t.Fatal(err)
					}
					if s.lo == o.Lo {
						for _, x := range s.live.cells { // SSP with +1 everywhere: every cell of the cut is C·W
							if x != int64(2*r.Clock) {
								t.Errorf("%s: at clock %d a cell is %d, want %d", where, r.Clock, x, 2*r.Clock)
							}
						}
					}
				}
			}
		}
	}
}

// TestSavesInTurn: a lane that is still writing a cut when the next is taken begins the next only then, and a cut that a third replaced
// meanwhile never.
func TestSavesInTurn(t *testing.T) {
	p := Placement{Directory: dirName(), Servers: []Name{serverName(0)}, Clients: []Name{clientName(0)}}
	s, err := NewServerState(p, 0, ServerOptions{Store: newMemory()})
	if err != nil {
		t.Fatal(err)
	}
	s.m = 5
	writes := func() (ids []uint64) {
		for _, c := range s.out {
			if c, ok := c.(protocol.Compute); ok {
				ids = append(ids, c.ID)
			}
		}
		s.out = nil
		return ids
	}
	for cut := range uint64(3) {
		s.setCut(Cut{ID: cut + 1, At: 5})
	}
	if got := writes(); !slices.Equal(got, []uint64{saveID(1)}) {
		t.Errorf("while one is written: %v are", got)
	}
	s.computed(saveID(1))
	if got := writes(); !slices.Equal(got, []uint64{saveID(3)}) || s.cut.saved {
		t.Errorf("when the first is written: %v are begun, saved %v", got, s.cut.saved)
	}
	s.computed(saveID(3))
	if got := writes(); len(got) != 0 || !s.cut.saved {
		t.Errorf("when the last is written: %v are begun, saved %v", got, s.cut.saved)
	}
}

// TestWorkerBegunAtTheCut: a worker of a client that joins at a cut, or beyond, has done nothing at it: what it keeps a round later is not of
// the snapshot.
func TestWorkerBegunAtTheCut(t *testing.T) {
	for _, x := range []struct {
		start, cut Clock
		want       string
	}{{4, 5, "round 5"}, {5, 5, ""}, {6, 5, ""}} {
		p := Placement{Directory: dirName(), Servers: []Name{serverName(0)}}.withDefaults()
		c, err := NewClientState(p, clientName(0), nil, Options{Session: 1})
		if err != nil {
			t.Fatal(err)
		}
		config := &Config{Version: 1, Place: p.hash(), Clients: []Member{{Name: clientName(0), Session: 1, Start: x.start, State: Active}}, Cut: Cut{1, x.cut}}
		c.Step(0, protocol.Message{From: dirName(), Body: &install{config: config}})
		c.Step(0, protocol.Call{ID: 1, Arg: workerCall{}})
		w := c.workers[0]
		w.state = func() []byte { return fmt.Append(nil, "round ", w.clock) }
		var told *progress
		for _, out := range c.Step(0, protocol.Call{ID: 2, Arg: clockCall{w: w}}) {
			if m, ok := out.(protocol.Send); ok && m.To == dirName() {
				told = m.Body.(*progress)
			}
		}
		if told == nil || len(told.states) != 1 || string(told.states[0]) != x.want {
			t.Errorf("begun at %d, cut at %d: told %v, want %q", x.start, x.cut, told, x.want)
		}
	}
}

// TestFinishedBetweenAccepts: a snapshot does not wait for a client that finished while some servers had accepted it and others had not heard
// of it, and left before it heard of it itself.
func TestFinishedBetweenAccepts(t *testing.T) {
	store := newMemory()
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{
		clients: 1, servers: 2, min: 4, tables: []Spec{{Name: "t", Rows: 1, Cols: 20, Staleness: 3}}, server: ServerOptions{Store: store},
	})
	j.start(0, 0, func(w *Worker, sleep func(time.Duration)) error {
		for range 4 {
			sleep(10 * time.Millisecond)
			if err := tableOf[float32](w, "t").Inc(0, 0, 1); err != nil {
				return err
			}
			if _, err := w.Clock(bg); err != nil {
				return err
			}
		}
		return w.Finish(bg) // while the directory and a server do not reach one another
	})
	var got any
	j.w.Call(j.dir, 30*time.Millisecond, snapshotCall{store}, func(r any, err error) {
		if got = r; err != nil {
			got = err
		}
	})
	plan := sim.Plan{
		{Kind: sim.Clog, At: 20 * time.Millisecond, For: 100 * time.Millisecond, Nodes: []sim.Node{j.dir, j.servers[1]}},
		{Kind: sim.Crash, At: 80 * time.Millisecond, For: time.Hour, Nodes: []sim.Node{j.clients[0].node}},
	}
	if err := j.w.Run(plan, time.Minute); err != nil {
		t.Fatal(err)
	}
	j.end()
	if len(j.failures) > 0 || j.running > 0 {
		t.Fatalf("%d workers still run: %v", j.running, j.failures)
	}
	r, ok := got.(SnapshotResult)
	if !ok {
		t.Fatalf("the snapshot ends with %v", got)
	}
	m, err := ReadManifest(bg, store, r.Key)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Workers) > 0 {
		t.Errorf("the snapshot has %v, which had finished", m.Workers)
	}
}

// TestDamagedSnapshot: a restore names the object and its checksum, and nobody begins.
func TestDamagedSnapshot(t *testing.T) {
	store := newMemory()
	_, cuts := train19(t, 2, 1, 40, store, nil, 10)
	m, err := ReadManifest(bg, store, cuts[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"damaged", "missing"} {
		o := m.Tables[0].Objects[1]
		kept := store.objects[o.Key]
		if what == "damaged" {
			b := []byte(string(kept))
			b[len(b)/2]++
			store.objects[o.Key] = b
		} else {
			delete(store.objects, o.Key)
		}
		j := newSimJob(sim.New(20, sim.Options{}), simOptions{clients: 1, servers: 2, min: 16, most: 5, server: ServerOptions{Store: store}, dir: DirectoryOptions{Restore: m}})
		var got error
		j.startThen(0, 0, func(w *Worker, _ func(time.Duration)) error { return w.Finish(bg) }, func(err error) { got = err })
		j.run(t, time.Minute)
		if got == nil || !strings.Contains(got.Error(), o.Key) || what == "damaged" && !strings.Contains(got.Error(), o.SHA256) {
			t.Errorf("%s: %v", what, got)
		}
		store.objects[o.Key] = kept
	}
	if _, err := ReadManifest(bg, store, "nowhere"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a manifest that is not there: %v", err)
	}
}

// TestCase31BadInput has each row of section 5 that is an error at the call, or at every participant.
func TestCase31BadInput(t *testing.T) {
	spec := Spec{Name: "t", Rows: 4, Cols: 8}
	j := newSimJob(sim.New(31, sim.Options{}), simOptions{clients: 2, servers: 1, tables: []Spec{spec, {Name: "n", Rows: 1, Cols: 3, Cell: Int32}}, client: Options{RoundTimeout: 3 * time.Second}})
	j.start(0, 0, func(w *Worker, sleep func(time.Duration)) error {
		tab, row := tableOf[float32](w, "t"), make([]float32, 8)
		_, wrong := TableOf[float64](w, "t")
		_, unknown := TableOf[float32](w, "x")
		_, far := tab.Get(bg, 4, row)
		_, short := tab.Get(bg, 0, row[:3])
		_, order := tab.GetCells(bg, 0, []int64{3, 3}, row[:2])
		for _, c := range []struct {
			err  error
			want string
		}{
			{wrong, "its cells are float32, and it was asked for with float64"},
			{unknown, `no table is called "x"`},
			{far, `get "t": row 4: want 0 to 3`},
			{short, "want 8 cells, found room for 3"},
			{order, "column 3 follows 3"},
			{tab.Inc(0, 8, 1), `inc "t": row 0: column 8: want 0 to 7`},
			{tab.Inc(-1, 0, 1), "row -1"},
			{tab.BatchInc(0, []int64{1, 2}, row[:1]), "2 columns and 1 deltas"},
			{tab.DenseInc(0, 5, row), "columns 5 to 12"},
			{tab.IncPart(-1, 0, 0, row), "part -1: want 0, or the Node of a shards.Subtree"},
			{w.Weight(0, math.NaN()), "weight NaN"},
		} {
			if c.err == nil || !strings.Contains(c.err.Error(), c.want) || !strings.HasPrefix(c.err.Error(), "ps: ") {
				return fmt.Errorf("error %w, want %q", c.err, c.want)
			}
		}
		// The other never clocks: after RoundTimeout the error names table, row, clock, M and who holds it.
		if _, err := w.Clock(bg); err != nil {
			return err
		}
		_, err := tab.Get(bg, 2, row)
		for _, want := range []string{`read "t" row 2`, "at clock 1", "waits for clock 1", "is at 0", "held by j/worker/1", "3s"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("error %w, want it to name %q", err, want)
			}
		}
		if err := tab.DenseInc(1, 4, []float32{1, 2, float32(math.Inf(1))}); err != nil {
			return err
		}
		_, err = w.Clock(bg)
		for _, want := range []string{`table "t"`, "row 1", "column 6", "worker 0 of j/worker/0", "+Inf", "round 1"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("error %w, want it to name %q", err, want)
			}
		}
		return nil
	})
	j.start(1, 0, func(w *Worker, sleep func(time.Duration)) error { sleep(30 * time.Second); return nil })
	j.run(t, time.Hour)
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Name: "", Cols: 1}, "name"},
		{Spec{Name: "t"}, "cols"},
		{Spec{Name: "t", Cols: 1, Staleness: -1}, "staleness: want 0"},
		{Spec{Name: "t", Cols: 1, Mode: BSP, Staleness: 2}, "bsp takes none"},
		{Spec{Name: "t", Cols: 1, Rows: -1}, "rows"},
		{Spec{Name: "t", Cols: 1 << 41}, "cols"},
		{Spec{Name: "t", Cols: 1 << 30, Rows: 2, Keep: RowNorm(1)}, "row norm wants whole rows"},
		{Spec{Name: "t", Cols: 1, Cell: Int32, Optimizer: "sgd"}, "float32"},
		{Spec{Name: "t", Cols: 1, Partition: Range}, "range wants"},
		{Spec{Name: "t", Cols: 1, Init: Init{Kind: Uniform}, Cell: Int64}, "fractions"},
		{Spec{Name: "t", Cols: 1, Init: Init{Kind: Constant, A: 0.5}, Cell: Int32}, "no int32 is 0.5"},
		{Spec{Name: "t", Cols: 1, Init: Init{Kind: Constant, A: 1 << 31}, Cell: Int32}, "no int32 is 2.147483648e+09"},
		{Spec{Name: "t", Cols: 1, Init: Init{Kind: Constant, A: 1 << 63}, Cell: Int64}, "no int64 is 9.223372036854776e+18"},
		{Spec{Name: "t", Cols: 1, Init: Init{Kind: Constant, A: 1e39}}, "no float32 is 1e+39"},
		{Spec{Name: "t", Cols: 1, Init: Init{Kind: Uniform, A: -1e39}}, "init: uniform of -1e+39 and 0 reaches from -1e+39 to 0, and cells are float32"},
		{Spec{Name: "t", Cols: 1, Cell: Float64, Init: Init{Kind: Uniform, A: -1e308, B: 1e308}}, "reaches from -1e+308 to +Inf, and cells are float64"},
		{Spec{Name: "t", Cols: 1, Init: Init{Kind: Normal, B: 1e38}}, "reaches from -9e+38 to 9e+38"},
		{Spec{Name: "t", Cols: 1, Init: Init{Kind: Xavier, A: 1e-80}}, "init: xavier of 1e-80 and 0"},
		{Spec{Name: "t", Cols: 1, Init: Init{Kind: Kaiming, A: 1e-80}}, "init: kaiming of 1e-80 and 0"},
		{
			Spec{Name: "t", Cols: 1, Init: Init{Kind: Constant, A: -1}, Keep: NonNegative()},
			"keep: init: constant of -1 and 0 reaches from -1 to -1, and cells are non-negative",
		},
		{Spec{Name: "t", Cols: 1, Init: Init{Kind: Uniform, A: 1, B: -1}, Keep: NonNegative()}, "reaches from -1 to 1, and cells are non-negative"},
		{Spec{Name: "t", Cols: 1, Init: Init{Kind: Normal, A: 1, B: 1}, Keep: NonNegative()}, "reaches from -8 to 10, and cells are non-negative"},
		{Spec{Name: "t", Cols: 1, Keep: RowNorm(math.NaN())}, "keep: a row norm above 0"},
		{Spec{Name: "t", Cols: 1, Keep: Constraint{Norm: math.NaN()}}, "keep: none takes no norm, found NaN"},
	} {
		if err := c.spec.validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c.spec, err, c.want)
		}
	}
}

// TestLateTable creates tables in a run; one definition wins, and one that no server could hold ends nothing.
func TestLateTable(t *testing.T) {
	j := newSimJob(sim.New(5, sim.Options{}), simOptions{clients: 2, servers: 2})
	for k := range 2 {
		j.start(k, 0, func(w *Worker, _ func(time.Duration)) error {
			if _, err := w.Clock(bg); err != nil {
				return err
			}
			if _, err := w.d.Call(bg, createCall{Spec{Name: "late", Rows: 2, Cols: 3, Mode: BSP}}); err != nil {
				return err
			}
			if _, err := w.d.Call(bg, createCall{Spec{Name: "late", Rows: 2, Cols: 4, Mode: BSP}}); err == nil || !strings.Contains(err.Error(), "cols") {
				return fmt.Errorf("another definition: %w", err)
			}
			if _, err := w.d.Call(bg, createCall{Spec{Name: "odd", Rows: 2, Cols: 4, Mode: BSP, Optimizer: "adamm"}}); err == nil || !strings.Contains(err.Error(), "adamm") {
				return fmt.Errorf("an unknown optimizer: %w", err)
			}
			tab, row := tableOf[float32](w, "late"), make([]float32, 3)
			if err := tab.Inc(1, int64(k), 1); err != nil {
				return err
			}
			if _, err := w.Clock(bg); err != nil {
				return err
			}
			if _, err := tab.Get(bg, 1, row); err != nil || row[0] != 1 || row[1] != 1 {
				return fmt.Errorf("%v, %w", row, err)
			}
			return w.Finish(bg)
		})
	}
	j.run(t, time.Hour)
}
