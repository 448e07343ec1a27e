package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivium-ml/trivium/observe"
)

func TestListDiffDelete(t *testing.T) {
	root := t.TempDir()
	if l, err := List(filepath.Join(root, "none")); err != nil || len(l) != 0 {
		t.Errorf("a folder that is not there: %v, %v", l, err)
	}
	os.Mkdir(filepath.Join(root, "no-run"), 0o777)
	for i, name := range []string{"b", "a", "c"} {
		h := someHead()
		h.Name, h.Start = name, begin.Add(time.Duration(i)*time.Minute)
		h.Configuration = json.RawMessage(fmt.Sprintf(`{"batch":100,"optimizer":{"rate":0.%d}}`, i+1))
		w, err := Create(filepath.Join(root, name), h)
		if err != nil {
			t.Fatal(err)
		}
		if name == "c" {
			w.Close()
		} else if err := w.Finish(Result{Reason: "finished"}); err != nil {
			t.Fatal(err)
		}
	}
	os.Mkdir(filepath.Join(root, "bad"), 0o777)
	os.WriteFile(filepath.Join(root, "bad", headFile), []byte(`{"version": 7}`), 0o666)
	l, err := List(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range l {
		got = append(got, filepath.Base(e.Dir)+" "+e.State())
	}
	if d := cmp.Diff([]string{"bad unreadable", "b finished", "a finished", "c unfinished"}, got); d != "" {
		t.Error(d)
	}
	if l[0].Err == nil || !strings.Contains(l[0].Err.Error(), "version 7") {
		t.Errorf("error %v", l[0].Err)
	}
	if diff := Diff(l[1].Head.Fields(), l[2].Head.Fields()); len(diff) != 1 || diff[0] != (Difference{"optimizer.rate", "0.1", "0.2"}) {
		t.Errorf("differences %v", diff)
	}
	for _, version := range []int{-1, 0, 2} {
		os.WriteFile(filepath.Join(root, "bad", headFile), fmt.Appendf(nil, `{"version": %d}`, version), 0o666)
		if other, ok := errors.AsType[*VersionError](Read(filepath.Join(root, "bad")).Err); !ok || other.Version != version {
			t.Errorf("version %d: %v", version, Read(filepath.Join(root, "bad")).Err)
		}
	}
	os.WriteFile(filepath.Join(root, "bad", seriesDir), nil, 0o666) // another program's file
	if Is(filepath.Join(root, "bad")) {
		t.Error("a folder with a file in the place of the series is taken for a run")
	}
	os.Remove(filepath.Join(root, "bad", seriesDir))
	if err := Delete(filepath.Join(root, "no-run")); err == nil {
		t.Error("a folder that is no run was deleted")
	}
	if err := Delete(filepath.Join(root, "b")); err != nil {
		t.Error(err)
	}
	if l, _ := List(root); len(l) != 3 {
		t.Errorf("%d runs are left, want 3", len(l))
	}
}

// TestFields: a head's fields have the names of the job's keys and of what they are of, without those of which nothing is known.
func TestFields(t *testing.T) {
	h := Head{
		Name: "n", Command: []string{"c"}, Strategy: "server", Model: "mlp:8", Workers: 3, Kernels: "avx2", Options: json.RawMessage(`{"mode":"ssp","staleness":3}`),
		Configuration: json.RawMessage(`{"batch":100,"optimizer":{"rate":1e-3},"data":{"drop":["a","b"],"source":""},"seed":18446744073709551615}`),
		Versions:      map[string]string{"go": "go1"}, Host: json.RawMessage(`{"cores":2}`), Notes: []string{"generated"},
	}
	want := map[string]any{
		"strategy": "server", "model": "mlp:8", "workers": json.Number("3"), "kernels": "avx2", "option.mode": "ssp", "option.staleness": json.Number("3"),
		"batch": json.Number("100"), "optimizer.rate": json.Number("1e-3"), "data.drop": "a,b", "seed": json.Number("18446744073709551615"),
		"build.go": "go1", "host.cores": json.Number("2"), "note.1": "generated",
	}
	if d := cmp.Diff(want, h.Fields()); d != "" {
		t.Error(d)
	}
	if got := (Head{Strategy: "local"}).Fields()["workers"]; got != json.Number("1") { // so that a condition finds it
		t.Errorf("a run of one process has %v workers", got)
	}
	if _, err := (Head{Configuration: json.RawMessage("{")}).JobFields(); err == nil {
		t.Error("half a job has fields")
	}
}

// TestSomebodysRunJSON: a folder of somebody else's, who calls a file run.json too, is no run, and stays.
func TestSomebodysRunJSON(t *testing.T) {
	root := t.TempDir()
	for name, head := range map[string]string{"mine": `{"version": 1, "name": "mine"}`, "broken": "{"} {
		dir := filepath.Join(root, name)
		os.MkdirAll(filepath.Join(dir, "src"), 0o777)
		os.WriteFile(filepath.Join(dir, headFile), []byte(head), 0o666)
		if err := Delete(dir); err == nil || !strings.Contains(err.Error(), "no run directory") {
			t.Errorf("%s: error %v", name, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
			t.Errorf("%s: left are %v, %v", name, left, err)
		}
	}
	if l, err := List(root); err != nil || len(l) != 0 {
		t.Errorf("%d runs: %v", len(l), err)
	}
}

// TestDeleteLink: of a run that lies elsewhere the link goes, however it is written, and the run stays.
func TestDeleteLink(t *testing.T) {
	for _, end := range []string{"", "/", "/."} {
		dir, link := filepath.Join(t.TempDir(), "r"), filepath.Join(t.TempDir(), "latest")
		w, err := Create(dir, someHead())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Finish(Result{Reason: "finished"}), os.Symlink(dir, link), Delete(link+end)); err != nil {
			t.Errorf("%q: %v", end, err)
		}
		if _, err := os.Lstat(link); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: the link: %v", end, err)
		}
		if e := Read(dir); e.State() != "finished" {
			t.Errorf("%q: the run that it led to is %s", end, e.State())
		}
	}
}

