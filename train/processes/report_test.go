package processes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/processes"
)

// A wordy strategy trains nothing. What it reports, or its error, is that long.
type wordy struct{ report, err int }

func (w wordy) Train(context.Context, *trivium.Job) (trivium.Result, error) {
	if w.err > 0 {
		return trivium.Result{Reason: trivium.Failed}, errors.New(strings.Repeat("x", w.err))
	}
	return trivium.Result{Reason: trivium.Finished}, nil
}

func (w wordy) Report() ([]byte, error) { return bytes.Repeat([]byte{'r'}, w.report), nil }

// TestLargeReport: a report may be larger than a message; one that is larger than may be, and a result that fits no message, fail the job
// in place of leaving its driver to wait.
func TestLargeReport(t *testing.T) {
	for _, c := range []struct {
		strategy wordy
		want     string // in the error; empty: none
	}{
		{wordy{}, ""},
		{wordy{report: 9<<20 + 1}, ""},
		{wordy{report: 32<<20 + 1}, "worker 0: processes: the strategy reports 33554433 bytes, want at most 33554432"},
		{wordy{err: 2 << 20}, "at most 1048576"},
	} {
		bare := processes.Topology{Name: "wordy", Bare: true, New: func(train.Env, json.RawMessage) (trivium.Strategy, error) {
			return c.strategy, nil
		}}
		d := driver(t, func(_ string, o *processes.Options) { o.Topologies = processes.Topologies{bare} })
		d.Topology = bare
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it ends a hang, no more
		_, err := d.Train(ctx)
		cancel()
		switch {
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v, want %q", c.strategy, err, c.want)
		case c.want == "" && (err != nil || len(d.Report) != c.strategy.report):
			t.Errorf("%+v: a report of %d bytes, %v", c.strategy, len(d.Report), err)
		}
	}
}
