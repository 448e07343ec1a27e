package ps

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

// TestPlacementsThatDiffer: a member that was given another placement than the directory is told so, whatever differs.
func TestPlacementsThatDiffer(t *testing.T) {
	for name, change := range map[string]func(p *Placement){
		"servers":       func(p *Placement) { p.Servers = p.Servers[:1] },
		"order":         func(p *Placement) { p.Servers = []Name{serverName(1), serverName(0)} },
		"MinShardCells": func(p *Placement) { p.MinShardCells = 1 },
		"ShardsEach":    func(p *Placement) { p.ShardsEach = 1 },
		"MaxServers":    func(p *Placement) { p.MaxServers = 9 },
		"Lanes":         func(p *Placement) { p.Lanes = 2 },
		"ServerBytes":   func(p *Placement) { p.ServerBytes = 1 },
		"Exact":         func(p *Placement) { p.Exact = true },
	} {
		right := Placement{Epoch: 1, Directory: dirName(), Servers: []Name{serverName(0), serverName(1)}, Clients: []Name{clientName(0)}}
		wrong := right
		change(&wrong)
		tables := []Spec{{Name: "t", Rows: 10, Cols: 500, Mode: BSP}}
		d, err := NewDirectoryState(right, DirectoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := NewClientState(wrong, clientName(0), tables, Options{Session: 7})
		if err != nil {
			t.Fatal(err)
		}
		own := wrong.withDefaults()
		s, err := NewServerState(wrong, own.lanes()-1, ServerOptions{}) // where servers or lanes differ, the directory knows it by another number
		if err != nil {
			t.Fatal(err)
		}
		d.Step(0, protocol.Message{From: clientName(0), Body: &hello{name: clientName(0), session: 7, specs: tables}})
		told := protocol.Message{From: dirName(), Body: &install{config: d.config}}
		c.Step(0, protocol.Call{ID: 1, Arg: openCall{}})
		text := ""
		for _, out := range c.Step(0, told) {
			if a, ok := out.(protocol.Answer); ok {
				text = fmt.Sprint(a.Err)
			}
		}
		if !strings.Contains(text, "the placement of j/worker/0 is not that of j/directory/0") {
			t.Errorf("%s: a client says %q", name, text)
		}
		text = ""
		for _, out := range s.Step(0, told) {
			if m, ok := out.(protocol.Send); ok {
				text = m.Body.(*accept).text
				d.Step(0, protocol.Message{From: s.name, Body: m.Body})
			}
		}
		if !strings.Contains(text, "the placement of "+s.name.String()+" is not that of j/directory/0") {
			t.Errorf("%s: a server says %q", name, text)
		}
		if d.err == nil || d.err.Error() != text {
			t.Errorf("%s: the directory says %v", name, d.err)
		}
	}
}

// TestAnotherDirectory: a directory that is not the one of a server's placement is told so.
func TestAnotherDirectory(t *testing.T) {
	p := Placement{Directory: Name{Job: "j", Role: "directory", ID: "other"}, Servers: []Name{serverName(0)}}
	s, err := NewServerState(p, 0, ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Directory = dirName()
	d, err := NewDirectoryState(p, DirectoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range s.Step(0, protocol.Message{From: dirName(), Body: &install{config: d.config}}) {
		if m, ok := out.(protocol.Send); ok && m.To == dirName() {
			d.Step(0, protocol.Message{From: serverName(0), Body: m.Body})
		}
	}
	if d.err == nil || d.err.Error() != "ps: the directory of j/server/0 is j/directory/other, as its placement says, and not j/directory/0" {
		t.Errorf("the directory says %v", d.err)
	}
	if s.fatal != "" {
		t.Errorf("a stranger ends the server: %s", s.fatal)
	}
}

// TestLostComesLate: a client that was counted as lost before it came, or comes anew, is told so, and holds nobody back: one that is awaited, and
// one whose hello was under way when it was lost. That one is lost may be said twice.
func TestLostComesLate(t *testing.T) {
	d, err := NewDirectoryState(Placement{Directory: dirName(), Servers: []Name{serverName(0)}, Clients: []Name{clientName(0)}}, DirectoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lost := func(name Name) (got string) {
		for _, out := range d.Step(0, protocol.Call{ID: 1, Arg: lostCall{name}}) {
			if a, ok := out.(protocol.Answer); ok {
				if got = "nothing"; a.Err != nil {
					got = a.Err.Error()
				}
			}
		}
		return got
	}
	for _, name := range []Name{clientName(0), clientName(0), clientName(7), clientName(7)} {
		if got := lost(name); got != "nothing" {
			t.Errorf("of %s who says that it is lost is told %q", name, got)
		}
	}
	for _, name := range []Name{clientName(0), clientName(7)} {
		text := ""
		for _, out := range d.Step(0, protocol.Message{From: name, Body: &hello{name: name, session: 7}}) {
			if m, ok := out.(protocol.Send); ok && m.To == name {
				text = m.Body.(*refused).text
			}
		}
		if !strings.Contains(text, name.String()+" was counted as lost") {
			t.Errorf("%s is told %q", name, text)
		}
	}
	if n := len(d.config.Clients); n != 1 {
		t.Errorf("%d clients take part", n)
	}
	for k := 8; k < 7+MaxClients; k++ {
		if got := lost(clientName(k)); got != "nothing" {
			t.Fatalf("of %d that have not come: %s", k-6, got)
		}
	}
	if got := lost(clientName(9999)); !strings.Contains(got, "no client is called j/worker/9999") {
		t.Errorf("of one more who says that it is lost is told %q", got)
	}
}

// TestZeroTable: a Table that TableOf did not return is an error at each call.
func TestZeroTable(t *testing.T) {
	var tab Table[float32]
	one, row := []int64{0}, []float32{1}
	_, get := tab.Get(bg, 0, row)
	_, rows := tab.GetRows(bg, one, row)
	_, cells := tab.GetCells(bg, 0, one, row)
	_, view := tab.View(bg, 0, func([]float32) {})
	_, pull := new(Worker).Pull(bg, tab.Into(one, row))
	for _, err := range []error{get, rows, cells, view, pull, tab.Inc(0, 0, 1), tab.BatchInc(0, one, row), tab.DenseInc(0, 0, row), tab.IncPart(1, 0, 0, row), tab.IncRows(0, one, row), tab.IncRows(0, nil, nil)} {
		if err == nil || !strings.HasSuffix(err.Error(), "of the zero Table: want one that TableOf returned") {
			t.Error(err)
		}
	}
	tab.Prefetch(0)
	if s := tab.Spec(); s.Name != "" {
		t.Errorf("its definition is %+v", s)
	}
}

// TestTablesThatAreRefused: what no server could hold or make is an error of who asks for it, and the others go on.
func TestTablesThatAreRefused(t *testing.T) {
	for _, x := range []struct {
		spec Spec
		want string
	}{
		{Spec{Rows: 1 << 38, Cols: 1 << 20, Cell: Float64}, `ps: table "t": 274877906944 × 1048576 cells of float64 take 1152923703630102528 bytes on each of 2 servers, and of the 1099511627776 of Placement.ServerBytes 4008 are taken`},
		{Spec{Rows: 1 << 38, Cols: 1, Optimizer: "adam rate=1"}, `take 3848290697216 bytes on each`},
		{Spec{Rows: 1 << 37, Cols: 1}, `take 1374389534720 bytes on each`},
		{Spec{Rows: 1, Cols: 4, Optimizer: "mine"}, `ps: table "t": optimizer: "mine" of Updaters is nil`},
	} {
		x.spec.Name = "t"
		j := newSimJob(sim.New(1, sim.Options{}), simOptions{
			clients: 1, servers: 2, tables: []Spec{{Name: "before", Rows: 1, Cols: 2000}}, server: ServerOptions{Updaters: map[string]trivium.Optimizer{"mine": nil}},
		})
		j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
			if _, err := w.d.Call(bg, createCall{x.spec}); err == nil || !strings.Contains(err.Error(), x.want) {
				return fmt.Errorf("found %w", err)
			}
			if _, err := w.d.Call(bg, createCall{Spec{Name: "after", Rows: 1, Cols: 4}}); err != nil {
				return err
			}
			return w.Finish(bg)
		})
		j.run(t, time.Minute)
	}
}

// TestTablesBeyondMemory: a table that is larger than what a server has for tables ends the job with a sentence that says so, and not the server
// with none.
func TestTablesBeyondMemory(t *testing.T) {
	for _, lanes := range []int{1, 2} {
		j := newSimJob(sim.New(1, sim.Options{}), simOptions{
			clients: 1, servers: 2, lanes: lanes, tables: []Spec{{Name: "before", Rows: 1, Cols: 10_000}}, server: ServerOptions{Bytes: 1 << 16},
		})
		j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
			if _, err := w.d.Call(bg, createCall{Spec{Name: "fits", Rows: 1, Cols: 5000}}); err != nil {
				return err
			}
			_, err := w.d.Call(bg, createCall{Spec{Name: "t", Rows: 1, Cols: 40_000}})
			for _, want := range []string{`ps: table "t": 1 × 40000 cells of float32 take `, " bytes of j/server/", ", which has 65536, and other tables take "} {
				if err == nil || !strings.Contains(err.Error(), want) {
					return fmt.Errorf("%d lanes: found %w, want it to say %q", lanes, err, want)
				}
			}
			return nil
		})
		j.run(t, time.Minute)
	}
}

