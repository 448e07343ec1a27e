package ps

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/transport"
)

// BenchmarkRound is a whole round of three clients and a server without any computing: read, add, clock, where the clock asks for what
// the next round reads. Its cells are the models of the evaluation.
func BenchmarkRound(b *testing.B) {
	for _, cells := range []int64{7850, 79510, 105194} {
		for _, mode := range []Spec{{Mode: BSP, Optimizer: "sgd rate=0.1"}, {Mode: SSP, Staleness: 3}, {Mode: ASP, Optimizer: "sgd rate=0.1"}} {
			b.Run(fmt.Sprintf("%d/%s", cells, modeName(mode)), func(b *testing.B) {
				spec := mode
				spec.Name, spec.Rows, spec.Cols = "t", 1, cells
				j := newRealJob(b, &transport.Unix{Dir: b.TempDir()}, simOptions{clients: 3, servers: 1, tables: []Spec{spec}})
				defer j.close()
				ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
				defer cancel()
				var workers []*Worker
				for _, c := range j.clients {
					w, err := c.Worker(ctx)
					if err != nil {
						b.Fatal(err)
					}
					workers = append(workers, w)
				}
				g := make([]float32, cells)
				for i := range g {
					g[i] = 1
				}
				b.ResetTimer()
				var wg sync.WaitGroup
				for _, w := range workers {
					wg.Go(func() {
						tab, row := tableOf[float32](w, "t"), make([]float32, cells)
						for range b.N {
							_, err := tab.Get(ctx, 0, row)
							if err == nil {
								err = tab.DenseInc(0, 0, g)
							}
							if err == nil {
								err = w.Weight(0, 100)
							}
							if err == nil {
								_, err = w.Clock(ctx, tab.Rows(0))
							}
							if err != nil {
								j.fail(err)
								return
							}
						}
						j.fail(w.Finish(ctx))
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rounds/s")
			})
		}
	}
}
