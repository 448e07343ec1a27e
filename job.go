package trivium

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// JobVersion is the version of Job that this package reads and writes. It rises when a field changes its meaning.
const JobVersion = 1

// FullBatch as a Job's Batch makes every update from all training rows.
const FullBatch = -1

// A Job says what to train: a plain value that names model, data and optimizer, and no topology. Two processes with equal jobs (Hash
// says so) compute the same thing; the zero value of each field is its default.
type Job struct {
	Version int    `json:"version" yaml:"version"`
	Model   string `json:"model" yaml:"model"` // a name and its arguments, such as "mlp:128,32"
	Data    Data   `json:"data" yaml:"data"`

	Batch  int        `json:"batch" yaml:"batch"` // rows per update; under asynchronous modes, per round of all workers; FullBatch: all
	Last   LastPolicy `json:"last,omitempty" yaml:"last,omitempty"`
	Epochs int        `json:"epochs" yaml:"epochs"`                   // passes over the rows; 0: as many as Steps needs, and without those none
	Steps  int64      `json:"steps,omitempty" yaml:"steps,omitempty"` // stop after this many updates, if before the epochs; 0: no such bound

	Optimizer OptimizerSpec `json:"optimizer" yaml:"optimizer"`
	Metrics   []string      `json:"metrics,omitempty" yaml:"metrics,omitempty"` // beside the loss; empty: what suits the task
	Stop      EarlyStop     `json:"stop,omitzero" yaml:"stop,omitempty"`
	EvalEvery int64         `json:"eval_every,omitempty" yaml:"eval_every,omitempty"` // updates; 0: once an epoch

	Seed   uint64 `json:"seed" yaml:"seed"`
	Exact  bool   `json:"exact,omitempty" yaml:"exact,omitempty"`   // the same bits for every topology and worker count
	Shards int    `json:"shards,omitempty" yaml:"shards,omitempty"` // virtual shards of an update in exact mode; 0: DefaultShards
}

// DefaultShards is the number of virtual shards of an update in exact mode, and so the largest number of workers that share it evenly.
const DefaultShards = 16

// A LastPolicy says what becomes of an epoch's short last update.
type LastPolicy string

const (
	LastKeep LastPolicy = "keep" // the default: it is averaged over its own rows
	LastDrop LastPolicy = "drop"
)

// Data describes where examples come from and how a table becomes numbers.
type Data struct {
	Source string `json:"source" yaml:"source"`                     // a generator's name, or a file, folder or URL; empty: generated digits
	Format string `json:"format,omitempty" yaml:"format,omitempty"` // idx, csv, libsvm, jsonl, npy, parquet; empty: by the file's name

	// Each split is a file, a row range such as "0:8000", or a fraction such as "0.8"; empty: the source's own convention.
	Train string `json:"train,omitempty" yaml:"train,omitempty"`
	Valid string `json:"valid,omitempty" yaml:"valid,omitempty"`
	Test  string `json:"test,omitempty" yaml:"test,omitempty"`

	Rows    int64 `json:"rows,omitempty" yaml:"rows,omitempty"`       // of a generator; 0: its convention
	Columns int   `json:"columns,omitempty" yaml:"columns,omitempty"` // declared width of sparse rows; 0: the largest index seen
	Classes int   `json:"classes,omitempty" yaml:"classes,omitempty"` // declared number of classes; 0: as many as are seen

	Label       string   `json:"label,omitempty" yaml:"label,omitempty"`             // column; empty: "label", else the first
	Drop        []string `json:"drop,omitempty" yaml:"drop,omitempty"`               // columns
	Categorical []string `json:"categorical,omitempty" yaml:"categorical,omitempty"` // columns, one-hot unless hashed
	Hash        int      `json:"hash,omitempty" yaml:"hash,omitempty"`               // buckets for categorical columns; 0: one-hot
	Missing     string   `json:"missing,omitempty" yaml:"missing,omitempty"`         // error (default), mean, zero, drop
	Scale       string   `json:"scale,omitempty" yaml:"scale,omitempty"`             // none (default), standard, minmax
	Weight      string   `json:"weight,omitempty" yaml:"weight,omitempty"`           // column of sample weights
	ClassWeight string   `json:"class_weight,omitempty" yaml:"class_weight,omitempty"`

	Order string `json:"order,omitempty" yaml:"order,omitempty"` // shuffle (default) or index
}

