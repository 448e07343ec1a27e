package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train/server"
)

// TestLooseMode: a run whose bits depend on who was late is not called a fault when it does not repeat.
func TestLooseMode(t *testing.T) {
	options := func(m ps.Mode) json.RawMessage {
		o := server.DefaultOptions()
		o.Mode = m
		p, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		topology string
		options  json.RawMessage
		want     string
	}{
		{"local", nil, ""},
		{"allreduce", nil, ""},
		{"server", nil, "ssp"},
		{"server", options(ps.SSP), "ssp"},
		{"server", options(ps.ASP), "asp"},
		{"server", options(ps.BSP), ""},
	} {
		if got := looseMode(&training{topology: c.topology, options: c.options}); got != c.want {
			t.Errorf("%s with %s: %q, want %q", c.topology, c.options, got, c.want)
		}
	}
}

// rehashed is a run.json with the hash that its configuration has by now: as if that had been trained.
func rehashed(t *testing.T, head string) string {
	t.Helper()
	var of struct {
		Configuration json.RawMessage
		Hash          string `json:"configuration_hash"`
	}
	var job bytes.Buffer
	if err := json.Unmarshal([]byte(head), &of); err != nil {
		t.Fatal(err)
	}
	if err := json.Compact(&job, of.Configuration); err != nil {
		t.Fatal(err)
	}
	return strings.Replace(head, of.Hash, trivium.HashEncoded(job.Bytes()), 1)
}

