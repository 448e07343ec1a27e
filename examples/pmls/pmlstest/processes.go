package pmlstest

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/app"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
)

// An Example is what the processes of a test know beside the standard topologies.
type Example struct {
	Models  nn.Models
	Sources data.Sources
}

func (e Example) options() app.Options { return app.Options{Models: e.Models, Sources: e.Sources} }

// Enter comes first in TestMain: where this process is one that InProcesses has started, it does its work, and ends here.
func (e Example) Enter() {
	if code, ok := app.Child(e.options()); ok {
		os.Exit(code)
	}
}

// A Run is what a training in processes has left.
type Run struct {
	Checkpoints []*checkpoint.Checkpoint // the newest is the last
	Metrics     map[string]float64       // of the last evaluation
}

// Last is the checkpoint of the end.
func (r Run) Last() *checkpoint.Checkpoint { return r.Checkpoints[len(r.Checkpoints)-1] }

// InProcesses trains as a user does, by the command train and its flags, with the workers and servers in processes of their own.
func (e Example) InProcesses(t testing.TB, command string) (r Run) {
	t.Helper()
	dir := t.TempDir()
	args := append([]string{"train"}, strings.Fields(command)...)
	args = append(args, "--topology", "server", "--processes", "--threads", "1", "--train", "0:", "--order", "index", "--out", dir, "--name", "it", "--quiet")
	var problems bytes.Buffer
	if code := app.Run(t.Context(), args, io.Discard, &problems, e.options()); code != app.Done {
		t.Fatalf("%s: exit code %d: %s", strings.Join(args, " "), code, problems.String())
	}
	var result struct{ Metrics map[string]float64 }
	text, err := os.ReadFile(filepath.Join(dir, "it", "result.json"))
	if err == nil {
		err = json.Unmarshal(text, &result)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.Metrics = result.Metrics
	store := blob.Dir(filepath.Join(dir, "it", "checkpoints"))
	names, err := checkpoint.List(t.Context(), store)
	if err != nil || len(names) == 0 {
		t.Fatalf("checkpoints %q, %v", names, err)
	}
	for _, name := range names {
		c, err := checkpoint.Load(t.Context(), store, name)
		if err != nil {
			t.Fatal(err)
		}
		r.Checkpoints = append(r.Checkpoints, c)
	}
	return r
}
