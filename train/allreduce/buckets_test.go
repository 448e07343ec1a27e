package allreduce

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
)

// TestCutByCosts: the gradient is cut by what was measured, and where a codec keeps something of each bucket, as in every other run.
func TestCutByCosts(t *testing.T) {
	if testing.Short() {
		t.Skip("a long training case")
	}
	job := &trivium.Job{
		Version: trivium.JobVersion, Model: "mlp:1024,1024,512", Data: trivium.Data{Source: "digits", Rows: 40, Train: "0:30", Test: "30:"},
		Batch: 10, Epochs: 1, Seed: 9, Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.01},
	}
	for _, o := range []Options{{}, {ShardOptimizer: true}, {Compress: "f16"}, {Compress: "f16", Calibrate: true}, {Calibrate: true}} {
		network := transport.NewMemory()
		var peers []transport.Name
		var ports [2]transport.Port
		for r := range ports {
			peers = append(peers, transport.Name{Role: "worker", ID: fmt.Sprint(r)})
			var err error
			if ports[r], err = network.Open(t.Context(), peers[r], transport.Options{}); err != nil {
				t.Fatal(err)
			}
			defer ports[r].Close()
		}
		var wait sync.WaitGroup
		for r := range ports {
			if err := ports[r].Know(peers[1-r], ports[1-r].Addr()); err != nil {
				t.Fatal(err)
			}
			wait.Go(func() {
				cpu := tensor.NewCPU(1, false)
				defer cpu.Close()
				env := &train.Env{Rank: r, Peers: peers, Port: ports[r], Epoch: 1, CPU: cpu, Shares: true}
				run, err := train.Open(t.Context(), *env, job, "allreduce")
				if err != nil {
					t.Error(err)
					return
				}
				defer run.Close()
				if _, err := run.OptimizerState(); err != nil {
					t.Error(err)
					return
				}
				x, err := newExchange(t.Context(), env, o, run, nil, nil)
				if err != nil {
					t.Error(err)
					return
				}
				defer x.close()
				costs := collective.Costs{}
				if o.Calibrate && o.Compress == "" {
					if costs = x.g.Costs(); costs.Ranks == 0 {
						t.Error("nothing was measured")
					}
				}
				want := ranges(x.denseBuckets(run.Layout(), costs))
				var list []collective.Bucket
				for _, b := range x.buckets {
					list = append(list, b.Bucket)
				}
				if found := ranges(list); !slices.Equal(found, want) {
					t.Errorf("%+v: rank %d cuts %v, want %v", o, r, found, want)
				}
			})
		}
		wait.Wait()
	}
}

func ranges(list []collective.Bucket) (ends [][2]int) {
	for _, b := range list {
		ends = append(ends, [2]int{b.From, b.To})
	}
	return ends
}
