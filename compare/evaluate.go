package compare

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/metric"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
)

// buildModel builds the model that a job names.
func buildModel(models nn.Models, name string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
	if models == nil {
		models = nn.Standard()
	}
	return models.Build(name, s, cpu)
}

// An evaluator measures saved parameters: one program for all rows, outside of every clock.
type evaluator struct {
	task   Task
	host   Host
	cpu    *tensor.CPU
	splits *data.Splits
	model  trivium.Model
	scores *train.Evaluator // the loss and the target's metric; nil: the model has a loss alone
	seen   map[seenAt]float64
}

// A seenAt is what was measured at parameters: those of deterministic rows are the same, bit for bit, in every repeat.
type seenAt struct {
	params [sha256.Size]byte
	split  string
	metric string
}

// at names a measurement.
func at(p trivium.Params, split, metric string) seenAt {
	h := sha256.New()
	_ = writeFloats(h, p.Flat) // a hash takes everything
	return seenAt{[sha256.Size]byte(h.Sum(nil)), split, metric}
}

// openEvaluator reads the task's data and builds its model.
func openEvaluator(ctx context.Context, t Task, h Host) (_ *evaluator, err error) {
	e := &evaluator{task: t, host: h, cpu: tensor.NewCPU(0, t.Job.Exact), seen: map[seenAt]float64{}}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	if e.splits, err = train.OpenData(ctx, train.Env{Sources: h.Sources}, &e.task.Job); err != nil {
		return nil, err
	}
	if e.model, err = buildModel(h.Models, t.Job.Model, e.splits.Schema(), e.cpu); err != nil {
		return nil, &PlanError{fmt.Errorf("compare: %w", err)}
	}
	if ds := e.split(t.Target.Split); ds == nil || ds.Rows() == 0 {
		return nil, &PlanError{
			fmt.Errorf("compare: the target is %v, but the data has no %s split (job.yaml: data.%s names one)", t.Target, t.Target.Split, t.Target.Split),
		}
	}
	names := []string{t.Target.Metric}
	switch p, ok := e.model.(trivium.Predictor); {
	case t.Target.Metric == "loss" && !ok: // which asks for no predictions
		return e, nil
	case t.Target.Metric == "loss":
		names = metric.Default(p.Outputs())[:1]
	case !ok:
		return nil, &PlanError{fmt.Errorf("compare: model %s, target %v: the model makes no predictions (it is no trivium.Predictor), so nothing but its loss is known: give a target such as '%s.loss <= 0.3'", t.Job.Model, t.Target, t.Target.Split)}
	}
	if e.scores, err = train.NewEvaluator(e.model, h.Metrics, names, 0); err != nil {
		return nil, &PlanError{fmt.Errorf("compare: model %s, target %v: %w", t.Job.Model, t.Target, err)}
	}
	return e, nil
}

func (e *evaluator) close() {
	if e.splits != nil {
		_ = e.splits.Close() // it was only read
	}
	e.cpu.Close()
}

func (e *evaluator) split(name string) data.Dataset {
	switch name {
	case "train":
		return e.splits.Train
	case "valid":
		return e.splits.Valid
	}
	return e.splits.Test
}

// rows is how many there are to train on.
func (e *evaluator) rows() int64 { return e.splits.Train.Rows() }

// value is the target's metric at p.
func (e *evaluator) value(ctx context.Context, p trivium.Params, t Target) (float64, error) {
	return e.measured(ctx, p, t.Split, t.Metric)
}

// loss is that of the training rows.
func (e *evaluator) loss(ctx context.Context, p trivium.Params) (float64, error) {
	return e.measured(ctx, p, "train", "loss")
}

func (e *evaluator) measured(ctx context.Context, p trivium.Params, split, name string) (float64, error) {
	key := at(p, split, name)
	if x, ok := e.seen[key]; ok {
		return x, nil
	}
	if e.scores == nil {
		x, err := e.lossAlone(ctx, p, e.split(split))
		if err == nil {
			e.seen[key] = x
		}
		return x, err
	}
	s, err := e.scores.Evaluate(ctx, p, e.split(split))
	if err != nil {
		return 0, err
	}
	e.seen[seenAt{key.params, split, "loss"}] = s.Loss
	for _, m := range s.Metrics {
		e.seen[seenAt{key.params, split, m.Name()}] = m.Value()
	}
	x, ok := e.seen[key]
	if !ok {
		return 0, fmt.Errorf("compare: nothing measures %s", name)
	}
	return x, nil
}