// TestTablesBeyondFrame: definitions that no frame holds together are refused, whether a client brings them or asks for one more, and the
// others go on.
func TestTablesBeyondFrame(t *testing.T) {
	long := func(i int) Spec {
		return Spec{Name: fmt.Sprint("t", i), Rows: 1, Cols: 1, Optimizer: "sgd rate=1" + strings.Repeat(" ", maxText-10)}
	}
	const fit, want = maxDefinitions / (maxText + 100), "the definitions of all tables have "
	var tables []Spec
	for i := range fit + 20 {
		tables = append(tables, long(i))
	}
	p := Placement{Directory: dirName(), Servers: []Name{serverName(0)}}
	if _, err := NewClientState(p, clientName(0), tables, Options{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a client that brings all of them: %v", err)
	}
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 2, tables: tables[:fit]})
	j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
		for i := fit; ; i++ {
			if _, err := w.d.Call(bg, createCall{tables[i]}); err != nil && strings.Contains(err.Error(), want) {
				break
			} else if err != nil || i == len(tables)-1 {
				return fmt.Errorf("table %d: %w", i, err)
			}
		}
		if n := len(w.s.c.config.append(nil)); n > maxPiece {
			return fmt.Errorf("all tables have %d bytes", n)
		}
		if _, err := w.d.Call(bg, createCall{Spec{Name: "small", Rows: 1, Cols: 4}}); err != nil {
			return err
		}
		return w.Finish(bg)
	})
	j.run(t, time.Minute)
}