// An OptimizerSpec names an optimizer with its schedule and regularisation.
type OptimizerSpec struct {
	Name      string             `json:"name" yaml:"name"`
	Rate      float64            `json:"rate" yaml:"rate"`
	Schedule  string             `json:"schedule,omitempty" yaml:"schedule,omitempty"` // such as "cosine:1000" or "step:100,0.1"; empty: constant
	Params    map[string]float64 `json:"params,omitempty" yaml:"params,omitempty"`     // momentum, beta1, beta2, epsilon, …
	L1        float64            `json:"l1,omitempty" yaml:"l1,omitempty"`
	L2        float64            `json:"l2,omitempty" yaml:"l2,omitempty"`
	Decay     float64            `json:"decay,omitempty" yaml:"decay,omitempty"` // decoupled weight decay; 0: none, and of adamw 0.01
	ClipValue float64            `json:"clip_value,omitempty" yaml:"clip_value,omitempty"`
	ClipNorm  float64            `json:"clip_norm,omitempty" yaml:"clip_norm,omitempty"`
}

// EarlyStop ends a job before its epochs do.
type EarlyStop struct {
	Metric   string  `json:"metric,omitempty" yaml:"metric,omitempty"`       // split.metric, such as "valid.auc"; empty: never stop early
	Patience int     `json:"patience,omitempty" yaml:"patience,omitempty"`   // evaluations without progress; 0: no such bound
	MinDelta float64 `json:"min_delta,omitempty" yaml:"min_delta,omitempty"` // what counts as progress
	Target   string  `json:"target,omitempty" yaml:"target,omitempty"`       // such as ">= 0.9": stop once Metric is there
}

// Shard returns the rows [from, to) of an update of rows rows that virtual shard v of job j owns: ⌊v·rows/V⌋ to ⌊(v+1)·rows/V⌋.
func (j *Job) Shard(v, rows int) (from, to int) {
	n := j.VirtualShards()
	return v * rows / n, (v + 1) * rows / n
}

// VirtualShards returns the number of virtual shards of an update.
func (j *Job) VirtualShards() int {
	if j.Shards == 0 {
		return DefaultShards
	}
	return j.Shards
}

// Validate reports every mistake that can be seen without the model and the data, joined.
func (j *Job) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("job: "+format, args...))
		}
	}
	check(j.Version == JobVersion, "version: this program reads version %d, found %d", JobVersion, j.Version)
	check(j.Model != "", "model: none is named")
	check(j.Batch >= 1 || j.Batch == FullBatch, "batch: want at least 1 row, or full; found %d", j.Batch)
	check(j.Last == "" || j.Last == LastKeep || j.Last == LastDrop, "last: want keep or drop, found %q", j.Last)
	check(j.Epochs >= 0, "epochs: want 0 or more, found %d", j.Epochs)
	check(j.Steps >= 0, "steps: want 0 or more, found %d", j.Steps)
	check(j.EvalEvery >= 0, "eval_every: want 0 or more, found %d", j.EvalEvery)
	check(j.Shards >= 0 && j.Shards <= 1<<16, "shards: want 1 to %d, found %d", 1<<16, j.Shards)
	check(j.Stop.Patience >= 0, "stop.patience: want 0 or more, found %d", j.Stop.Patience)
	check(j.Stop.Metric != "" || j.Stop == EarlyStop{}, "stop.metric: none is named, such as valid.auc, and the rest of an early stop is about one (--stop-metric)")
	check(j.Stop.MinDelta >= 0 && j.Stop.MinDelta <= math.MaxFloat64, "stop.min_delta: want a number of 0 or more, found %v", j.Stop.MinDelta)
	errs = append(errs, j.Data.validate()...)
	errs = append(errs, j.Optimizer.validate()...)
	return errors.Join(errs...)
}

