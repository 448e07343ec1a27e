package ps

import (
	"context"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/sim"
)

// TestLanesOverlap: on a link that is slow in both directions a server of several lanes answers for what it has of a round while the rest
// is still on its way. With one lane a round takes both ways, one after the other.
func TestLanesOverlap(t *testing.T) {
	const (
		cells, rounds = 80_000, 20
		rate          = 50e6 // bytes/s of each worker's link, in each direction
	)
	way := time.Duration(4 * cells / rate * float64(time.Second))
	roundOf := func(lanes int) (took time.Duration) {
		w := sim.New(1, sim.Options{Link: sim.Link{Delay: 50 * time.Microsecond, BytesPerSec: rate}})
		j := newSimJob(w, simOptions{clients: 2, servers: 1, lanes: lanes, shards: lanes, tables: []Spec{{Name: "model", Rows: 1, Cols: cells, Mode: BSP}}})
		for i := range 2 {
			j.start(i, 0, func(w *Worker, _ func(time.Duration)) error {
				model, err := TableOf[float32](w, "model")
				if err != nil {
					return err
				}
				v := make([]float32, cells)
				began := j.w.Now()
				for range rounds {
					if _, err := model.Get(context.Background(), 0, v); err != nil {
						return err
					}
					if err := model.DenseInc(0, 0, v); err != nil {
						return err
					}
					if _, err := w.Clock(context.Background(), model.Rows(0)); err != nil {
						return err
					}
				}
				took = (j.w.Now() - began) / rounds
				return w.Finish(context.Background())
			})
		}
		j.run(t, time.Minute)
		return took
	}
	one, four, eight := roundOf(1), roundOf(4), roundOf(8)
	t.Logf("a round of one lane takes %v, of four %v, of eight %v; one way takes %v", one, four, eight, way)
	if one < 2*way-way/4 {
		t.Errorf("a round of one lane takes %v, less than there and back, %v", one, 2*way)
	}
	for lanes, took := range map[int]time.Duration{4: four, 8: eight} {
		if most := way + way/time.Duration(lanes) + way/5; took > most {
			t.Errorf("a round of %d lanes takes %v, want at most %v", lanes, took, most)
		}
	}
}
