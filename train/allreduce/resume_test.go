package allreduce_test

import (
	"math"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/allreduce"
)

// TestResumeBits: with a codec too, a run that ends early and is resumed by as many workers ends with the bits of one that is not, also
// where it resumes in the middle of an epoch and under a schedule of learning rates.
func TestResumeBits(t *testing.T) {
	for _, codec := range []string{"none", "f16", "bf16", "int8", "1bit", "1bit:l2", "topk:0.05", "randomk:0.1", "qsgd:7", "powersgd:2"} {
		for n := 2; n <= 3; n++ {
			for _, o := range []allreduce.Options{{Compress: codec}, {Compress: codec, ShardOptimizer: true}} {
				if testing.Short() && (o.ShardOptimizer || n == 3 || !slices.Contains([]string{"none", "1bit", "topk:0.05", "powersgd:2"}, codec)) {
					continue // all in the full run
				}
				var env train.Env
				if n == 3 {
					env.Hosts = [][]int{{0, 2}, {1}} // sums within them are encoded
				}
				job := digits()
				job.Epochs, job.Optimizer = 2, trivium.OptimizerSpec{Name: "momentum", Rate: 0.02, Schedule: "step:3,0.5"}
				want, err := (&crew{env: env, n: n, o: o}).Train(t.Context(), job)
				if err != nil {
					t.Fatal(err)
				}
				store := blob.Dir(t.TempDir())
				first := *job
				first.Steps = 7
				if _, err := (&crew{env: train.Env{Blob: store, Hosts: env.Hosts}, n: n, o: o}).Train(t.Context(), &first); err != nil {
					t.Fatal(err)
				}
				saved, _, err := checkpoint.Latest(t.Context(), store)
				if err != nil {
					t.Fatal(err)
				}
				got, err := (&crew{env: train.Env{Resume: saved, Hosts: env.Hosts}, n: n, o: o}).Train(t.Context(), job)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got.Params.Flat, want.Params.Flat) {
					t.Errorf("%+v, %d workers: resumed after update %d, the run ends with other bits", o, n, saved.Progress.Step)
				}
			}
		}
	}
}

// TestResumeElsewhere: where the workers encode other parts of the sums than those that made the checkpoint, as on a machine of more cores, nothing
// of what those had dropped is kept for ever.
func TestResumeElsewhere(t *testing.T) {
	job := digits()
	job.Steps, job.Optimizer = 7, trivium.OptimizerSpec{Name: "sgd", Rate: 0.02}
	dropped := func(resume *checkpoint.Checkpoint, codec string) (*checkpoint.Checkpoint, float64) {
		store := blob.Dir(t.TempDir())
		if _, err := (&crew{env: train.Env{Blob: store, Resume: resume}, n: 3, o: allreduce.Options{Compress: codec}}).Train(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		saved, _, err := checkpoint.Latest(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		var sum float64
		for _, v := range saved.Optimizer.Slots[len(saved.Optimizer.Slots)-1] {
			sum += float64(v) * float64(v)
		}
		return saved, math.Sqrt(sum)
	}
	saved, before := dropped(nil, "topk:0.01")
	saved.Codecs = append(saved.Codecs[1:], saved.Codecs[0]) // each has what another had
	job.Steps++
	if _, after := dropped(saved, "f16"); !(after < before/20) {
		t.Errorf("after an update that drops next to nothing, %v is left of %v", after, before)
	}
}