func (d *Data) validate() (errs []error) {
	among := func(field, value string, allowed ...string) {
		if value == "" {
			return
		}
		for _, a := range allowed {
			if value == a {
				return
			}
		}
		errs = append(errs, fmt.Errorf("job: data.%s: want one of %v, found %q", field, allowed, value))
	}
	among("format", d.Format, "idx", "csv", "libsvm", "jsonl", "npy", "parquet")
	among("missing", d.Missing, "error", "mean", "zero", "drop")
	among("scale", d.Scale, "none", "standard", "minmax")
	among("order", d.Order, "shuffle", "index")
	for _, f := range []struct {
		name  string
		value int64
	}{{"rows", d.Rows}, {"columns", int64(d.Columns)}, {"classes", int64(d.Classes)}, {"hash", int64(d.Hash)}} {
		switch {
		case f.name == "rows" && f.value < 0:
			errs = append(errs, fmt.Errorf("job: data.rows: want 0 or more, found %d", f.value))
		case f.name != "rows" && (f.value < 0 || f.value > math.MaxInt32):
			errs = append(errs, fmt.Errorf("job: data.%s: want 0 to %d, found %d", f.name, math.MaxInt32, f.value))
		}
	}
	return errs
}

func (o *OptimizerSpec) validate() (errs []error) {
	for _, f := range []struct {
		name  string
		value float64
	}{{"rate", o.Rate}, {"l1", o.L1}, {"l2", o.L2}, {"decay", o.Decay}, {"clip_value", o.ClipValue}, {"clip_norm", o.ClipNorm}} {
		if !(f.value >= 0 && f.value <= math.MaxFloat64) {
			errs = append(errs, fmt.Errorf("job: optimizer.%s: want a number of 0 or more, found %v", f.name, f.value))
		}
	}
	for name, v := range o.Params {
		if !(math.Abs(v) <= math.MaxFloat64) {
			errs = append(errs, fmt.Errorf("job: optimizer.params.%s: want a finite number, found %v", name, v))
		}
	}
	return errs
}

// Encode returns the canonical encoding of j: JSON with the fields in the order of the struct, maps sorted by key, and fields that
// have their default left out where their tag says so. Equal jobs give equal bytes.
func (j *Job) Encode() ([]byte, error) { return json.Marshal(j) }

// DecodeJob reads what Encode wrote. Unknown fields, anything after the value, and another version are errors.
func DecodeJob(p []byte) (*Job, error) {
	d := json.NewDecoder(bytes.NewReader(p))
	d.DisallowUnknownFields()
	var j Job
	if err := d.Decode(&j); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("job: something follows the job at byte %d", d.InputOffset())
	}
	if j.Version != JobVersion {
		return nil, fmt.Errorf("job: version: this program reads version %d, found %d", JobVersion, j.Version)
	}
	for _, list := range []*[]string{&j.Metrics, &j.Data.Drop, &j.Data.Categorical} { // as Encode leaves them out
		if len(*list) == 0 {
			*list = nil
		}
	}
	if len(j.Optimizer.Params) == 0 {
		j.Optimizer.Params = nil
	}
	return &j, nil
}

// Hash returns the first 16 bytes of the SHA-256 of the canonical encoding, in hexadecimal: the job's name among others.
func (j *Job) Hash() (string, error) {
	p, err := j.Encode()
	if err != nil {
		return "", fmt.Errorf("job: %w", err)
	}
	return HashEncoded(p), nil
}

// HashEncoded is Hash of a job of which only the encoding is at hand, such as one that another version of this package wrote.
func HashEncoded(p []byte) string {
	h := sha256.Sum256(p)
	return hex.EncodeToString(h[:16])
}
