package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// eventsOf are the kinds of the events that a program printed, in their order.
func eventsOf(t *testing.T, out []byte) (kinds []string) {
	t.Helper()
	for line := range strings.Lines(string(out)) {
		var w struct {
			peerWord
			Files int `json:"files"`
		}
		if err := json.Unmarshal([]byte(line), &w); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		kinds = append(kinds, fmt.Sprint(w.Event, " ", w.Files))
	}
	return kinds
}

// TestSavedWhenTold: what peers' programs have in common keeps the copies of a run, writes them when it is told to, and once; it ends with a sentence at
// a command that it does not know.
func TestSavedWhenTold(t *testing.T) {
	python, err := findNumPy(t.Context(), "")
	if err != nil {
		t.Logf("not run here: %v", err)
		return
	}
	program, err := peerFiles.ReadFile("peers/driven.py")
	if err != nil {
		t.Fatal(err)
	}
	const asks = `
import numpy as np
spec = json.loads(sys.argv[1])
plain = say
def say(event, **fields):
    plain(event, files=len(os.listdir(spec["out"])), **fields)
serve(spec, {}, lambda begin, end: None, lambda: {"b": np.zeros(1, np.float32)}, lambda: None)
`
	spec, err := json.Marshal(&peerLine{Threads: 1, Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ in, want, said string }{
		{`{"do":"run","updates":9,"snapshots":[2,4]} {"do":"run","updates":1} {"do":"save"} {"do":"save"} {"do":"quit"}`, "ready 0, update 0, update 0, snapshot 1, snapshot 2, saved 2, saved 2", ""},
		{`{"do":"run","updates":9,"snapshots":[2]} {"do":"reset"} {"do":"save"} {"do":"quit"}`, "ready 2, update 2, ready 2, saved 2", ""},
		{`{"do":"dance"}`, "ready 2", `unknown command {"do":"dance"}`},
	} {
		cmd := exec.CommandContext(t.Context(), python, "-c", string(program)+asks, string(spec))
		cmd.Stdin = strings.NewReader(strings.ReplaceAll(c.in, " ", "\n") + "\n")
		var problems strings.Builder
		cmd.Stderr = &problems
		out, err := cmd.Output()
		if (err != nil) != (c.said != "") || !strings.Contains(problems.String(), c.said) {
			t.Errorf("%s: %v: %s", c.in, err, problems.String())
		}
		if got := listed(eventsOf(t, out)); got != c.want {
			t.Errorf("%s: %s, want %s", c.in, got, c.want)
		}
	}
}

// TestPMLSSavesWhenTold: so does the program that drives PMLS's own, whose raw numbers it keeps until then.
func TestPMLSSavesWhenTold(t *testing.T) {
	python, err := findNumPy(t.Context(), "")
	if err == nil && runtime.GOOS == "windows" {
		err = errors.New("a script is no program there")
	}
	if err != nil {
		t.Logf("not run here: %v", err)
		return
	}
	dir := t.TempDir()
	files, err := fs.Sub(peerFiles, "peers")
	if err != nil {
		t.Fatal(err)
	}
	mlr := "#!" + python + `
import sys
import numpy as np
prefix = next(a.split("=", 1)[1] for a in sys.argv if a.startswith("--output_file_prefix="))
print("ready", flush=True)
done = 0
for line in sys.stdin:
    n, *due = map(int, line.split())
    for u in due:
        np.ones(3, np.float32).tofile(prefix + str(u))
        print("snapshot", u, u / 10)
    done += n
    print("update", done, done / 10, flush=True)
`
	out, bin := filepath.Join(dir, "out"), filepath.Join(dir, "env", "bin")
	err = errors.Join(
		os.CopyFS(filepath.Join(dir, "peers"), files), os.Mkdir(out, 0o700), os.MkdirAll(bin, 0o700), os.WriteFile(filepath.Join(bin, "mlr_main"), []byte(mlr), 0o700),
		writeFile(filepath.Join(dir, "x.npy"), func(f *os.File) error {
			_, err := f.Write(npyHeader("<f4", 4, 2))
			return errors.Join(err, writeFloats(f, make([]float32, 8)))
		}),
		writeFile(filepath.Join(dir, "y.npy"), func(f *os.File) error {
			_, err := f.Write(npyHeader("<i4", 4))
			return errors.Join(err, writeInts(f, make([]int32, 4)))
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := json.Marshal(&peerLine{
		Version: peerProtocol, Mode: "ssp", Staleness: 3, Role: WorkerRole, Workers: 1, Threads: 1, Addresses: map[string][]string{"worker": {"127.0.0.1:1"}},
		Model: peerModel{Inputs: 2, Hidden: []int{}, Outputs: 1}, TrainX: filepath.Join(dir, "x.npy"), TrainY: filepath.Join(dir, "y.npy"), Rows: 4, Out: out, Clocks: 2,
		Extra: map[string]any{"program": "mlr_main"},
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, filepath.Join(dir, "peers", "pmls", "worker.py"), filepath.Join(dir, "env"))
	cmd.Stdin = strings.NewReader(string(spec) + "\n" + `{"do":"run","updates":4,"snapshots":[2,4]}` + "\n" + `{"do":"save"}` + "\n" + `{"do":"quit"}` + "\n")
	var problems strings.Builder
	cmd.Stderr = &problems
	said, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, problems.String())
	}
	if got, want := eventsOf(t, said), []string{"ready 0", "update 0", "snapshot 0", "snapshot 0", "saved 0", "done 0"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, u := range []int64{2, 4} {
		if _, err := os.Stat(filepath.Join(out, snapshotName(u))); err != nil {
			t.Error(err)
		}
	}
}

// TestFilesInTheWindow: the page says whether files of other systems were written while they were measured: in comparisons of earlier builds they were.
func TestFilesInTheWindow(t *testing.T) {
	var p Plan
	p.defaults()
	if !p.record().FilesAfter {
		t.Error("a new comparison says that they are")
	}
	for after, want := range map[bool]string{false: "at other systems the files that they are written to.", true: "not the files that they are written to afterwards"} {
		r := &Report{FilesAfter: after, Tables: []*Table{{Rows: []*Row{{System: "mxnet-sync", Workers: 2, Use: map[Role]PerUse{WorkerRole: {UserShare: 1}}}}}}}
		if text := fmt.Sprint(r.roles()); !strings.Contains(text, want) {
			t.Errorf("%v: %s", after, text)
		}
	}
}
