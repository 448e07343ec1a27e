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
