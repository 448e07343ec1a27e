package ps

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/sim"
)

// TestIncRows: rows that are added to together, one by one and in any order come to their sums, of short rows and long ones, dense and sparse,
// whichever are touched first.
func TestIncRows(t *testing.T) {
	for _, s := range []Spec{{Rows: 9, Cols: 2}, {Cols: 2}, {Cols: 2, Sparse: true}, {Rows: 9, Cols: shortRow + 1}} {
		s.Name, s.Mode = "t", BSP
		n := int(s.Cols)
		j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 2, min: 4, tables: []Spec{s}})
		j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
			tab := tableOf[float32](w, "t")
			want := make([]float32, 9*n)
			for round, order := range [][][]int64{
				{{0, 3, 5}, {7, 8}},      // one behind the other
				{{3, 5}, {4}, {3, 4, 8}}, // between, and again
				{{8}, {0, 8}, {1, 2}},    // before
				{{1, 2, 6}, {6, 7}},      // in order, after a round that was not
			} {
				for k, rows := range order {
					deltas := make([]float32, len(rows)*n)
					for i, r := range rows {
						for c := range n {
							deltas[i*n+c] = float32(100*round + 10*k + int(r) + c%3)
							want[int(r)*n+c] += deltas[i*n+c]
						}
					}
					if err := tab.IncRows(0, rows, deltas); err != nil {
						return err
					}
				}
				for _, after := range []bool{false, true} {
					got := make([]float32, 9*n)
					if _, err := tab.GetRows(bg, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8}, got); err != nil {
						return err
					}
					if !slices.Equal(got, want) {
						return fmt.Errorf("%d columns, sparse %v, round %d, after clock %v: other sums", n, s.Sparse, round, after)
					}
					if !after {
						if _, err := w.Clock(bg); err != nil {
							return err
						}
					}
				}
			}
			return w.Finish(bg)
		})
		j.run(t, time.Minute)
	}
}

// TestIncRowsMistakes: nothing of a call with a mistake is added.
func TestIncRowsMistakes(t *testing.T) {
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 1, tables: []Spec{{Name: "t", Rows: 9, Cols: 2, Mode: BSP}}})
	j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
		tab := tableOf[float32](w, "t")
		ones := []float32{1, 1, 1, 1}
		for want, err := range map[string]error{
			`ps: inc "t": row 3 follows 4: want ascending rows, each once`: tab.IncRows(0, []int64{4, 3}, ones),
			`ps: inc "t": row 4 follows 4: want ascending rows, each once`: tab.IncRows(0, []int64{4, 4}, ones),
			`ps: inc "t": row 9: want 0 to 8`:                              tab.IncRows(0, []int64{4, 9}, ones),
			`ps: inc "t": row -1: want 0 to 8`:                             tab.IncRows(0, []int64{-1, 4}, ones),
			`ps: inc "t": 2 rows of 2 cells, and 3 deltas`:                 tab.IncRows(0, []int64{4, 5}, ones[:3]),
			`ps: inc "t": row 4: part -1: want 0`:                          tab.IncRows(-1, []int64{4, 5}, ones),
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("found %v, want %s", err, want)
			}
		}
		if err := tab.IncRows(0, nil, nil); err != nil {
			return err
		}
		row := make([]float32, 2)
		if _, err := w.Clock(bg); err != nil {
			return err
		}
		if _, err := tab.Get(bg, 4, row); err != nil || row[0] != 0 {
			return fmt.Errorf("row 4 is %v: %w", row, err)
		}
		if err := tab.IncRows(0, []int64{4, 5}, []float32{1, 1, 1, float32(math.Inf(1))}); err != nil {
			return err
		}
		if _, err := w.Clock(bg); err == nil || !strings.Contains(err.Error(), `row 5, column 1: worker 0 of j/worker/0 added +Inf`) {
			t.Errorf("found %v", err)
		}
		return nil
	})
	j.run(t, time.Minute)
}
