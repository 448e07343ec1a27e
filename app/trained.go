package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/internal/nearest"
	"github.com/trivium-ml/trivium/observe/host"
	"github.com/trivium-ml/trivium/tensor"
)

// checkpointsDir is the folder of a run directory that holds the checkpoints.
const checkpointsDir = "checkpoints"

// trainedFlags name a trained model.
type trainedFlags struct {
	Name       string `arg:"" name:"run" help:"A run: its folder, its name, the beginning of its name, or last."`
	Out        string `default:"runs" placeholder:"DIR" help:"Where the runs are (default runs)."`
	Checkpoint string `placeholder:"NAME" help:"A checkpoint of the run; else the newest."`
	Threads    amount `placeholder:"N" help:"Threads (default: one a core)."`
}

// A trained is a model with the parameters and the transform of a checkpoint.
type trained struct {
	saved     *checkpoint.Checkpoint
	name      string // of the checkpoint, with its folder
	model     trivium.Model
	predictor trivium.Predictor // nil: the model makes no predictions
	transform *data.Transform   // nil: the checkpoint has none
	cpu       *tensor.CPU
	splits    *data.Splits // that sets opened
}

// load opens the model that f names. The caller closes it.
func (f *trainedFlags) load(ctx context.Context, s *session) (*trained, error) {
	if err := checkThreads(f.Threads); err != nil {
		return nil, misused(err)
	}
	r, err := s.findTrained(f.Out, f.Name)
	if err != nil {
		return nil, err
	}
	saved, name, err := loadCheckpoint(ctx, filepath.Join(r.Dir, checkpointsDir), f.Checkpoint)
	if err != nil {
		return nil, takeEarlier(err)
	}
	t := &trained{saved: saved, name: name}
	if len(saved.Transform) > 0 {
		if t.transform, err = data.DecodeTransform(saved.Transform); err != nil {
			return nil, misused(fmt.Errorf("%s: %w", name, err))
		}
	}
	if err := s.checkModel(saved.Job.Model); err != nil {
		return nil, misused(fmt.Errorf("%s: %w; the program that trained it had it", name, err))
	}
	t.cpu = tensor.NewCPU(int(f.Threads), saved.Job.Exact)
	if err := t.build(s); err != nil {
		t.cpu.Close()
		return nil, misused(fmt.Errorf("%s: %w", name, err))
	}
	return t, nil
}

func (t *trained) build(s *session) (err error) {
	if t.model, err = s.models.Build(t.saved.Job.Model, t.saved.Schema, t.cpu); err != nil {
		return err
	}
	if err := t.saved.Fits(t.model.Layout()); err != nil {
		return err
	}
	t.saved.Params.Layout = t.model.Layout()
	t.predictor, _ = t.model.(trivium.Predictor)
	return nil
}

// predicts refuses a model that makes no predictions: all but its parameters is made of them.
func (t *trained) predicts() error {
	if t.predictor == nil {
		return misusedf("%s: model %q makes no predictions: it is no trivium.Predictor", t.name, t.saved.Job.Model)
	}
	return nil
}

func (t *trained) close() {
	t.cpu.Close()
	if t.splits != nil {
		_ = t.splits.Close() // they were only read
	}
}

// loadCheckpoint loads the named checkpoint of a folder, or the newest. The name that it returns has the folder.
func loadCheckpoint(ctx context.Context, dir, name string) (*checkpoint.Checkpoint, string, error) {
	store := blob.Dir(dir)
	var c *checkpoint.Checkpoint
	var err error
	if name == "" {
		if c, name, err = checkpoint.Latest(ctx, store); errors.Is(err, fs.ErrNotExist) {
			return nil, "", misusedf("checkpoint: %s holds none: the run was deleted, or ended before its first", dir)
		}
	} else if names, e := checkpoint.List(ctx, store); e == nil && !slices.Contains(names, name) {
		return nil, "", misusedf("checkpoint: in %s no checkpoint is called %q; %s", dir, name, nearest.Sentence(name, names))
	} else {
		c, err = checkpoint.Load(ctx, store, name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", misusedf("checkpoint: %s: %w", dir, err)
	}
	if err != nil {
		return nil, "", misused(fmt.Errorf("%s: %w", dir, err))
	}
	return c, filepath.Join(dir, name), nil
}

// takeEarlier adds to the error of a damaged checkpoint how to take the one before it.
func takeEarlier(err error) error {
	if c, ok := errors.AsType[*checkpoint.CorruptError](err); ok && c.Previous != "" {
		return misusedf("%w: take it by --checkpoint %s", err, c.Previous)
	}
	return err
}

// open opens the data that d describes.
func (s *session) open(ctx context.Context, d trivium.Data, o data.Options) (*data.Splits, error) {
	o.Sources, o.Budget = s.sources, s.memoryForRows()
	splits, err := data.Open(ctx, d, o)
	if err != nil && ctx.Err() != nil {
		return nil, &codedError{Interrupted, errors.New("interrupted while the data was read")}
	}
	return splits, s.asInputOf(d.Source, err)
}

// memoryForRows is data.Options' Budget: by what this machine has, so that a file that does not fit is streamed, and does not end the process.
func (s *session) memoryForRows() int64 {
	if s.budget > 0 {
		return s.budget
	}
	facts, _ := host.Describe(host.Options{}) // what could not be read is zero
	return data.BudgetOf(facts.Memory())
}

// predictRows are scored at a time: enough to fill the kernels, few enough to stay in the cache.
const predictRows = 256

// score walks ds in index order and calls f with each batch and its scores, which are valid during the call.
func (t *trained) score(ctx context.Context, ds data.Dataset, ids bool, f func(b *trivium.Batch, scores []float32) error) error {
	width := t.predictor.Outputs().Width
	scores := make([]float32, predictRows*width)
	for b, err := range data.Batches(ctx, ds, data.BatchOptions{Batch: predictRows, IDs: ids}) {
		if err != nil {
			return asInput(err)
		}
		if err := t.predictor.Predict(ctx, t.saved.Params, *b, scores[:b.Rows*width]); err != nil {
			return misused(err)
		}
		if err := f(b, scores[:b.Rows*width]); err != nil {
			return err
		}
	}
	return nil
}

// asInputOf is asInput for opening a source: all that one of the program's own returns is a mistake in the data.
func (s *session) asInputOf(source string, err error) error {
	if _, own := s.sources[source]; own {
		return misused(err)
	}
	return asInput(err)
}

// asInput marks mistakes in the data as the user's to mend.
func asInput(err error) error {
	var mistake *data.Error
	if errors.As(err, &mistake) {
		return misused(err)
	}
	return err
}
