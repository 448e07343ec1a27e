package local_test

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
)

// smallRows is noise in rows of a shape and so many classes (0: one real label).
func smallRows(rows int, form trivium.Form, shape []int, classes int) *data.Splits {
	const ones = 4 // entries of a sparse row
	r := rand.New(rand.NewPCG(1, 2))
	spec := trivium.InputSpec{Name: "x", Form: form, Shape: shape}
	in := trivium.Input{Name: "x", Form: form, Shape: shape}
	labels := trivium.Labels{Kind: trivium.Class, Width: classes}
	if classes == 0 {
		labels = trivium.Labels{Kind: trivium.Real, Width: 1}
	}
	if form == trivium.CSR {
		in.Ptr = []int64{0}
	}
	for range rows {
		if form == trivium.CSR {
			for k := range ones {
				in.Index = append(in.Index, int32(k*spec.Columns()/ones+r.IntN(spec.Columns()/ones)))
				in.Values = append(in.Values, 1)
			}
			in.Ptr = append(in.Ptr, int64(len(in.Index)))
		} else {
			for range spec.Columns() {
				in.Values = append(in.Values, r.Float32())
			}
		}
		if classes > 0 {
			labels.Class = append(labels.Class, r.Int32N(int32(classes)))
		} else {
			labels.Real = append(labels.Real, r.Float32())
		}
	}
	schema := trivium.Schema{Inputs: []trivium.InputSpec{spec}, Labels: trivium.LabelSpec{Kind: labels.Kind, Width: labels.Width}}
	return &data.Splits{Train: data.Memory(schema, trivium.Batch{Rows: rows, Inputs: []trivium.Input{in}, Labels: labels})}
}

// TestNoModelAllocates trains every standard model and every optimizer, observed, not in exact mode and in it, for a few updates and for
// three times as many, and wants as many allocations. The updates are those of one epoch of shuffled rows; of L-BFGS an update is an
// epoch.
func TestNoModelAllocates(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: fifty trainings, which the whole tests have")
	}
	flat, image, sparse := []int{6}, []int{14, 14, 1}, []int{40}
	wide := []int{1 << 15} // its gradient names rows
	all := optim.Names()
	for _, c := range []struct {
		model      string
		form       trivium.Form
		shape      []int
		classes    int
		optimizers []string
	}{
		{"logistic", trivium.Dense, flat, 2, all},
		{"svm", trivium.Dense, flat, 2, all[:1]},
		{"linear", trivium.Dense, flat, 0, all[:1]},
		{"softmax", trivium.Dense, flat, 3, []string{"sgd", "lbfgs"}},
		{"mlp:5,4", trivium.Dense, flat, 3, all},
		{"cnn:2,3,4", trivium.Dense, []int{16, 16, 1}, 3, []string{"adam", "lbfgs"}},
		{"lstm:3", trivium.Dense, image[:2], 3, []string{"adam", "lbfgs"}},
		{"logistic", trivium.CSR, wide, 2, []string{"sgd", "adam", "ftrl", "lbfgs"}},
		{"softmax", trivium.CSR, sparse, 3, []string{"adagrad"}},
		{"fm:2", trivium.CSR, wide, 2, []string{"sgd", "adam", "ftrl", "lbfgs"}},
	} {
		many, few := smallRows(20_000, c.form, c.shape, c.classes), smallRows(400, c.form, c.shape, c.classes)
		for _, name := range c.optimizers {
			for _, exact := range []bool{false, true} {
				job := trivium.Job{
					Version: trivium.JobVersion, Model: c.model, Batch: 16, Exact: exact, Seed: 1,
					Optimizer: trivium.OptimizerSpec{Name: name, Rate: 1e-4, ClipNorm: 10},
				}
				splits, steps := many, int64(100)
				if name == "lbfgs" {
					job.Batch, splits, steps = trivium.FullBatch, few, 5
					job.Optimizer = trivium.OptimizerSpec{Name: name, Params: map[string]float64{"history": 3}}
				}
				most := uint64(20)
				if name == "lbfgs" {
					most = uint64(steps)
				}
				// The runtime allocates a little of its own accord: what counts is there each time.
				once, thrice := uint64(0), most+1
				for try := 0; try < 10 && thrice > once+most; try++ {
					once, thrice = allocations(t, job, splits, steps), allocations(t, job, splits, 3*steps)
				}
				if thrice > once+most {
					t.Errorf("%s, %v input, %s, exact %v: %d allocations in %d updates, %d in %d", c.model, c.form, name, exact, once, steps, thrice, 3*steps)
				}
			}
		}
	}
}

// allocations counts those of a training.
func allocations(t *testing.T, job trivium.Job, splits *data.Splits, steps int64) uint64 {
	t.Helper()
	job.Steps = steps
	cpu := tensor.NewCPU(2, job.Exact)
	defer cpu.Close()
	env := train.Env{CPU: cpu, Observe: observe.NewHub(observe.Options{}), Splits: splits, AtEnd: true, Models: pacedModels(func() {})}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	if r, err := local.New(env, local.Options{}).Train(t.Context(), &job); err != nil || r.Steps != steps {
		t.Fatal(job.Model, job.Optimizer.Name, r.Steps, err)
	}
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}
