package rundir

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// headVersion is the version of the folder's layout.
const headVersion = 1

// A Head is what a run was asked to do, and where: run.json.
type Head struct {
	Version int       `json:"version"` // set by Create
	Name    string    `json:"name"`    // the run's, as its folder
	Start   time.Time `json:"start"`
	Command []string  `json:"command,omitempty"`

	Strategy string `json:"strategy"`
	Workers  int    `json:"workers,omitempty"`  // processes that shared the job; 0: one
	Servers  int    `json:"servers,omitempty"`  // processes beside them that held its parameters
	Machines int    `json:"machines,omitempty"` // lent machines that the workers were on; 0: this one alone

	// CheckpointEvery is how many updates lay between two checkpoints; 0: that was left to the clock. Local SGD averages before each.
	CheckpointEvery int64 `json:"checkpoint_every,omitempty"`

	Options      json.RawMessage `json:"options,omitempty"` // of the strategy
	Model        string          `json:"model"`
	DataSource   string          `json:"data,omitempty"`
	DataChecksum string          `json:"data_checksum,omitempty"`

	Configuration     json.RawMessage `json:"configuration,omitempty"` // the job, canonical
	ConfigurationHash string          `json:"configuration_hash,omitempty"`

	Seeds    map[string]uint64 `json:"seeds,omitempty"`
	Versions map[string]string `json:"versions,omitempty"` // trivium, go, revision
	Kernels  string            `json:"kernels,omitempty"`  // avx512, avx2, go
	Threads  int               `json:"threads,omitempty"`
	Host     json.RawMessage   `json:"host,omitempty"` // facts of the machine
	Notes    []string          `json:"notes,omitempty"`
}

// A Result is what came of a run: result.json.
type Result struct {
	End      time.Time
	Reason   string // finished, stopped, target met, interrupted, diverged, failed
	ExitCode int
	Error    string // the sentence, if it failed

	Metrics map[string]float64 // the last evaluation, by split.metric; may be non-finite
	Steps   int64
	Epochs  int64
	Samples int64
	Seconds float64 // inside steps

	SamplesPerSec float64
	Phases        map[string]time.Duration // totals by phase, in nanoseconds
	Waited        []time.Duration          // for the worker of each rank, by all others together
	Checkpoint    string                   // where the last one is, if any
}

type resultJSON struct {
	End           time.Time                `json:"end"`
	Reason        string                   `json:"reason"`
	ExitCode      int                      `json:"exit_code"`
	Error         string                   `json:"error,omitempty"`
	Metrics       map[string]number        `json:"metrics"`
	Steps         int64                    `json:"steps"`
	Epochs        int64                    `json:"epochs"`
	Samples       int64                    `json:"samples"`
	Seconds       number                   `json:"seconds"`
	SamplesPerSec number                   `json:"samples_per_sec"`
	Phases        map[string]time.Duration `json:"phase_nanoseconds,omitempty"`
	Waited        []time.Duration          `json:"waited_nanoseconds,omitempty"`
	Checkpoint    string                   `json:"checkpoint,omitempty"`
}

// AddWaited adds for how long one worker has waited for that of each rank.
func (r *Result) AddWaited(by []time.Duration) {
	for rank, d := range by {
		for len(r.Waited) <= rank {
			r.Waited = append(r.Waited, 0)
		}
		r.Waited[rank] += d
	}
}

// MarshalJSON writes numbers that are not finite as strings.
func (r Result) MarshalJSON() ([]byte, error) {
	m := make(map[string]number, len(r.Metrics))
	for k, v := range r.Metrics {
		m[k] = number(v)
	}
	return json.Marshal(resultJSON{
		r.End, r.Reason, r.ExitCode, r.Error, m, r.Steps, r.Epochs, r.Samples, number(r.Seconds),
		number(r.SamplesPerSec), r.Phases, r.Waited, r.Checkpoint,
	})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Result) UnmarshalJSON(p []byte) error {
	var j resultJSON
	if err := json.Unmarshal(p, &j); err != nil {
		return err
	}
	*r = Result{
		j.End, j.Reason, j.ExitCode, j.Error, nil, j.Steps, j.Epochs, j.Samples, float64(j.Seconds), float64(j.SamplesPerSec),
		j.Phases, j.Waited, j.Checkpoint,
	}
	if j.Metrics != nil {
		r.Metrics = make(map[string]float64, len(j.Metrics))
		for k, v := range j.Metrics {
			r.Metrics[k] = float64(v)
		}
	}
	return nil
}

// A number is a float64 that survives JSON.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	switch x := float64(n); {
	case math.IsNaN(x):
		return []byte(`"NaN"`), nil
	case math.IsInf(x, 1):
		return []byte(`"+Inf"`), nil
	case math.IsInf(x, -1):
		return []byte(`"-Inf"`), nil
	default:
		return json.Marshal(x)
	}
}

func (n *number) UnmarshalJSON(p []byte) error {
	s := string(p)
	if len(s) > 1 && s[0] == '"' {
		s = s[1 : len(s)-1]
	}
	x, err := strconv.ParseFloat(s, 64)
	*n = number(x)
	return err
}
