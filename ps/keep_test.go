package ps

import (
	"errors"
	"fmt"
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