// lossAlone is the mean loss at p of a model that makes no predictions: what its gradients say of it.
func (e *evaluator) lossAlone(ctx context.Context, p trivium.Params, ds data.Dataset) (float64, error) {
	g := trivium.NewGradient(e.model.Layout())
	var loss, weight float64
	for b, err := range data.Batches(ctx, ds, data.BatchOptions{Batch: lossBatch}) {
		if err != nil {
			return 0, err
		}
		g.Zero()
		sum, of, err := e.model.Grad(ctx, p, *b, g, nil)
		if err != nil {
			return 0, err
		}
		loss, weight = loss+sum, weight+of
	}
	return loss / weight, nil
}

// lossBatch bounds the memory of a look at the loss, as train's evaluator does.
const lossBatch = 256

// read reads saved parameters: safetensors with the names and shapes of the model.
func (e *evaluator) read(path string) (trivium.Params, error) {
	p := trivium.NewParams(e.model.Layout())
	raw, err := os.ReadFile(path)
	if err != nil {
		return p, err
	}
	tensors, _, err := checkpoint.ReadSafetensors(raw)
	if err != nil {
		return p, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	for i := range p.Layout.Tensors() {
		s := p.Layout.Spec(i)
		if s.Tie != "" {
			continue
		}
		k := slices.IndexFunc(tensors, func(t checkpoint.Tensor) bool { return t.Name == s.Name })
		if k < 0 {
			return p, fmt.Errorf("%s: it has no tensor %q", filepath.Base(path), s.Name)
		}
		to := p.Tensor(i)
		if len(tensors[k].Float32) != len(to) {
			return p, fmt.Errorf("%s: tensor %q is %s%v, want F32%v", filepath.Base(path), s.Name, tensors[k].DType, tensors[k].Shape, s.Shape)
		}
		copy(to, tensors[k].Float32)
	}
	return p, nil
}

// writeInit writes the initial parameters, which peers begin with.
func (e *evaluator) writeInit(path string) error {
	p := trivium.NewParams(e.model.Layout())
	e.model.Init(e.task.Job.Seed, p)
	return writeParams(path, p)
}

// perEpoch is the number of updates of an epoch.
func (e *evaluator) perEpoch(batch int) int64 {
	if batch == trivium.FullBatch {
		return 1
	}
	n := e.rows() / int64(batch)
	if e.task.Job.Last != trivium.LastDrop && e.rows()%int64(batch) > 0 {
		n++
	}
	return max(1, n)
}

// A reference is what local does at one effective batch: the losses that synchronous rows must have, and how long the way is.
type reference struct {
	Batch    int               `json:"batch"`
	Reached  bool              `json:"reached"`
	Updates  int64             `json:"updates"`            // to the target; else those within which it counts
	Value    float64           `json:"value"`              // of the target's metric there
	Seconds  float64           `json:"seconds"`            // that it took, on all cores
	Checksum string            `json:"checksum,omitempty"` // of the data
	Losses   map[int64]float64 `json:"-"`                  // of the training rows, by update
}

// grain is the number of updates between two places where parameters may be kept: ten places an epoch, or every fifth full update.
func (e *evaluator) grain(batch int) int64 {
	if batch == trivium.FullBatch {
		return 5
	}
	return max(1, e.perEpoch(batch)/10)
}

// places are the updates up to last after which parameters are kept: as dense as the grain, but at most as many as most. Those of local
// SGD fall on its averages.
func (e *evaluator) places(batch int, last, every int64, most int) []int64 {
	step := max(1, min(e.grain(batch), last))
	step *= max(1, (last/step+int64(most)-1)/int64(most))
	if every > 1 {
		step = (step + every - 1) / every * every
	}
	var list []int64
	for u := step; u <= last && len(list) < most; u += step {
		list = append(list, u)
	}
	return list
}

// with adds an update to places.
func with(places []int64, u int64) []int64 {
	i, there := slices.BinarySearch(places, u)
	if there || u < 1 {
		return places
	}
	return slices.Insert(places, i, u)
}

// proofs are those of places at which losses are compared.
func proofs(places []int64) []int64 {
	var list []int64
	for i := range min(len(places), proofPoints) {
		list = append(list, places[(i+1)*len(places)/min(len(places), proofPoints)-1])
	}
	return list
}

const proofPoints = 12

// refer trains local in this process, at that effective batch, until the target is met.
func (e *evaluator) refer(ctx context.Context, t Task, batch int) (reference, error) {
	r := reference{Batch: batch, Updates: t.within(e.perEpoch(batch)), Losses: map[int64]float64{}}
	grain := e.grain(batch)
	began := time.Now()
	var looking time.Duration
	err := e.follow(ctx, t, batch, r.Updates, func(p trivium.Params, step int64) (more bool, err error) {
		if step%grain != 0 && step != r.Updates { // at the last too, which may be the only one
			return true, nil
		}
		at := time.Now()
		defer func() { looking += time.Since(at) }()
		if r.Value, err = e.value(ctx, p, t.Target); err != nil {
			return false, err
		}
		if r.Reached = t.Target.Met(r.Value); r.Reached {
			r.Updates = step
		}
		return !r.Reached, nil
	})
	if d, ok := errors.AsType[*trivium.DivergedError](err); ok { // a row that computes the same will say so too; others may go on
		r.Updates, err = max(grain, d.Step), nil
	}
	r.Checksum = fmt.Sprint(e.splits.Checksum)
	r.Value, r.Seconds = orZero(r.Value), (time.Since(began) - looking).Seconds()
	return r, err
}

// losses adds to r the losses at those updates: NaN from where local diverges on.
func (e *evaluator) losses(ctx context.Context, t Task, r *reference, at []int64) error {
	missing := map[int64]bool{}
	var last int64
	for _, u := range at {
		if _, ok := r.Losses[u]; !ok {
			missing[u], last = true, max(last, u)
		}
	}
	if last == 0 {
		return nil
	}
	err := e.follow(ctx, t, r.Batch, last, func(p trivium.Params, step int64) (bool, error) {
		if !missing[step] {
			return true, nil
		}
		loss, err := e.loss(ctx, p)
		r.Losses[step] = loss
		return true, err
	})
	if _, ok := errors.AsType[*trivium.DivergedError](err); !ok {
		return err
	}
	for u := range missing {
		if _, ok := r.Losses[u]; !ok {
			r.Losses[u] = math.NaN()
		}
	}
	return nil
}

// follow trains local for so many updates, or until look, which is called after each, wants no more.
func (e *evaluator) follow(ctx context.Context, t Task, batch int, updates int64, look func(p trivium.Params, step int64) (bool, error)) error {
	job := t.Job
	job.Batch, job.Steps, job.Epochs, job.Stop, job.EvalEvery = batch, updates, 0, trivium.EarlyStop{}, 0
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	env := train.Env{
		CPU: e.cpu, Models: e.host.Models, Optimizers: e.host.Optimizers, Metrics: e.host.Metrics, AtEnd: true,
		Splits: &data.Splits{Train: e.splits.Train, Transform: e.splits.Transform, Checksum: e.splits.Checksum},
	}
	var failed error
	env.Between.After = func(ctx context.Context, step int64, latest func(context.Context) (trivium.Params, error)) error {
		p, err := latest(ctx)
		if err != nil {
			return err
		}
		more, err := look(p, step)
		if err != nil || !more {
			failed = err
			cancel()
		}
		return nil
	}
	_, err := local.New(env, local.Options{}).Train(stop, &job)
	if stop.Err() != nil {
		err = nil
	}
	if err = errors.Join(err, failed, ctx.Err()); err != nil {
		return fmt.Errorf("compare: local at batch %s: %w", Batch(batch), err)
	}
	return nil
}