// TestViewsWithinViews: a view may be taken within another, also of rows that the worker has added to.
func TestViewsWithinViews(t *testing.T) {
	for _, sparse := range []bool{false, true} {
		j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 1, tables: []Spec{{Name: "t", Rows: 10, Cols: 2, Sparse: sparse}}})
		j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
			tab := tableOf[float32](w, "t")
			if err := errors.Join(tab.Inc(0, 0, 1), tab.Inc(1, 0, 2)); err != nil {
				return err
			}
			var a0, b0 float32
			var inner error
			_, err := tab.View(bg, 0, func(a []float32) {
				_, inner = tab.View(bg, 1, func(b []float32) { b0 = b[0] })
				a0 = a[0]
			})
			if a0 != 1 || b0 != 2 {
				err = errors.Join(err, fmt.Errorf("views of 1 and 2 hold %v and %v", a0, b0))
			}
			return errors.Join(err, inner, w.Finish(bg))
		})
		j.run(t, time.Minute)
	}
}

// TestRowsOfAllColumns: of sparse rows that no memory holds cells are read, and nothing else.
func TestRowsOfAllColumns(t *testing.T) {
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 1, tables: []Spec{{Name: "t", Cols: maxCols, Sparse: true}}})
	j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
		tab := tableOf[float32](w, "t")
		tab.Prefetch(7)
		_, err := tab.View(bg, 7, func([]float32) {})
		if err == nil || !strings.Contains(err.Error(), `view "t": row 7: it has 1099511627776 cells, and one of at most 17179869184 is read whole: see GetCells`) {
			return fmt.Errorf("a view: %w", err)
		}
		x := make([]float32, 1)
		if err := tab.Inc(7, maxCols-1, 3); err != nil {
			return err
		}
		if _, err := w.Clock(bg, tab.Rows(7)); err != nil {
			return err
		}
		if _, err := tab.GetCells(bg, 7, []int64{maxCols - 1}, x); err != nil || x[0] != 3 {
			return fmt.Errorf("cell %v: %w", x[0], err)
		}
		return w.Finish(bg)
	})
	j.run(t, time.Minute)
}

