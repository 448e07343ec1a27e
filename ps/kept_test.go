package ps

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/sim"
)

// TestWriteOnly: where Lead bounds nobody, or hardly anyone, who only writes to a BSP table is bounded by what servers keep of its rounds,
// and goes on as the slowest does, also where messages are lost. So is who only tells weights, which are kept for those who write to it.
func TestWriteOnly(t *testing.T) {
	const rounds, cols, room = 40, 1000, 5
	weigh := func(w *Worker, _ Table[float32]) error { return w.Weight(0, 1) }
	for name, c := range map[string]struct {
		other    Spec
		inflight int
		most     int // rounds that have room
		add      func(w *Worker, x Table[float32]) error
	}{
		"asp":     {Spec{Mode: ASP}, room * 4 * cols, room, addOnes},
		"ssp":     {Spec{Mode: SSP, Staleness: 1000}, room * 4 * cols, room, addOnes},
		"weights": {Spec{Mode: ASP}, room * roundOverhead, 4 * room, weigh}, // under way they take less
	} {
		c.other.Name, c.other.Rows, c.other.Cols = "y", 1, cols
		for _, loss := range []float64{0, 0.3} {
			j := newSimJob(sim.New(1, sim.Options{}), simOptions{
				clients: 2, servers: 1, tables: []Spec{{Name: "x", Rows: 1, Cols: cols, Mode: BSP}, c.other}, client: Options{Inflight: c.inflight},
			})
			slow := Clock(0)
			look := func(fast Clock) error {
				bytes, kept := 0, 0
				for _, s := range j.lane(0).clients {
					kept += len(s.queue)
					for _, r := range s.queue {
						for _, m := range r.pieces {
							bytes += m.bytes
						}
					}
				}
				if kept > c.most+1 || bytes > c.inflight+5*cols || fast > slow+Clock(c.most)+1 {
					return fmt.Errorf("%s: at clocks %d and %d the server keeps %d rounds of %d bytes", name, fast, slow, kept, bytes)
				}
				return nil
			}
			j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
				for range rounds {
					if err := c.add(w, tableOf[float32](w, "x")); err != nil {
						return err
					}
					if _, err := w.Clock(bg); err != nil {
						return err
					}
					if err := look(w.Now()); err != nil {
						return err
					}
				}
				return w.Finish(bg)
			})
			j.start(1, 0, func(w *Worker, sleep func(time.Duration)) error {
				for range rounds {
					sleep(time.Minute)
					if err := look(0); err != nil {
						return err
					}
					slow++
					if _, err := w.Clock(bg); err != nil {
						return err
					}
				}
				return w.Finish(bg)
			})
			if err := j.w.Run(sim.Plan{{Kind: sim.Loss, Arg: loss, For: 2 * time.Hour}}, 2*time.Hour); err != nil {
				t.Fatal(err)
			}
			if j.running > 0 {
				t.Errorf("%s, loss of %v: %d workers wait for ever", name, loss, j.running)
			}
			j.end()
			for _, err := range j.failures {
				t.Error(err)
			}
		}
	}
}

func addOnes(_ *Worker, x Table[float32]) error {
	return x.DenseInc(0, 0, slices.Repeat([]float32{1}, int(x.Spec().Cols)))
}

// TestKeptTooLong: who waits in vain for room that others' rounds would make is told what it waits for, and whom. A round that is larger
// than what may be under way does not wait for itself.
func TestKeptTooLong(t *testing.T) {
	for _, c := range []struct {
		inflight int
		clock    Clock
	}{{20_000, 5}, {1000, 2}} {
		j := newSimJob(sim.New(1, sim.Options{}), simOptions{
			clients: 2, servers: 1, client: Options{Inflight: c.inflight},
			tables: []Spec{{Name: "y", Rows: 1, Cols: 4, Mode: ASP}, {Name: "x", Rows: 1, Cols: 1000, Mode: BSP}},
		})
		var got error
		j.startThen(0, 0, func(w *Worker, _ func(time.Duration)) error {
			for range 100 {
				if err := addOnes(w, tableOf[float32](w, "x")); err != nil {
					return err
				}
				if _, err := w.Clock(bg); err != nil {
					return err
				}
			}
			return nil
		}, func(err error) { got = err })
		j.startThen(1, 0, func(_ *Worker, sleep func(time.Duration)) error { sleep(time.Hour); return nil }, func(error) {})
		if err := j.w.Run(nil, time.Hour/2); err != nil {
			t.Fatal(err)
		}
		j.end()
		for _, want := range []string{
			fmt.Sprintf("ps: clock by worker 0 of j/worker/0 at clock %d: ", c.clock),
			` bytes of its rounds of table "x" are not applied yet: waits for clock 1, and j/server/0 is at 0, held by j/worker/1: no progress in 10m0s`,
		} {
			if got == nil || !strings.Contains(got.Error(), want) {
				t.Errorf("%v, want it to say %q", got, want)
			}
		}
	}
}