// TestDeletePart: a run of which something cannot be removed stays one, and is deleted once it can be.
func TestDeletePart(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("not run here: this user may remove anything")
	}
	root := t.TempDir()
	dir := filepath.Join(root, "r")
	w, err := Create(dir, someHead())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(Result{Reason: "finished"}); err != nil {
		t.Fatal(err)
	}
	locked := filepath.Join(dir, "checkpoints")
	if err := errors.Join(os.MkdirAll(filepath.Join(locked, "a"), 0o777), os.Chmod(locked, 0o555)); err != nil {
		t.Fatal(err)
	}
	if err := Delete(dir); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %v", err)
	}
	if l, err := List(root); err != nil || len(l) != 1 {
		t.Errorf("%d runs are left, want the one: %v", len(l), err)
	}
	if err := errors.Join(os.Chmod(locked, 0o777), Delete(dir)); err != nil {
		t.Error(err)
	}
	if l, err := List(root); err != nil || len(l) != 0 {
		t.Errorf("%d runs are left: %v", len(l), err)
	}
}

// TestDecode: a value that a key cannot have is shown on one line, and not at its full length.
func TestDecode(t *testing.T) {
	long := `["` + strings.Repeat("ü", 100) + `"]`
	for text, want := range map[string]string{
		`{"version": 1, "model": "m"}`:               "",
		"{\"version\": 1, \"model\": {\n\"a\": 1}}":  `its "model" cannot be {"a":1}`,
		`{"version": 1, "workers": 1.5}`:             `its "workers" cannot be 1.5`,
		`{"version": 1, "model": ` + long + `}`:      `its "model" cannot be ["` + strings.Repeat("ü", 38) + `...`,
		`{"version": 1} {`:                           "it is no JSON: invalid character '{' after top-level value at byte 16",
		`{"version": 1, "model": 7, "model": "m"}`:   "it has keys twice",
		`{"version": 1, "start": "yesterday"}`:       `its "start" cannot be "yesterday"`,
		`{"version": 1, "seeds": {"job": "a seed"}}`: `its "seeds" cannot be {"job":"a seed"}`,
	} {
		if got := decode([]byte(text), new(Head), "version"); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestSummariseSlowest: ranks work side by side, so that their samples add up, and their times do not.
func TestSummariseSlowest(t *testing.T) {
	frame := func(seconds, samples uint64) (f observe.Frame) {
		f.Counters[observe.WallTime], f.Counters[observe.Samples], f.Counters[observe.Steps] = seconds*1e9, samples, samples/10
		return f
	}
	for _, last := range [][]observe.Frame{{frame(2, 100), frame(5, 300)}, {frame(5, 300), frame(2, 100)}} {
		if r := Summarise(last...); r.Seconds != 5 || r.Samples != 400 || r.Steps != 30 || r.SamplesPerSec != 80 {
			t.Errorf("%+v", r)
		}
	}
}

// TestLargestBlock: a block of more than any frame takes is not believed, whatever its checksum, and what follows it is read.
func TestLargestBlock(t *testing.T) {
	for _, size := range []int{maxPayload, maxPayload + 1} {
		p := appendBlock(appendBlock(nil, make([]byte, size)), []byte("after"))
		var read []int
		damage, err := scan("x", bytes.NewReader(p), int64(len(p)), func(payload []byte) (bool, error) {
			read = append(read, len(payload))
			return true, nil
		})
		whole := size <= maxPayload
		if err != nil || (len(damage) == 0) != whole || (len(read) == 2) != whole || len(read) == 0 || read[len(read)-1] != 5 {
			t.Errorf("a block of %d bytes, and one of 5: read %v, %v, %v", size, read, damage, err)
		}
	}
}
