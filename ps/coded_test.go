package ps

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/sim"
)

// TestCase22Codec: what a codec drops is not lost: the sum that was applied and the residuals are the sum of the deltas.
func TestCase22Codec(t *testing.T) {
	for _, name := range []string{"topk:0.01", "1bit", "int8", "f16"} {
		for _, cols := range []int64{100, 3000} {
			t.Run(fmt.Sprintf("%s/%d", name, cols), func(t *testing.T) {
				up, err := compress.Parse(name)
				if err != nil {
					t.Fatal(err)
				}
				const rounds = 200
				unit, within := float32(1000), 1e-4 // float32 sums of 200 values
				if name == "topk:0.01" {            // sums of these have no rounding, nor has what is dropped of them
					unit, within = 1024, 1e-5
				}
				spec := Spec{Name: "t", Rows: 2, Cols: cols, Mode: SSP, Staleness: 2}
				j := newSimJob(sim.New(22, sim.Options{}), simOptions{clients: 2, servers: 2, lanes: 2, min: 16, tables: []Spec{spec}, client: Options{Up: up}})
				want, got := make([]float64, 2*cols), make([]float32, 2*cols)
				for k := range 2 {
					j.start(k, 0, func(w *Worker, _ func(time.Duration)) error {
						tab, x := tableOf[float32](w, "t"), make([]float32, cols)
						for i := range rounds {
							row := int64(i % 2)
							for c := range x {
								x[c] = float32(int64(draw.Below(22, uint64(k), uint64(i)<<20|uint64(c), 2049))-1024) / unit
								want[row*cols+int64(c)] += float64(x[c])
							}
							if err := tab.DenseInc(row, 0, x); err != nil {
								return err
							}
							if _, err := w.Clock(bg); err != nil {
								return err
							}
						}
						if err := w.Barrier(bg); err != nil {
							return err
						}
						for range 3 { // so that a read may lack nothing
							if _, err := w.Clock(bg); err != nil {
								return err
							}
						}
						if k == 0 {
							_, err1 := tab.Get(bg, 0, got[:cols])
							_, err2 := tab.Get(bg, 1, got[cols:])
							if err := errors.Join(err1, err2); err != nil {
								return err
							}
						}
						return w.Finish(bg)
					})
				}
				j.run(t, time.Hour)
				left := make([]float64, 2*cols)
				for _, c := range j.clients {
					for row, e := range c.state.byName["t"].residuals {
						for i, x := range e.Cells() {
							left[row*cols+int64(i)] += float64(x)
						}
					}
				}
				dropped := 0.0
				for i := range want {
					dropped = max(dropped, math.Abs(left[i]))
					if diff := math.Abs(float64(got[i]) + left[i] - want[i]); diff > within {
						t.Fatalf("cell %d: applied %v and dropped %v, of %v", i, got[i], left[i], want[i])
					}
				}
				if dropped == 0 {
					t.Error("the codec dropped nothing")
				}
			})
		}
	}
}

// TestCodecIntegers: half precision keeps integers to 2,048, and a mistake is told.
func TestCodecIntegers(t *testing.T) {
	spec := Spec{Name: "t", Rows: 1, Cols: 2049, Mode: BSP}
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 2, min: 16, tables: []Spec{spec}, client: Options{Up: compress.F16{}}})
	j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
		tab, x := tableOf[float32](w, "t"), make([]float32, 2049)
		for i := range x {
			x[i] = float32(i)
		}
		if err := errors.Join(tab.DenseInc(0, 0, x), w.Barrier(bg)); err != nil {
			return err
		}
		if _, err := tab.Get(bg, 0, x); err != nil {
			return err
		}
		for i := range x {
			if x[i] != float32(i) {
				return fmt.Errorf("cell %d is %v", i, x[i])
			}
		}
		return w.Finish(bg)
	})
	j.run(t, time.Hour)
	p := j.p
	p.Exact = true
	if _, err := NewClientState(p, clientName(0), nil, Options{Up: compress.F16{}}); err == nil || !strings.Contains(err.Error(), "exact mode") {
		t.Errorf("exact mode takes a codec: %v", err)
	}
}
