package rundir

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/coding"
)

var begin = time.Date(2026, 11, 21, 12, 4, 31, 0, time.UTC)

func someHead() Head {
	return Head{
		Name: "r1", Start: begin, Strategy: "local", Model: "mlp:100", Command: []string{"trivium", "train", "mlp:100"},
		Configuration: json.RawMessage(`{"batch": 100, "optimizer": {"rate": 0.1}}`), ConfigurationHash: "ab12",
		Seeds: map[string]uint64{"job": math.MaxUint64}, Versions: map[string]string{"go": "1.26"}, Kernels: "avx512",
		Host: json.RawMessage(`{"cores": 2}`), DataChecksum: "crc32c:01234567",
	}
}

var source = observe.Source{Run: "r1", Strategy: "local", Role: observe.Worker, Incarnation: 0}

// record makes frames, steps and events as a run would.
func record(rng *rand.Rand, n int) (frames []observe.Frame, steps []observe.Step, events []observe.Event) {
	set := observe.NewSet(source)
	now := time.Duration(0)
	for i := range n {
		set.Add(observe.Samples, rng.Uint64N(1000))
		set.Add(observe.PhaseTime(observe.Compute), rng.Uint64N(1e9))
		set.Put(observe.Loss, rng.NormFloat64())
		set.Observe(observe.StepTime, rng.Uint64N(1e8))
		if i%3 == 0 {
			set.Evaluate("valid.auc", rng.Float64(), int64(i))
		}
		if i%4 == 3 {
			set.PutWaited([]time.Duration{0, time.Duration(rng.Int64()), 1})
		}
		if i == 5 {
			set.Put(observe.Loss, math.Inf(1))
		}
		now += time.Duration(rng.Int64N(2e9))
		frames = append(frames, set.Frame(now))
		s := observe.Step{Step: int64(i), Clock: int64(i / 2), Start: now, Samples: 100, Loss: rng.Float64(), Every: 1, BytesOut: rng.Uint64()}
		for p := range s.Phases {
			if rng.IntN(2) == 0 {
				s.Phases[p] = time.Duration(rng.Int64N(1e9))
			}
		}
		steps = append(steps, s)
		events = append(events, observe.Event{
			Time: begin.Add(now), Source: source, Level: observe.Info, Kind: "checkpoint", Step: int64(i) - 1,
			Text: fmt.Sprintf("number %d \"written\"\n", i),
		})
	}
	return frames, steps, events
}

func write(t testing.TB, w *Writer, frames []observe.Frame, steps []observe.Step, events []observe.Event) {
	t.Helper()
	for i := range frames {
		for _, err := range []error{w.Frame(frames[i]), w.Step(source, steps[i]), w.Flush(), w.Event(events[i])} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func readBack(t testing.TB, r *Run) (frames []observe.Frame, steps []observe.Step) {
	t.Helper()
	for f, err := range r.Frames(source) {
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, f)
	}
	for s, err := range r.Steps(source) {
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, s)
	}
	return frames, steps
}

func TestRoundTrip(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	frames, steps, events := record(rand.New(rand.NewPCG(seed, 0)), 3*coding.KeyEvery+7)
	dir := filepath.Join(t.TempDir(), "runs", "r1")
	w, err := Create(dir, someHead())
	if err != nil {
		t.Fatal(err)
	}
	write(t, w, frames, steps, events)
	unfinished, err := Open(dir)
	if err != nil || unfinished.Result != nil {
		t.Fatalf("a run under way: result %v, %v", unfinished.Result, err)
	}
	result := Result{
		End: begin.Add(time.Hour), Reason: "diverged", ExitCode: 4, Steps: 10, Samples: 1000, Seconds: 3.5, SamplesPerSec: 285,
		Metrics: map[string]float64{"valid.auc": 0.5, "valid.loss": math.NaN(), "train.loss": math.Inf(1), "x": math.Inf(-1)},
		Phases:  map[string]time.Duration{"compute": 3 * time.Second},
		Waited:  []time.Duration{time.Second, 0, 2},
	}
	if err := w.Finish(result); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Damage) != 0 {
		t.Errorf("damage in a whole run: %v", r.Damage)
	}
	gotFrames, gotSteps := readBack(t, r)
	if !reflect.DeepEqual(gotFrames, frames) {
		t.Errorf("%d frames came back, they are not the %d that were written", len(gotFrames), len(frames))
	}
	if !reflect.DeepEqual(gotSteps, steps) {
		t.Errorf("%d steps came back, they are not the %d that were written", len(gotSteps), len(steps))
	}
	if d := cmp.Diff(events, r.Events); d != "" {
		t.Error("events", d)
	}
	if d := cmp.Diff(result, *r.Result, cmpopts.EquateNaNs()); d != "" {
		t.Error("result", d)
	}
	if r.Head.Seeds["job"] != math.MaxUint64 || r.Head.Version != headVersion || !r.Head.Start.Equal(begin) {
		t.Errorf("head %+v", r.Head)
	}
	if len(r.Sources) != 1 || r.Sources[0] != source || r.Last["worker-0"].Sequence != uint64(len(frames)) {
		t.Errorf("sources %v, last frame %d", r.Sources, r.Last["worker-0"].Sequence)
	}
	if _, err := Create(dir, someHead()); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second Create of %s: %v", dir, err)
	}
	if err := w.Frame(frames[0]); err == nil {
		t.Error("a closed writer takes frames")
	}
	var total int64
	for _, f := range []string{"series/worker-0.bin", "steps/worker-0.bin"} {
		info, _ := os.Stat(filepath.Join(dir, f))
		total += info.Size()
		t.Logf("%s: %d bytes for %d records", f, info.Size(), len(frames))
	}
	if per := total / int64(len(frames)); per > 700 {
		t.Errorf("%d bytes for a frame and a step: the difference coding does not work", per)
	}
}

