package app

import (
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/compare"
)

// TestTrialsAreToldApart: in a pipe, the lines of one system at two links, batches or numbers of workers say which is which.
func TestTrialsAreToldApart(t *testing.T) {
	var out strings.Builder
	c := newComparing(&out, false)
	for _, cell := range []compare.Cell{
		{Task: "softmax", Batch: 100, Workers: 2, System: "allreduce"},
		{Task: "softmax", Batch: 100, Workers: 2, Link: compare.Link{Mbit: 750}, System: "allreduce"},
		{Task: "softmax", Batch: 500, Workers: 2, System: "allreduce"},
		{Task: "softmax", Batch: 100, Workers: 3, System: "allreduce"},
	} {
		c.trialed(compare.Trialed{Cell: cell, Repeat: 1, Result: compare.Result{SamplesPerSec: 1000}}, compare.Table{})
	}
	seen := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		if seen[line] || !strings.Contains(line, "allreduce repeat 1: ") {
			t.Errorf("%q, of\n%s", line, out.String())
		}
		seen[line] = true
	}
}

// TestTargetNotSeen: where no parameters were looked at, none of them is the best.
func TestTargetNotSeen(t *testing.T) {
	var out strings.Builder
	c := newComparing(&out, false)
	cell := compare.Cell{Task: "softmax", Batch: -1, Workers: 2, System: "spark-mllib"}
	c.trialed(compare.Trialed{Cell: cell, Repeat: 1, Result: compare.Result{SamplesPerSec: 1000}}, compare.Table{})
	c.trialed(compare.Trialed{Cell: cell, Repeat: 2, Result: compare.Result{SamplesPerSec: 1000, Best: 0.5, Curve: []compare.Point{{Value: 0.5}}}}, compare.Table{})
	for _, want := range []string{"repeat 1: 1.0k samples/s, target not seen\n", "repeat 2: 1.0k samples/s, target not reached (best 0.5)\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q does not say %q", out.String(), want)
		}
	}
}
