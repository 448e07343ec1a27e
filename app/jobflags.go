package app

import (
	"maps"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium"
)

// dataFlags describe data; the verbs that read data share them. A nil field was not given; a list may be given in parts.
type dataFlags struct {
	Data    *string  `short:"d" group:"Data" placeholder:"PATH" help:"A file, a folder, a URL, or a generator by name (help data); train's default: generated digits."`
	Format  *string  `group:"Data" placeholder:"NAME" help:"idx, csv, libsvm, jsonl, npy or parquet; else by the file's name."`
	Rows    *integer `group:"Data" placeholder:"N" help:"Training rows that a generator makes."`
	Columns *count   `group:"Data" placeholder:"N" help:"Declared width of sparse rows; an index beyond it is an error."`
	Classes *count   `group:"Data" placeholder:"N" help:"Declared number of classes, for labels that are numbers from 0: one outside is an error."`

	Label       *string  `group:"Tables" placeholder:"COL" help:"Column to predict; else 'label', else the first."`
	Drop        []string `group:"Tables" placeholder:"COL" help:"Columns to leave out; the comma of a name is \\,."`
	Categorical []string `group:"Tables" placeholder:"COL" help:"Columns whose values are names: one-hot, or hashed with --hash."`
	Hash        *count   `group:"Tables" placeholder:"N" help:"Hash categorical columns into N buckets, such as 2^20."`
	Missing     *string  `group:"Tables" placeholder:"HOW" help:"What an empty cell means: error (default), mean, zero, or drop the row."`
	Scale       *string  `group:"Tables" placeholder:"HOW" help:"none (default), standard (mean 0, deviation 1) or minmax (0 to 1), fitted on the training rows."`
	Weight      *string  `group:"Tables" placeholder:"COL" help:"Column of sample weights."`
	ClassWeight *string  `group:"Tables" placeholder:"W" help:"balanced, or CLASS=WEIGHT,...: weights by class."`
}

// splitFlags say which rows are for what.
type splitFlags struct {
	Train *string `group:"Data" placeholder:"ROWS" help:"Training rows: a file, a range such as 0:8000, or a fraction such as 0.8."`
	Valid *string `group:"Data" placeholder:"ROWS" help:"Rows to validate on while training, likewise."`
	Test  *string `group:"Data" placeholder:"ROWS" help:"Rows to test on, likewise."`
}

// jobFlags are the fields of a job that train takes on the command line.
type jobFlags struct {
	dataFlags
	splitFlags

	Batch     *rowCount `short:"b" group:"Training" placeholder:"N|full" help:"Rows per update, or full for all."`
	Last      *string   `group:"Training" placeholder:"keep|drop" help:"What becomes of an epoch's short last update."`
	Epochs    *integer  `short:"e" group:"Training" placeholder:"N" help:"Passes over the training rows; 0: as many as --steps needs, and without it none: the initial model is saved."`
	Steps     *integer  `group:"Training" placeholder:"N" help:"Stop after this many updates, if before the epochs."`
	Order     *string   `group:"Training" placeholder:"HOW" help:"Order of an epoch: shuffle (default) or index."`
	Seed      *uint64   `group:"Training" placeholder:"N" help:"Of initial weights and order (default 42)."`
	Exact     *bool     `group:"Training" negatable:"" help:"The same bits on every machine, for every number of threads and workers (help exact)."`
	Shards    *integer  `group:"Training" placeholder:"N" help:"Virtual shards of an update in exact mode (default 16)."`
	EvalEvery *integer  `group:"Training" placeholder:"N" help:"Evaluate every N updates; else once an epoch."`
	Metrics   []string  `group:"Training" placeholder:"NAME" help:"What to measure beside the loss; else what suits the task."`

	Optimizer *string    `short:"o" group:"Optimizer" placeholder:"NAME" help:"${optimizers}."`
	Rate      *float64   `short:"r" group:"Optimizer" placeholder:"X" help:"Learning rate."`
	Schedule  *string    `group:"Optimizer" placeholder:"RULE" help:"How the rate changes, such as cosine:1000 or step:100,0.1 (help optimizers)."`
	Set       parameters `group:"Optimizer" placeholder:"KEY=X" help:"Other parameters of the optimizer, such as beta1=0.9;beta2=0.99."`
	L1        *float64   `name:"l1" group:"Optimizer" placeholder:"X" help:"L1 regularisation."`
	L2        *float64   `name:"l2" group:"Optimizer" placeholder:"X" help:"L2 regularisation."`
	Decay     *float64   `group:"Optimizer" placeholder:"X" help:"Decoupled weight decay."`
	ClipValue *float64   `group:"Optimizer" placeholder:"X" help:"Clip each cell of the gradient to -X..X."`
	ClipNorm  *float64   `group:"Optimizer" placeholder:"X" help:"Scale the gradient down to this norm."`

	StopMetric *string  `group:"Early stop" placeholder:"NAME" help:"Metric that decides, such as valid.auc."`
	Patience   *integer `group:"Early stop" placeholder:"N" help:"Stop after N evaluations without progress."`
	MinDelta   *float64 `group:"Early stop" placeholder:"X" help:"What counts as progress."`
	Target     *string  `group:"Early stop" placeholder:"COND" help:"Stop once the metric is there, such as '>= 0.9'."`
}

