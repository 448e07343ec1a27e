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

// smallRows is noise in 20,000 rows of a shape and so many classes (0: one real label).
func smallRows(form trivium.Form, shape []int, classes int) *data.Splits {
	const rows, ones = 20_000, 4 // entries of a sparse row
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

// TestNoModelAllocates trains every standard model and every optimizer, observed and not in exact mode and in it, for n and for 3n updates
// within an epoch of shuffled rows, and wants as many allocations.
func TestNoModelAllocates(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: forty trainings, which the whole tests have")
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
		{"softmax", trivium.Dense, flat, 3, all[:1]},
		{"mlp:5,4", trivium.Dense, flat, 3, all},
		{"cnn:2,3,4", trivium.Dense, []int{16, 16, 1}, 3, []string{"adam"}},
		{"lstm:3", trivium.Dense, image[:2], 3, []string{"adam"}},
		{"logistic", trivium.CSR, wide, 2, []string{"sgd", "adam", "ftrl"}},
		{"softmax", trivium.CSR, sparse, 3, []string{"adagrad"}},
		{"fm:2", trivium.CSR, wide, 2, []string{"sgd", "adam", "ftrl"}},
	} {
		splits := smallRows(c.form, c.shape, c.classes)
		for _, name := range c.optimizers {
			if name == "lbfgs" {
				continue // an update of its is an epoch
			}
			for _, exact := range []bool{false, true} {
				cpu := tensor.NewCPU(2, exact)
				hub := observe.NewHub(observe.Options{})
				mallocs := func(steps int64) uint64 {
					job := &trivium.Job{
						Version: trivium.JobVersion, Model: c.model, Batch: 16, Steps: steps, Exact: exact, Seed: 1,
						Optimizer: trivium.OptimizerSpec{Name: name, Rate: 1e-4, ClipNorm: 10},
					}
					env := train.Env{CPU: cpu, Observe: hub, Splits: splits, AtEnd: true, Models: pacedModels(func() {})}
					var before, after runtime.MemStats
					runtime.GC()
					runtime.ReadMemStats(&before)
					if r, err := local.New(env, local.Options{}).Train(t.Context(), job); err != nil || r.Steps != steps {
						t.Fatal(c.model, name, r.Steps, err)
					}
					runtime.ReadMemStats(&after)
					return after.Mallocs - before.Mallocs
				}
				few, many := mallocs(100), mallocs(300)
				if many > few+20 { // the runtime allocates a little of its own accord
					t.Errorf("%s, %v input, %s, exact %v: %d allocations in 100 updates, %d in 300", c.model, c.form, name, exact, few, many)
				}
				cpu.Close()
			}
		}
	}
}