// TestUnequalBarriers: where workers of a client wait in a barrier after unequal numbers of rounds, each hears so at once; the last to come has
// not ended its round, and both can go on.
func TestUnequalBarriers(t *testing.T) {
	spec := Spec{Name: "t", Rows: 1, Cols: 1}
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 1, tables: []Spec{spec}, client: Options{Workers: 2}})
	for k := range 2 {
		j.start(0, 0, func(w *Worker, sleep func(time.Duration)) error {
			tab, x := tableOf[float32](w, "t"), make([]float32, 1)
			behind := 2 * k // rounds that the second has not ended, and the first has, or waits for
			if k == 0 {
				if _, err := w.Clock(bg); err != nil {
					return err
				}
			} else {
				sleep(time.Second)
				if err := tab.Inc(0, 0, 1); err != nil {
					return err
				}
			}
			err := w.Barrier(bg)
			if err == nil || !strings.Contains(err.Error(), "equal numbers of rounds") || j.w.Now() > 2*time.Second {
				return fmt.Errorf("worker %d: after %v: %w", k, j.w.Now(), err)
			}
			if want := Clock(2 - behind); w.Now() != want {
				return fmt.Errorf("worker %d: clock %d, want %d", k, w.Now(), want)
			}
			for range behind {
				if _, err := w.Clock(bg); err != nil {
					return err
				}
			}
			if err := w.Barrier(bg); err != nil {
				return err
			}
			if _, err := tab.Get(bg, 0, x); err != nil || x[0] != 1 {
				return fmt.Errorf("worker %d: row 0 is %v, want 1: %w", k, x[0], err)
			}
			return w.Finish(bg)
		})
	}
	j.run(t, time.Hour)
}

// TestTooFewWorkers: a read that waits for a worker of its own client that nobody has made says so.
func TestTooFewWorkers(t *testing.T) {
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 1, tables: []Spec{{Name: "t", Rows: 1, Cols: 4}}, client: Options{Workers: 2}})
	var got error
	j.startThen(0, 0, func(w *Worker, _ func(time.Duration)) error {
		if _, err := w.Clock(bg); err != nil {
			return err
		}
		_, err := tableOf[float32](w, "t").Get(bg, 0, make([]float32, 4))
		return err
	}, func(err error) { got = err })
	if err := j.w.Run(nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	j.end()
	if got == nil || !strings.Contains(got.Error(), "held by j/worker/0, which has 1 of the 2 workers that Options.Workers names: no progress in 10m0s") {
		t.Error(got)
	}
}

// TestSpecsThatNobodyReads: what the decoders refuse is refused before it is sent, with a sentence: who sent it would wait for an answer.
func TestSpecsThatNobodyReads(t *testing.T) {
	long := strings.Repeat("x", maxText+1)
	many := make([]trivium.Spec, maxTensors+1)
	for i := range many {
		many[i] = trivium.Spec{Name: fmt.Sprint(i), Shape: []int{1}}
	}
	for _, x := range []struct {
		spec Spec
		want string
	}{
		{Spec{Cols: 1, Optimizer: long}, "optimizer: want at most 4096 bytes, found 4097"},
		{Spec{Cols: int64(len(many)), Tensors: many}, "tensors: want at most 4096, found 4097"},
		{Spec{Cols: 1, Tensors: []trivium.Spec{{Name: long, Shape: []int{1}}}}, "found 4097 and 1"},
		{Spec{Cols: 1, Tensors: []trivium.Spec{{Name: "w", Shape: slices.Repeat([]int{1}, maxAxes+1)}}}, "found 1 and 17"},
	} {
		x.spec.Name = "t"
		p := Placement{Directory: dirName(), Servers: []Name{serverName(0)}}
		if _, err := NewClientState(p, clientName(0), []Spec{x.spec}, Options{}); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v, want it to say %q", err, x.want)
		}
		if _, err := decodeHello((&hello{name: clientName(0), session: 1, specs: []Spec{x.spec}}).append(nil)); err == nil {
			t.Errorf("what is refused as %q is read", x.want)
		}
	}
}