// TestFramesOfBefore: waits for others are behind all else in a frame, so that frames that were written before there were any are read.
func TestFramesOfBefore(t *testing.T) {
	set := observe.NewSet(source)
	set.Add(observe.Samples, 7)
	f := set.Frame(time.Second)
	encode := func() []byte { return new(coding.FrameCoder).Append(nil, &f) }
	before := encode()
	f.Waited = []time.Duration{5}
	if with := encode(); !bytes.Equal(with, append(bytes.Clone(before), 1, 5)) {
		t.Errorf("with waits a frame is\n%x, and without\n%x", with, before)
	}
	f.Waited = nil
	if got, err := new(coding.FrameCoder).Decode(source, before); err != nil || !reflect.DeepEqual(got, f) {
		t.Errorf("%v, %v", got, err)
	}
}

// prefix fails unless a is a prefix of b.
func prefix[T any](t testing.TB, what string, a, b []T) {
	t.Helper()
	if len(a) > len(b) || len(a) > 0 && !reflect.DeepEqual(a, b[:len(a)]) {
		t.Fatalf("%s: %d records came back that are no prefix of the %d written", what, len(a), len(b))
	}
}

// TestCase11Crash cuts each file of a run at each byte: what comes back is a prefix of what was written, and no byte goes missing
// without a word.
func TestCase11Crash(t *testing.T) {
	frames, steps, events := record(rand.New(rand.NewPCG(1, 2)), 6)
	dir := filepath.Join(t.TempDir(), "r1")
	w, err := Create(dir, someHead())
	if err != nil {
		t.Fatal(err)
	}
	write(t, w, frames, steps, events)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"series/worker-0.bin", "steps/worker-0.bin", "events.jsonl"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		each := 1
		if testing.Short() {
			each = 7
		}
		for n := len(whole); n >= 0; n -= each {
			if err := os.Truncate(path, int64(n)); err != nil {
				t.Fatal(err)
			}
			r, err := Open(dir)
			if err != nil {
				t.Fatalf("%s cut at %d: %v", name, n, err)
			}
			gotFrames, gotSteps := readBack(t, r)
			prefix(t, "frames", gotFrames, frames)
			prefix(t, "steps", gotSteps, steps)
			prefix(t, "events", r.Events, events)
			for _, d := range r.Damage {
				if d.File != name || d.Offset+d.Bytes != int64(n) {
					t.Fatalf("%s cut at %d: %v", name, n, d)
				}
			}
		}
		if err := os.WriteFile(path, whole, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, cut := range []int{0, 1, 50} {
		p, _ := os.ReadFile(filepath.Join(dir, headFile))
		other := filepath.Join(t.TempDir(), "r2")
		os.MkdirAll(other, 0o777)
		os.WriteFile(filepath.Join(other, headFile), p[:cut], 0o666)
		if _, err := Open(other); err == nil || !strings.Contains(err.Error(), filepath.Join(other, headFile)) {
			t.Errorf("a head of %d bytes: %v: want an error with its path", cut, err)
		}
	}
}

func TestCorruptBlockInTheMiddle(t *testing.T) {
	frames, steps, events := record(rand.New(rand.NewPCG(3, 4)), 9)
	dir := filepath.Join(t.TempDir(), "r1")
	w, err := Create(dir, someHead())
	if err != nil {
		t.Fatal(err)
	}
	write(t, w, frames, steps, events)
	w.Close()
	path := filepath.Join(dir, stepsDir, "worker-0.bin")
	p, _ := os.ReadFile(path)
	second := bytes.Index(p[1:], marker) + 1
	third := bytes.Index(p[second+1:], marker) + second + 1
	p[second+blockHead+5] ^= 0x10
	os.WriteFile(path, p, 0o666)
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, got := readBack(t, r)
	if want := slices.Delete(slices.Clone(steps), 1, 2); !reflect.DeepEqual(got, want) {
		t.Errorf("%d steps came back, want all but the second", len(got))
	}
	if len(r.Damage) != 1 || r.Damage[0].Offset != int64(second) || r.Damage[0].Bytes != int64(third-second) {
		t.Errorf("damage %v, want %d bytes at %d", r.Damage, third-second, second)
	}
	if !strings.Contains(r.Damage[0].String(), "steps/worker-0.bin: ") {
		t.Errorf("damage is said as %q", r.Damage[0])
	}
}

// TestStepsFileIsBounded writes far more than fits: every second step goes, again and again, and each says what it stands for.
func TestStepsFileIsBounded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r1")
	w, err := Create(dir, someHead())
	if err != nil {
		t.Fatal(err)
	}
	w.limit = 20_000
	path := filepath.Join(dir, stepsDir, "worker-0.bin")
	const n = 20_000
	for i := range n {
		s := observe.Step{Step: int64(i), Start: time.Duration(i) * time.Millisecond, Every: 2}
		s.Phases[observe.Compute] = time.Duration(i%977) * time.Microsecond
		if err := w.Step(source, s); err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			if info, _ := os.Stat(path); info.Size() > w.limit {
				t.Fatalf("after %d steps the file has %d bytes, more than %d", i, info.Size(), w.limit)
			}
		}
	}
	w.Close()
	r, err := Open(dir)
	if err != nil || len(r.Damage) > 0 {
		t.Fatal(err, r.Damage)
	}
	_, steps := readBack(t, r)
	every := steps[len(steps)-1].Every
	for i, s := range steps {
		if i > 0 && s.Step <= steps[i-1].Step || s.Every != every {
			t.Fatalf("step %d after %d, one in %d, at the end one in %d", s.Step, steps[max(i-1, 0)].Step, s.Every, every)
		}
	}
	if got := len(steps) * int(every) / 2; got < n*9/10 || got > n*11/10 {
		t.Errorf("%d steps, one in %d of every second: they stand for %d, want %d", len(steps), every, 2*got, 2*n)
	}
	if entries, _ := os.ReadDir(filepath.Join(dir, stepsDir)); len(entries) != 1 {
		t.Errorf("%d files are left", len(entries))
	}
}

