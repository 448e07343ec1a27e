package server

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/ps"
)

// TestTableText: a table's counters in words.
func TestTableText(t *testing.T) {
	few := ps.TableCounters{Table: "a", Reads: 4, Hits: 3, Rounds: 2, BytesSent: 401, BytesReceived: 7}
	few.Stale[0], few.Stale[3] = 2, 2
	far := ps.TableCounters{Table: "b", Reads: 2}
	far.Stale[0], far.Stale[ps.MaxStale] = 1, 1
	for want, n := range map[string]ps.TableCounters{
		`table "a": 4 reads, 75.0 % of them from the cache, lacking 1.50 rounds on average and 3 at most; 2 rounds of 200 bytes; 7 bytes of cells received`:    few,
		`table "b": 2 reads, 0.0 % of them from the cache, lacking 8.00 rounds or more on average and 16 or more at most; 0 rounds; 0 bytes of cells received`: far,
		`table "c": 0 reads; 1 rounds of 8 bytes; 0 bytes of cells received`:                                                                                   {Table: "c", Rounds: 1, BytesSent: 8},
	} {
		if got := tableText(&n); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// wide is the tables of a model with a long dense tensor, a row-sparse one, and another dense one, with room for a state of two vectors.
func wide(t testing.TB) (*tables, *filling) {
	t.Helper()
	l, err := trivium.NewLayout(
		trivium.Spec{Name: "a", Shape: []int{toldCells + 50}, Rate: 1, Decay: 1},
		trivium.Spec{Name: "v", Shape: []int{3 * toldCells, 3}, Rate: 1, Decay: 1, RowSparse: true},
		trivium.Spec{Name: "b", Shape: []int{7}, Rate: 1, Decay: 1},
	)
	if err != nil {
		t.Fatal(err)
	}
	to := &filling{rowSteps: [][]uint32{nil, make([]uint32, 3*toldCells), nil}}
	for range 2 {
		to.slots = append(to.slots, make([]float32, l.Len()))
	}
	return newTables(l, Options{}, fresh), to
}

// TestStateArrives: what servers keep of rows and of long rows' parts is told in pieces, and put where it belongs, with the updates of each row, those
// before the run among them.
func TestStateArrives(t *testing.T) {
	k, err := newKeeper(&trivium.Job{Optimizer: trivium.OptimizerSpec{Name: "adam", Rate: 0.01}, Batch: 4}, nil, false, 2)
	if err != nil {
		t.Fatal(err)
	}
	for name, u := range k.updaters() {
		u := u.(*updater)
		all, to := wide(t)
		var tab []ps.Kept
		value := func(slot, cell int) float32 { return float32(slot+1) * float32(cell+1) }
		add := func(table string, row, from, rows, cols, cell int) {
			x := ps.Kept{Table: table, Optimizer: u, Row: int64(row), From: int64(from), Rows: rows, Cols: cols}
			for i := range rows {
				x.Steps = append(x.Steps, uint32(u.loads+row+i))
			}
			for s := range u.Slots() {
				v := make([]float32, rows*cols)
				for i := range v {
					v[i] = value(s, cell+i)
					if u.going && s == u.Slots()-1 {
						v[i] = math.Float32frombits(1000)
					}
				}
				x.Slots = append(x.Slots, v)
			}
			tab = append(tab, x)
		}
		rows := all.sparse[0]
		add(rows.name, 0, 0, 5, 3, rows.from)
		add(rows.name, 5, 0, rows.rows-5, 3, rows.from+15)
		add(denseTable, 0, 0, 1, toldCells+20, 0)
		add(denseTable, 0, toldCells+20, 1, 30, toldCells+20)
		add(denseTable, 0, toldCells+50, 1, 7, rows.from+3*rows.rows)
		var p []byte
		for _, x := range tab {
			p = u.appendState(p, x)
		}
		if err := eachState(bytes.NewReader(p), func(s *told) error { return all.take(s, to) }); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for s, v := range to.slots {
			for i, x := range v {
				if x != value(s, i) {
					t.Fatalf("%s: state %d of cell %d is %v, want %v", name, s, i, x, value(s, i))
				}
			}
		}
		before := uint32(0)
		if u.going {
			before = 1000
		}
		for r, n := range to.rowSteps[1] {
			if want := before + uint32(r); n != want {
				t.Fatalf("%s: row %d had %d updates, want %d", name, r, n, want)
			}
		}
		for _, cut := range []int{1, 10, len(p) / 2, len(p) - 1} {
			err := eachState(bytes.NewReader(p[:cut]), func(*told) error { return nil })
			if err == nil || !strings.Contains(err.Error(), "ends in the middle") {
				t.Errorf("%s: %d of %d bytes: %v", name, cut, len(p), err)
			}
		}
	}
}

// FuzzState: a state that makes no sense is refused, and changes nothing that it does not name.
func FuzzState(f *testing.F) {
	k, err := newKeeper(&trivium.Job{Optimizer: trivium.OptimizerSpec{Name: "adam", Rate: 0.01}, Batch: 4}, nil, false, 2)
	if err != nil {
		f.Fatal(err)
	}
	u := k.updaters()[fresh].(*updater)
	all, to := wide(f)
	for _, x := range []ps.Kept{
		{Table: all.sparse[0].name, Row: 7, Rows: 2, Cols: 3, Steps: []uint32{2, 3}, Slots: [][]float32{make([]float32, 6), make([]float32, 6)}},
		{Table: denseTable, From: toldCells + 45, Rows: 1, Cols: 9, Steps: []uint32{2}, Slots: [][]float32{make([]float32, 9), make([]float32, 9)}},
	} {
		f.Add(u.appendState(nil, x))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		read := 0
		err := eachState(bytes.NewReader(p), func(s *told) error {
			read += toldHead + len(s.table) + 4*s.rows + 4*s.rows*s.cols*len(s.slots)
			return all.take(s, to)
		})
		if err == nil && read != len(p) {
			t.Errorf("%d of %d bytes were read", read, len(p))
		}
	})
}