// TestUnknownTable: who asks for a table that is not there is told which are.
func TestUnknownTable(t *testing.T) {
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 1, tables: []Spec{{Name: "weights", Rows: 1, Cols: 4}, {Name: "bias", Rows: 1, Cols: 4}}})
	j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
		_, err := TableOf[float32](w, "weight")
		if err == nil || err.Error() != `ps: no table is called "weight"; there are ["weights" "bias"]` {
			return fmt.Errorf("found %w", err)
		}
		return w.Finish(bg)
	})
	j.run(t, time.Minute)
}

// TestSumsThatAreNoNumbers: deltas that are numbers and whose sum is none end the round of who added them, however their rows are kept, and
// nobody reads them.
func TestSumsThatAreNoNumbers(t *testing.T) {
	const big = math.MaxFloat32
	one := func(cols int64) []float32 { return slices.Repeat([]float32{big}, int(cols)) }
	for name, x := range map[string]struct {
		spec Spec
		add  func(tab Table[float32]) error
	}{
		"short": {Spec{Cols: 100}, func(tab Table[float32]) error { return errors.Join(tab.Inc(1, 70, big), tab.Inc(1, 70, big)) }},
		"batch": {Spec{Cols: 100}, func(tab Table[float32]) error {
			return errors.Join(tab.DenseInc(1, 0, make([]float32, 100)), tab.Inc(1, 70, big), tab.BatchInc(1, []int64{3, 70}, []float32{1, big}))
		}},
		"dense": {Spec{Cols: 100}, func(tab Table[float32]) error {
			return errors.Join(tab.DenseInc(1, 70, one(9)), tab.DenseInc(1, 0, one(71)))
		}},
		"long": {Spec{Cols: 5000}, func(tab Table[float32]) error {
			return errors.Join(tab.DenseInc(1, 70, one(500)), tab.DenseInc(1, 0, one(71)))
		}},
		"sparse": {Spec{Cols: 100, Sparse: true}, func(tab Table[float32]) error { return errors.Join(tab.Inc(1, 70, big), tab.Inc(1, 70, big)) }},
		"run":    {Spec{Cols: 100, Sparse: true}, func(tab Table[float32]) error { return errors.Join(tab.Inc(1, 70, big), tab.DenseInc(1, 70, one(1))) }},
		"later": {Spec{Cols: 100, Sparse: true}, func(tab Table[float32]) error {
			return errors.Join(tab.Inc(1, 70, big), tab.Inc(1, 7, 1), tab.Inc(1, 70, big))
		}},
	} {
		for _, finish := range []bool{false, true} {
			x.spec.Name, x.spec.Rows, x.spec.Mode = "t", 2, ASP
			j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 2, servers: 1, tables: []Spec{x.spec}})
			j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
				err := x.add(tableOf[float32](w, "t"))
				if err == nil && finish {
					err = w.Finish(bg)
				} else if err == nil {
					_, err = w.Clock(bg)
				}
				const want = `ps: clock: table "t", row 1, column 70: what worker 0 of j/worker/0 added in round 0 comes to +Inf`
				if err == nil || err.Error() != want {
					return fmt.Errorf("%s: found %w, want %q", name, err, want)
				}
				return nil
			})
			j.start(1, 0, func(w *Worker, sleep func(time.Duration)) error {
				sleep(time.Second)
				row := make([]float32, x.spec.Cols)
				if _, err := tableOf[float32](w, "t").Get(bg, 1, row); err != nil || row[70] != 0 {
					return fmt.Errorf("%s: the other reads %v, %w", name, row[70], err)
				}
				return nil
			})
			j.run(t, time.Minute)
		}
	}
}

// TestWeightsThatAreNoNumbers: nor may the weights of a round come to what nothing can be divided by. One below 0 would step uphill.
func TestWeightsThatAreNoNumbers(t *testing.T) {
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 1, tables: []Spec{{Name: "t", Rows: 1, Cols: 1, Mode: BSP}}})
	j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
		for _, weight := range []float64{math.Inf(1), math.NaN(), -1} {
			if err := w.Weight(0, weight); err == nil || !strings.Contains(err.Error(), "want a number of 0 or more") {
				return fmt.Errorf("weight %v: found %w", weight, err)
			}
		}
		if err := w.Weight(0, math.MaxFloat64); err != nil {
			return err
		}
		const want = "with the 1.7976931348623157e+308 that worker 0 of j/worker/0 gave it in round 0 it is no number"
		if err := w.Weight(0, math.MaxFloat64); err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("found %w, want it to say %q", err, want)
		}
		return w.Finish(bg)
	})
	j.run(t, time.Minute)
}