func TestSourcesAreChecked(t *testing.T) {
	w, err := Create(filepath.Join(t.TempDir(), "r"), someHead())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, role := range []observe.Role{"../x", "", "a/b", `c:\d`} {
		if err := w.Step(observe.Source{Role: role}, observe.Step{}); err == nil {
			t.Errorf("role %q is taken for a file's name", role)
		}
	}
}

// TestCreateIsWhole: a run directory is one run's, of two that begin at once too, and what cannot be written leaves nothing.
func TestCreateIsWhole(t *testing.T) {
	root := t.TempDir()
	unwritable := someHead()
	unwritable.Configuration = json.RawMessage("{")
	if _, err := Create(filepath.Join(root, "bad"), unwritable); err == nil {
		t.Error("a head that is no JSON is written")
	}
	if left, err := os.ReadDir(root); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	other := filepath.Join(root, "other", seriesDir) // what a run that began a moment ago has made so far
	if err := os.MkdirAll(other, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(filepath.Dir(other), someHead()); err == nil || !strings.Contains(err.Error(), "holds a run already") {
		t.Errorf("a folder that another run has just taken: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("what the other run made is gone: %v", err)
	}
}

// TestDiskTrouble removes the directory under a hub's writer: training goes on, and the status says so.
func TestDiskTrouble(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r1")
	w, err := Create(dir, someHead())
	if err != nil {
		t.Fatal(err)
	}
	hub := observe.NewHub(observe.Options{})
	hub.Attach("run directory", w)
	r := hub.Recorder(source)
	os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r.Begin(0)
	r.End(observe.Facts{})
	if err := hub.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if got := hub.Incomplete(); len(got) != 1 || !strings.Contains(got[0], "run directory: metrics incomplete since") {
		t.Errorf("incomplete: %q", got)
	}
	if err := w.Finish(Result{}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("Finish without a folder: %v", err)
	}
}