// given collects the dotted names of the job's fields that somebody set.
type given map[string]bool

// put sets *dst where the flag src was given, and notes the field.
func put[D, S any](g given, field string, dst *D, src *S, convert func(S) D) {
	if src != nil {
		*dst = convert(*src)
		g[field] = true
	}
}

func same[T any](x T) T { return x }

// notNil is the flag that may be repeated, if it was given.
func notNil(list []string) *[]string {
	if list == nil {
		return nil
	}
	return &list
}

func (f *dataFlags) apply(d *trivium.Data, g given) {
	put(g, "data.source", &d.Source, f.Data, same)
	put(g, "data.format", &d.Format, f.Format, same)
	put(g, "data.rows", &d.Rows, f.Rows, func(n integer) int64 { return int64(n) })
	put(g, "data.columns", &d.Columns, f.Columns, func(c count) int { return int(c) })
	put(g, "data.classes", &d.Classes, f.Classes, func(c count) int { return int(c) })
	put(g, "data.label", &d.Label, f.Label, same)
	put(g, "data.drop", &d.Drop, notNil(f.Drop), same)
	put(g, "data.categorical", &d.Categorical, notNil(f.Categorical), same)
	put(g, "data.hash", &d.Hash, f.Hash, func(c count) int { return int(c) })
	put(g, "data.missing", &d.Missing, f.Missing, same)
	put(g, "data.scale", &d.Scale, f.Scale, same)
	put(g, "data.weight", &d.Weight, f.Weight, same)
	put(g, "data.class_weight", &d.ClassWeight, f.ClassWeight, same)
}

func (f *splitFlags) apply(d *trivium.Data, g given) {
	put(g, "data.train", &d.Train, f.Train, same)
	put(g, "data.valid", &d.Valid, f.Valid, same)
	put(g, "data.test", &d.Test, f.Test, same)
}

func (f *jobFlags) apply(j *trivium.Job, g given) {
	f.dataFlags.apply(&j.Data, g)
	f.splitFlags.apply(&j.Data, g)
	put(g, "data.order", &j.Data.Order, f.Order, same)
	put(g, "batch", &j.Batch, f.Batch, func(r rowCount) int { return int(r) })
	put(g, "last", &j.Last, f.Last, func(s string) trivium.LastPolicy { return trivium.LastPolicy(s) })
	put(g, "epochs", &j.Epochs, f.Epochs, func(n integer) int { return int(n) })
	put(g, "steps", &j.Steps, f.Steps, func(n integer) int64 { return int64(n) })
	put(g, "seed", &j.Seed, f.Seed, same)
	put(g, "exact", &j.Exact, f.Exact, same)
	put(g, "shards", &j.Shards, f.Shards, func(n integer) int { return int(n) })
	put(g, "eval_every", &j.EvalEvery, f.EvalEvery, func(n integer) int64 { return int64(n) })
	put(g, "metrics", &j.Metrics, notNil(f.Metrics), same)
	put(g, "optimizer.name", &j.Optimizer.Name, f.Optimizer, same)
	put(g, "optimizer.rate", &j.Optimizer.Rate, f.Rate, same)
	put(g, "optimizer.schedule", &j.Optimizer.Schedule, f.Schedule, same)
	if f.Set != nil {
		params := map[string]float64{}
		maps.Copy(params, j.Optimizer.Params)
		maps.Copy(params, f.Set)
		j.Optimizer.Params = params
		g["optimizer.params"] = true
	}
	put(g, "optimizer.l1", &j.Optimizer.L1, f.L1, same)
	put(g, "optimizer.l2", &j.Optimizer.L2, f.L2, same)
	put(g, "optimizer.decay", &j.Optimizer.Decay, f.Decay, same)
	put(g, "optimizer.clip_value", &j.Optimizer.ClipValue, f.ClipValue, same)
	put(g, "optimizer.clip_norm", &j.Optimizer.ClipNorm, f.ClipNorm, same)
	put(g, "stop.metric", &j.Stop.Metric, f.StopMetric, same)
	put(g, "stop.patience", &j.Stop.Patience, f.Patience, func(n integer) int { return int(n) })
	put(g, "stop.min_delta", &j.Stop.MinDelta, f.MinDelta, same)
	put(g, "stop.target", &j.Stop.Target, f.Target, same)
}

// optimizing are the flags that are given of those about the optimizer, in the order of their names.
func (f *jobFlags) optimizing() (flags []string) {
	g := given{}
	f.apply(new(trivium.Job), g)
	for field := range g {
		switch name, ok := strings.CutPrefix(field, "optimizer."); {
		case ok && name == "name":
			flags = append(flags, "--optimizer")
		case ok && name == "params":
			flags = append(flags, "--set")
		case ok:
			flags = append(flags, "--"+strings.ReplaceAll(name, "_", "-"))
		}
	}
	slices.Sort(flags)
	return flags
}
