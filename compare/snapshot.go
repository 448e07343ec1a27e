package compare

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/checkpoint"
)

// kept is a snapshot.
type kept struct {
	Update  int64   `json:"update"`
	Seconds float64 `json:"seconds"`
	Path    string  `json:"path"`
	params  []float32
}

// keep copies the parameters with the clock stopped.
func (t *trial) keep(ctx context.Context, step int64, latest func(context.Context) (trivium.Params, error)) error {
	running := t.clock.running
	t.clock.stop()
	p, err := latest(ctx)
	if err != nil {
		return err
	}
	t.kept = append(t.kept, kept{Update: step, Seconds: t.clock.sum.Seconds(), params: slices.Clone(p.Flat)})
	if running {
		t.clock.start()
	}
	return nil
}

// write saves what was kept, each file whole or not at all.
func (t *trial) write() error {
	if len(t.kept) == 0 {
		return nil
	}
	layout, err := t.layout()
	if err != nil {
		return err
	}
	for _, k := range t.kept {
		k.Path = filepath.Join(t.order.Dir, snapshotName(k.Update))
		if err := writeParams(k.Path, trivium.Params{Layout: layout, Flat: k.params}); err != nil {
			return err
		}
		t.report.Snapshots = append(t.report.Snapshots, k)
	}
	t.kept = nil
	return nil
}

// layout is that of the job's model.
func (t *trial) layout() (*trivium.Layout, error) {
	m, err := buildModel(t.env.Models, t.job.Model, t.env.Splits.Train.Schema(), t.env.CPU)
	if err != nil {
		return nil, err
	}
	return m.Layout(), nil
}

// writeParams writes p as safetensors. A trial's are synchronised once it is known which of them stay: see tidy.
func writeParams(path string, p trivium.Params) error {
	var list []checkpoint.Tensor
	for i := range p.Layout.Tensors() {
		s := p.Layout.Spec(i)
		if s.Tie != "" {
			continue
		}
		list = append(list, checkpoint.Tensor{Name: s.Name, DType: "F32", Shape: s.Shape, Float32: p.Tensor(i)})
	}
	return writeWhole(path, func(f *os.File) error { return checkpoint.WriteSafetensors(f, list, nil) })
}