func TestRerun(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	if got := runWith(t.Context(), t, dir, options, strings.Fields("train mlp:8 --data points --epochs 3 --name first")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	got := runWith(t.Context(), t, dir, options, "rerun", "first", "--threads", "1")
	if got.code != Done || !strings.Contains(got.out, "the same bits: 50 parameters after") {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}

	// Other kernels are named, and other bits are found.
	first := filepath.Join(dir, "runs", "first")
	head, err := os.ReadFile(filepath.Join(first, "run.json"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, first, "run.json", regexp.MustCompile(`"kernels": ?"[^"]*"`).ReplaceAllString(string(head), `"kernels": "abacus"`))
	got = runWith(t.Context(), t, dir, options, "rerun", "first")
	if got.code != Done || !strings.Contains(got.out, "although the kernels was abacus, is ") {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	// A job that was changed is not what was trained: that it has other bits would be nobody's fault.
	edited := regexp.MustCompile(`"seed": ?42`).ReplaceAllString(string(head), `"seed": 43`)
	write(t, first, "run.json", edited)
	got = runWith(t.Context(), t, dir, options, "rerun", "first")
	if got.code != Misused || !strings.Contains(got.err, "its configuration is not the one that was trained") {
		t.Errorf("an edited job: exits with %d: %s%s", got.code, got.out, got.err)
	}
	write(t, first, "run.json", rehashed(t, edited))
	got = runWith(t.Context(), t, dir, options, "rerun", "first")
	if got.code != Failed || !strings.Contains(got.err, "of 50 parameters differ, first in tensor") {
		t.Errorf("another seed: exits with %d: %s%s", got.code, got.out, got.err)
	}
	write(t, first, "run.json", strings.Replace(string(head), `"data_checksum": "points"`, `"data_checksum": "lines"`, 1))
	got = runWith(t.Context(), t, dir, options, "rerun", "first")
	if got.code != Failed || !strings.Contains(got.err, "its checksum is points, the run had lines") {
		t.Errorf("other data: exits with %d: %s%s", got.code, got.out, got.err)
	}

	// The checkpoint of the end is gone.
	write(t, first, "run.json", string(head))
	checkpoints, err := filepath.Glob(filepath.Join(first, "checkpoints", "*"))
	if err != nil || len(checkpoints) < 2 {
		t.Fatal(checkpoints, err)
	}
	if err := os.RemoveAll(checkpoints[len(checkpoints)-1]); err != nil {
		t.Fatal(err)
	}
	got = runWith(t.Context(), t, dir, options, "rerun", "first")
	if got.code != Misused || !regexp.MustCompile(`first ended after update \d+, and its newest checkpoint is of update \d+: there is nothing`).MatchString(got.err) {
		t.Errorf("without its last checkpoint: exits with %d: %s%s", got.code, got.out, got.err)
	}
}

// TestRerunWithoutARunDirectory: there would be nothing to compare, so that nothing is trained.
func TestRerunWithoutARunDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	write(t, dir, "file", "no folder")
	for _, workers := range []string{"1", "2"} {
		first := "first" + workers
		if got := runWith(t.Context(), t, dir, options, strings.Fields("train mlp:8 --data points --epochs 1 --workers "+workers+" --name "+first)...); got.code != Done {
			t.Fatalf("exits with %d: %s", got.code, got.err)
		}
		got := runWith(t.Context(), t, dir, options, "rerun", filepath.Join("runs", first), "--out", filepath.Join("file", "runs"))
		if got.code != Misused || !strings.Contains(got.err, "no run directory for the new run") || strings.Contains(got.out, "finished") {
			t.Errorf("%s workers: exits with %d: %s%s", workers, got.code, got.out, got.err)
		}
	}
}

// TestRerunInterrupted: a rerun that was interrupted has compared nothing, and is to be repeated. The run that it began could be resumed, but
// that would compare nothing either, and of a topology with options it would be another job without them.
func TestRerunInterrupted(t *testing.T) {
	dir := t.TempDir()
	whole := Options{Sources: data.Sources{"points": points(-1, nil)}}
	if got := runWith(t.Context(), t, dir, whole, strings.Fields("train mlp:8 --data points --batch 30 --epochs 12 --name first --out my")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	broken := Options{Sources: data.Sources{"points": points(10, cancel)}}
	got := runWith(ctx, t, dir, broken, strings.Fields("rerun last --out my --threads 1")...)
	if want := "repeat with: trivium rerun " + filepath.Join("my", "first") + " --out my --threads 1\n"; got.code != Interrupted || !strings.HasSuffix(got.err, want) {
		t.Errorf("exits with %d: %s, want %s", got.code, got.err, want)
	}
}

// TestRerunResumed: a run that went on from what another topology had trained is not repeated, and that is not called a fault.
func TestRerunResumed(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	for _, args := range []string{
		"train mlp:8 --data points --batch 50 --epochs 1 --name first",
		"train --resume first --epochs 2 --topology average --workers 2 --name second",
	} {
		if got := runWith(t.Context(), t, dir, options, strings.Fields(args)...); got.code != Done {
			t.Fatalf("%s: exits with %d: %s", args, got.code, got.err)
		}
	}
	got := runWith(t.Context(), t, dir, options, "rerun", "second")
	if got.code != Failed || !strings.Contains(got.err, "was resumed from") || strings.Contains(got.err, "a fault of") {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}
}

// TestRerunResumedAfterItsEnd: a run that went on after its early stop had ended it ends there again where it is repeated, and no topology is blamed.
func TestRerunResumedAfterItsEnd(t *testing.T) {
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	for _, c := range []struct {
		stop string
		end  int
	}{{"--stop-metric train.loss --patience 1 --min-delta 10", 32}, {"--stop-metric train.accuracy --target >=0.01", 16}} {
		dir := t.TempDir()
		for _, args := range []string{
			"train mlp:8 --data points --batch 50 --epochs 30 --name first " + c.stop,
			"train --resume first --epochs 40 --name second",
		} {
			if got := runWith(t.Context(), t, dir, options, strings.Fields(args)...); got.code != Done {
				t.Fatalf("%s: exits with %d: %s", args, got.code, got.err)
			}
		}
		got := runWith(t.Context(), t, dir, options, "rerun", "second")
		want := fmt.Sprintf("first in the number of updates, %d in place of %d; what differs: that the run was resumed from ", c.end, c.end+16)
		end := fmt.Sprintf(" at update %d, and repeated from its beginning is ended by its early stop after update %[1]d\n", c.end)
		if got.code != Failed || !strings.Contains(got.err, want) || !strings.HasSuffix(got.err, end) {
			t.Errorf("%s: exits with %d: %s%swant %s…%s", c.stop, got.code, got.out, got.err, want, end)
		}
	}
}

// TestRerunOfACluster: a run whose workers shared machines otherwise than here is not called a fault where it does not repeat.
func TestRerunOfACluster(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	if got := runWith(t.Context(), t, dir, options, strings.Fields("train mlp:8 --data points --epochs 1 --workers 4 --name first")...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	first := filepath.Join(dir, "runs", "first")
	head, err := os.ReadFile(filepath.Join(first, "run.json"))
	if err != nil {
		t.Fatal(err)
	}
	other := rehashed(t, regexp.MustCompile(`"seed": ?42`).ReplaceAllString(string(head), `"seed": 43`)) // so that its bits are others
	for _, c := range []struct {
		json  string
		fault bool
	}{{other, true}, {strings.Replace(other, "{", `{"machines": 2,`, 1), false}} {
		write(t, first, "run.json", c.json)
		got := runWith(t.Context(), t, dir, options, "rerun", "first")
		if got.code != Failed || strings.Contains(got.err, "a fault of") != c.fault || strings.Contains(got.err, "perhaps the machines") == c.fault {
			t.Errorf("a fault %v: exits with %d: %s%s", c.fault, got.code, got.out, got.err)
		}
	}
}

// TestRerunCheckpoints: local SGD averages before each checkpoint, so that a run is repeated with as many.
func TestRerunCheckpoints(t *testing.T) {
	dir := t.TempDir()
	options := Options{Sources: data.Sources{"points": points(-1, nil)}}
	args := "train mlp:8 --data points --batch 50 --epochs 2 --optimizer sgd --rate 0.1 --workers 2 --every 4 --checkpoint-every 3 --name first"
	if got := runWith(t.Context(), t, dir, options, strings.Fields(args)...); got.code != Done {
		t.Fatalf("exits with %d: %s", got.code, got.err)
	}
	if got := runWith(t.Context(), t, dir, options, "rerun", "first"); got.code != Done || !strings.Contains(got.out, "the same bits") {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}
}

// TestOtherOrder: bits that depend on the cores or the machines that workers share, or on what was measured, are not called a fault when a machine
// with others, or another measurement, does not repeat them.
func TestOtherOrder(t *testing.T) {
	const cores, machines, measured = "perhaps the cores", "perhaps the machines", "perhaps what --calibrate measured"
	const encoded = "perhaps what --compress auto:f16 measured"
	for _, c := range []struct {
		topology string
		options  string
		workers  int
		machines int // of a cluster
		exact    bool
		want     []string // none: it is a fault
	}{
		{"allreduce", "", 3, 0, false, []string{cores}},
		{"allreduce", "", 6, 0, false, []string{cores}},
		{"allreduce", "", 3, 0, true, nil},
		{"allreduce", "", 1, 0, false, nil},
		{"allreduce", "", 4, 0, false, nil},
		{"allreduce", `{"calibrate":true}`, 4, 0, false, []string{measured}},
		{"allreduce", `{"calibrate":true}`, 4, 2, false, []string{measured}},
		{"allreduce", `{"calibrate":true}`, 2, 0, false, nil}, // a sum of two has one order
		{"allreduce", `{"calibrate":true}`, 4, 2, true, nil},
		{"allreduce", `{"compress":"topk:0.01"}`, 4, 2, false, []string{machines}},
		{"allreduce", `{"compress":"auto:f16"}`, 4, 2, false, []string{encoded}},
		{"allreduce", `{"compress":"auto:f16"}`, 2, 0, false, []string{encoded}},
		{"allreduce", `{"compress":"auto:f16"}`, 1, 0, false, nil},
		{"allreduce", `{"shard_optimizer":true}`, 4, 2, false, []string{machines}},
		{"allreduce", "", 6, 2, false, []string{cores, machines}},
		{"allreduce", "", 4, 1, false, nil},
		{"allreduce", "", 4, 4, false, nil}, // no two share one
		{"allreduce", "", 4, 2, true, nil},
		{"server", "", 3, 2, false, nil},
		{"average", "", 3, 2, false, nil},
	} {
		may := otherOrder(&training{topology: c.topology, options: json.RawMessage(c.options), workers: c.workers, job: &trivium.Job{Exact: c.exact}}, c.machines)
		why := whyOther("", may, "trivium")
		for _, word := range []string{cores, machines, measured, encoded} {
			if strings.Contains(why, word) != slices.Contains(c.want, word) {
				t.Errorf("%d workers of %s on %d machines with %q, exact %v: %q, want %q", c.workers, c.topology, c.machines, c.options, c.exact, why, c.want)
			}
		}
		if strings.Contains(why, "a fault of trivium") != (len(c.want) == 0) {
			t.Errorf("%d workers of %s on %d machines with %q, exact %v: %q", c.workers, c.topology, c.machines, c.options, c.exact, why)
		}
	}
}

// TestWhyOther: a mode that never repeats is named also where code or data differ, which alone may not be to blame.
func TestWhyOther(t *testing.T) {
	for _, c := range []struct {
		loose       string
		differences []string
		want        []string
	}{
		{"", nil, []string{"a fault of trivium"}},
		{"", []string{"the kernels was a, is b"}, []string{"what differs: the kernels was a, is b"}},
		{"asp", nil, []string{"under asp", "only bsp repeats"}},
		{"ssp:3", []string{"the kernels was a, is b"}, []string{"under ssp:3", "only bsp repeats", "what differs: the kernels was a, is b"}},
	} {
		got := whyOther(c.loose, c.differences, "trivium")
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%q and %q: %q lacks %q", c.loose, c.differences, got, want)
			}
		}
	}
}
