package ps

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/sim"
)

// TestKeepOfRounds: a constraint holds after a round, and is not restored in the middle of one: not between the runs of a long row, nor
// between the clients of a BSP table.
func TestKeepOfRounds(t *testing.T) {
	for _, partition := range []Partition{Range, Hash} {
		tables := []Spec{
			{Name: "norm", Rows: 1, Cols: 2000, Mode: BSP, Keep: RowNorm(1), Partition: partition},
			{Name: "positive", Rows: 1, Cols: 4, Mode: BSP, Keep: NonNegative(), Init: Init{Kind: Constant, A: 1}, Partition: partition},
		}
		j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 2, servers: 1, tables: tables})
		for i := range 2 {
			j.start(i, 0, func(w *Worker, _ func(time.Duration)) error {
				norm, positive := tableOf[float32](w, "norm"), tableOf[float32](w, "positive")
				if i == 0 {
					if err := norm.Inc(0, 1500, 1); err != nil {
						return err
					}
				}
				if err := w.Barrier(bg); err != nil {
					return err
				}
				if i == 0 { // from one unit vector to another: between its runs the row is longer
					if err := errors.Join(norm.Inc(0, 0, 1), norm.Inc(0, 1500, -1)); err != nil {
						return err
					}
				}
				if err := positive.Inc(0, 2, float32(10*i-5)); err != nil { // -5 by one, 5 by the other
					return err
				}
				if err := w.Barrier(bg); err != nil {
					return err
				}
				row, cells := make([]float32, 2000), make([]float32, 4)
				if _, err := norm.Get(bg, 0, row); err != nil {
					return err
				}
				if _, err := positive.Get(bg, 0, cells); err != nil {
					return err
				}
				if row[0] != 1 || row[1500] != 0 {
					return fmt.Errorf("%s: the row of norm 1 has %v and %v, want 1 and 0", partition, row[0], row[1500])
				}
				if cells[2] != 1 {
					return fmt.Errorf("%s: 1 - 5 + 5 is %v", partition, cells[2])
				}
				return w.Finish(bg)
			})
		}
		j.run(t, time.Minute)
	}
}

// TestKeepOfInit: a norm holds for rows that nobody has added to, whether a server has them or not, and however they are read; what an Init
// gives within its constraint stays.
func TestKeepOfInit(t *testing.T) {
	const cols = 1000
	for _, spec := range []Spec{
		{Rows: 3, Partition: Range},
		{Rows: 3, Partition: Hash},
		{},
	} {
		spec.Name, spec.Cols, spec.Init, spec.Keep = "norm", cols, Init{Kind: Normal, A: 1, B: 3, Seed: 5}, RowNorm(1)
		positive := Spec{Name: "positive", Rows: 1, Cols: 4, Init: Init{Kind: Uniform, A: 1}, Keep: NonNegative()}
		j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 2, min: 4, tables: []Spec{spec, positive}})
		j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
			norm, row := tableOf[float32](w, "norm"), make([]float32, 2*cols)
			few := make([]float32, 2)
			if _, err := norm.GetCells(bg, 2, []int64{1, 900}, few); err != nil {
				return err
			}
			if _, err := norm.GetRows(bg, []int64{1, 2}, row); err != nil {
				return err
			}
			var sum float64
			for _, x := range row[cols:] {
				sum += float64(x) * float64(x)
			}
			if !(math.Abs(sum-1) <= 1e-5) || few[0] != row[cols+1] || few[1] != row[cols+900] {
				return fmt.Errorf("%s: a row that nobody added to has the square %v, and read alone two cells are %v; want %v and %v", spec.Partition, sum, few, row[cols+1], row[cols+900])
			}
			if err := errors.Join(norm.Inc(1, 0, 1), w.Barrier(bg)); err != nil { // a row that is made as it is added to
				return err
			}
			want := row[:cols]
			want[0]++
			sum = 0
			for _, x := range want {
				sum += float64(x) * float64(x)
			}
			again := make([]float32, cols)
			if _, err := norm.Get(bg, 1, again); err != nil {
				return err
			}
			for i := range want {
				if !(math.Abs(float64(again[i])-float64(want[i])/math.Sqrt(sum)) <= 1e-5) {
					return fmt.Errorf("%s: cell %d is %v after an addition, want %v", spec.Partition, i, again[i], float64(want[i])/math.Sqrt(sum))
				}
			}
			cells := make([]float32, 4)
			if _, err := tableOf[float32](w, "positive").Get(bg, 0, cells); err != nil || slices.Min(cells) <= 0 || slices.Max(cells) > 1 {
				return fmt.Errorf("found %v: %w", cells, err)
			}
			return w.Finish(bg)
		})
		j.run(t, time.Minute)
	}
}
