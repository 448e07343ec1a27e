package tensorboard

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/trivium-ml/trivium/observe"
)

func TestCase9CRC(t *testing.T) {
	digits := []byte("123456789")
	if c := crc32.Checksum(digits, castagnoli); c != 0xe3069283 {
		t.Errorf("CRC-32C %08x, want e3069283", c)
	}
	if c := masked(digits); c != 0xc78ab0e5 {
		t.Errorf("masked %08x, want c78ab0e5", c)
	}
	if c := masked([]byte{24, 0, 0, 0, 0, 0, 0, 0}); c != 0x224b7fa3 {
		t.Errorf("masked CRC of length 24: %08x, want 224b7fa3", c)
	}
}

func TestCase10EventBytes(t *testing.T) {
	at := time.Unix(1, 0)
	for _, c := range []struct {
		name  string
		event []byte
		want  string
	}{
		{
			"file version", appendString(stamp(at, 0), eventFileVersion, "brain.Event:2"),
			"1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a",
		},
		{
			"scalar", summary(at, 1, scalarValue("loss", 0.5)),
			"1a00000000000000129bd82d09000000000000f03f10012a0d0a0b0a046c6f7373150000003f27f95db1",
		},
	} {
		if got := hex.EncodeToString(appendRecord(nil, c.event)); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

// readFile returns the events of the one file in dir.
func readFile(t *testing.T, dir string) []Event {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("files %v, %v", names, err)
	}
	p, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	var out []Event
	for e, err := range Read(bytes.NewReader(p)) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

var start = time.Date(2026, 11, 21, 12, 4, 31, 0, time.UTC)

// writeAll writes every kind of record.
func writeAll(t *testing.T, dir string) {
	t.Helper()
	w, err := NewWriter(dir, "host/1", start)
	if err != nil {
		t.Fatal(err)
	}
	errs := []error{
		w.HParams(start, "trivium", map[string]any{"model": "mlp:100", "rate": 0.1, "exact": true, "batch": 100, "nan": math.NaN()}),
		w.Layout(start, StandardLayout()),
		w.Text(start, "configuration", 0, "a **job**"),
		w.Graph(start, []Node{
			{Name: "x", Op: "Placeholder", Device: "/cpu:0"},
			{Name: "dense/weights", Op: "Variable"},
			{Name: "dense/matmul", Op: "MatMul", Inputs: []string{"x", "dense/weights"}},
			{Name: "train/step", Op: "NoOp", Inputs: []string{"^dense/matmul"}},
		}),
	}
	for i := range 5 {
		at := start.Add(time.Duration(i) * time.Second)
		errs = append(errs,
			w.Scalar(at, "train/loss", int64(i), 1/float64(i+1)),
			w.Scalar(at, "valid/accuracy", int64(i), 0),
			w.Histogram(at, "speed/step_seconds", int64(i), Histogram{
				Min: 1, Max: 3.5, Sum: 7.5, SumSquares: 20,
				Limits: []float64{1, 2, 4}, Counts: []float64{0, 1, 2},
			}))
	}
	errs = append(errs, w.EndHParams(start.Add(5*time.Second), true), w.Close())
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestEveryKindOfRecord(t *testing.T) {
	dir := t.TempDir()
	writeAll(t, dir)
	events := readFile(t, dir)
	if e := events[0]; e.FileVersion != "brain.Event:2" || e.Writer != "trivium" || e.WallTime != float64(start.Unix()) {
		t.Errorf("first record %+v", e)
	}
	var got []string
	for _, e := range events {
		for _, v := range e.Values {
			got = append(got, fmt.Sprintf("%d %s %s %t %v", e.Step, v.Tag, v.Plugin, v.IsScalar, v.Scalar))
		}
		if e.Graph != nil {
			got = append(got, fmt.Sprint(e.Graph))
		}
	}
	want := []string{
		"0 _hparams_/session_start_info hparams false 0", "0 custom_scalars__config__ custom_scalars false 0",
		"0 configuration text false 0",
		"[{x Placeholder [] /cpu:0} {dense/weights Variable [] } {dense/matmul MatMul [x dense/weights] } {train/step NoOp [^dense/matmul] }]",
	}
	for i := range 5 {
		want = append(want, fmt.Sprintf("%d train/loss  true %v", i, 1/float32(i+1)), fmt.Sprintf("%d valid/accuracy  true 0", i),
			fmt.Sprintf("%d speed/step_seconds  false 0", i))
	}
	want = append(want, "0 _hparams_/session_end_info hparams false 0")
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	h := events[7].Values[0].Histogram
	if d := cmp.Diff(&Histogram{1, 3.5, 7.5, 20, []float64{1, 2, 4}, []float64{0, 1, 2}}, h); d != "" {
		t.Error(d)
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*"))
	if ok, _ := regexp.MatchString(`^events\.out\.tfevents\.\d{10}\.host_1\.\d+\.0$`, filepath.Base(names[0])); !ok {
		t.Errorf("file name %s", filepath.Base(names[0]))
	}
	// A second file of the same second and process gets a name of its own.
	w, err := NewWriter(dir, "host/1", start)
	if err != nil || !strings.HasSuffix(w.Path(), ".1") {
		t.Errorf("%v, %v", w, err)
	}
	w.Close()
}

// TestNoUTF8: names and texts that are no UTF-8 are written as what a reader of protocol buffers takes.
func TestNoUTF8(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWriter(dir, "h\xff", start)
	if err != nil {
		t.Fatal(err)
	}
	bad := "metric\xff"
	err = errors.Join(
		w.Scalar(start, bad, 1, 1), w.Text(start, "text", 1, bad), w.HParams(start, bad, map[string]any{bad: bad}),
		w.Graph(start, []Node{{Name: bad, Op: bad, Inputs: []string{bad}, Device: bad}}), w.Close(),
	)
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 1 || !utf8.ValidString(names[0]) {
		t.Fatalf("files %q: %v", names, err)
	}
	if p, err := os.ReadFile(names[0]); err != nil || bytes.Contains(p, []byte(bad)) {
		t.Errorf("%v: a string is as it was given: %q", err, p)
	}
	if e := readFile(t, dir); len(e) != 5 || e[1].Values[0].Tag != "metric\uFFFD" {
		t.Errorf("events %+v", e)
	}
}

func TestHParamsRefusesWhatItCannotShow(t *testing.T) {
	w, err := NewWriter(t.TempDir(), "h", start)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.HParams(start, "x", map[string]any{"list": []int{1}}); err == nil || !strings.Contains(err.Error(), `"list"`) {
		t.Errorf("error %v", err)
	}
	if err := w.Histogram(start, "h", 0, Histogram{Limits: []float64{1}}); err == nil {
		t.Error("a histogram with more limits than counts is taken")
	}
}

// TestOnePointASecond writes 100 points a second for ten seconds, each tag of which keeps one, the newest at the end.
func TestOnePointASecond(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWriter(dir, "h", start)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		at := start.Add(time.Duration(i) * 10 * time.Millisecond)
		if err := errors.Join(w.Scalar(at, "a", int64(i), float64(i)), w.FlushAt(at)); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	var steps []int64
	var last float64
	for _, e := range readFile(t, dir)[1:] {
		steps = append(steps, e.Step)
		if e.WallTime-last > 2 && last > 0 {
			t.Errorf("%g s without a point", e.WallTime-last)
		}
		last = e.WallTime
	}
	if len(steps) < 10 || len(steps) > 12 || steps[len(steps)-1] != 999 {
		t.Errorf("steps %v, want about ten and then 999", steps)
	}
}

func TestTagsAreBounded(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWriter(dir, "h", start)
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxTags + 3 {
		if err := w.Scalar(start, fmt.Sprintf("tag/%03d", i), 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.LeftOut(); len(got) != 3 || got[0] != "tag/200" {
		t.Errorf("left out %v", got)
	}
	w.Close()
	events := readFile(t, dir)
	if len(events) != 1+maxTags+1 {
		t.Errorf("%d events", len(events))
	}
	if v := events[len(events)-1].Values[0]; v.Tag != "left_out" || !strings.Contains(string(v.Strings[0]), "tag/202") {
		t.Errorf("the last record %q does not name what was left out", v.Strings)
	}
}

func TestHubFeedsWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w, err := NewWriter(dir, "h", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		hub := observe.NewHub(observe.Options{})
		hub.Attach("event file", w)
		r := hub.Recorder(observe.Source{Role: observe.Worker})
		hub.Collect(true)
		for i := range int64(40) {
			r.Begin(i)
			r.Enter(observe.Compute)
			time.Sleep(75 * time.Millisecond)
			r.Leave()
			time.Sleep(25 * time.Millisecond)
			r.End(observe.Facts{Samples: 100, Loss: 1 / float64(i+1)})
			r.Add(observe.CacheHits, 3)
			r.Add(observe.CacheMisses, 1)
			if i%10 == 9 {
				r.Evaluate("valid.auc", float64(i), i)
				r.Evaluate("train.loss", 100, i) // of the epoch: another chart than each update's
				hub.Collect(true)
			}
		}
		r.Event(observe.Warn, "slow", 39, "disk")
		hub.Collect(true)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		points := map[string][]float32{}
		for _, e := range readFile(t, dir)[1:] {
			for _, v := range e.Values {
				if v.IsScalar {
					points[v.Tag] = append(points[v.Tag], v.Scalar)
				} else {
					points[v.Tag] = append(points[v.Tag], float32(e.Step))
				}
			}
		}
		want := map[string][]float32{
			"train/batch_loss":         {1. / 10, 1. / 20, 1. / 30, 1. / 40, 1. / 40},
			"train/loss":               {100, 100, 100, 100},
			"valid/auc":                {9, 19, 29, 39},
			"speed/samples_per_second": {1000, 1000, 1000, 1000},
			"phases/compute":           {.75, .75, .75, .75},
			"phases/other":             {.25, .25, .25, .25},
			"speed/step_seconds":       {9, 19, 29, 39},
			"tables/cache_hit_ratio":   {.75, .75, .75, .75},
			"events":                   {39},
		}
		if d := cmp.Diff(want, points); d != "" {
			t.Error(d)
		}
	})
}

// TestStepOfProcess: what a process takes, which makes no steps itself, is drawn where training is. Only differences within an incarnation are rates.
func TestStepOfProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w, err := NewWriter(dir, "h", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		var steps, samples uint64
		frame := func(role observe.Role, incarnation uint64) {
			f := observe.Frame{Source: observe.Source{Role: role, Incarnation: incarnation}, At: time.Since(start)}
			switch role {
			case observe.Process:
				f.Gauges[observe.ResidentBytes], f.GaugeSet = 1, 1<<observe.ResidentBytes
			default:
				f.Gauges[observe.CurrentStep], f.GaugeSet = float64(steps), 1<<observe.CurrentStep
				f.Counters[observe.Steps], f.Counters[observe.Samples] = steps, samples
			}
			if err := w.Frame(f); err != nil {
				t.Fatal(err)
			}
		}
		for i, n := range []uint64{100, 150, 0, 30} { // of samples, as counted
			steps, samples = n+1, n
			frame(observe.Worker, uint64(i/2))
			frame(observe.Process, 0)
			time.Sleep(time.Second)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		got := map[string][]string{}
		for _, e := range readFile(t, dir)[1:] {
			for _, v := range e.Values {
				if v.IsScalar {
					got[v.Tag] = append(got[v.Tag], fmt.Sprintf("%g at %d", v.Scalar, e.Step))
				}
			}
		}
		want := map[string][]string{
			"process-0/host/resident_bytes": {"1 at 101", "1 at 151", "1 at 151", "1 at 151"},
			"speed/samples_per_second":      {"50 at 151", "30 at 31"},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	})
}

// TestTagsOfWorkers: the curves of worker 0, which measures the model, have the same tags whoever reports first.
func TestTagsOfWorkers(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWriter(dir, "h", start)
	if err != nil {
		t.Fatal(err)
	}
	hub := observe.NewHub(observe.Options{})
	hub.Attach("event file", w)
	for _, source := range []observe.Source{{Role: observe.Driver}, {Role: observe.Worker, Rank: 1}, {Role: observe.Worker}} {
		if err := hub.Recorder(source).Evaluate("test.accuracy", 0.5, 1); err != nil {
			t.Fatal(err)
		}
	}
	hub.Collect(true)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var tags []string
	for _, e := range readFile(t, dir)[1:] {
		for _, v := range e.Values {
			if strings.HasSuffix(v.Tag, "test/accuracy") {
				tags = append(tags, v.Tag)
			}
		}
	}
	slices.Sort(tags)
	if want := []string{"driver-0/test/accuracy", "test/accuracy", "worker-1/test/accuracy"}; !slices.Equal(tags, want) {
		t.Errorf("tags %q, want %q", tags, want)
	}
}

func TestHistogramFromBuckets(t *testing.T) {
	var h observe.Histogram
	for _, v := range []uint64{3, 3, 100, 1000} {
		h.Add(v)
	}
	got := fromBuckets(&h, 1)
	const squares = 2*3*3 + 99.5*99.5 + 991.5*991.5 // of the middles of the buckets
	want := Histogram{3, 1000, 1106, squares, []float64{3, 4, 96, 104, 960, 1024}, []float64{0, 2, 0, 1, 0, 1}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestReadNamesTheOffset(t *testing.T) {
	whole := appendRecord(nil, versionEvent(start))
	second := len(whole)
	whole = appendRecord(whole, summary(start, 1, scalarValue("loss", 0.5)))
	for _, c := range []struct {
		name string
		p    []byte
		want string
	}{
		{"cut in the head", whole[:second+5], "unexpected EOF"},
		{"cut in the body", whole[:len(whole)-1], "unexpected EOF"},
		{"flipped length", flip(whole, second), "length"},
		{"flipped body", flip(whole, second+14), "checksum"},
	} {
		var n int
		var last error
		for _, err := range Read(bytes.NewReader(c.p)) {
			if n++; err != nil {
				last = err
			}
		}
		if n != 2 || last == nil || !strings.Contains(last.Error(), c.want) || !strings.Contains(last.Error(), fmt.Sprintf("offset %d", second)) {
			t.Errorf("%s: %d events, %v", c.name, n, last)
		}
	}
}

func flip(p []byte, at int) []byte {
	p = bytes.Clone(p)
	p[at] ^= 1
	return p
}

func FuzzRead(f *testing.F) {
	p := appendRecord(nil, versionEvent(start))
	p = appendRecord(p, summary(start, 1, scalarValue("loss", 0.5)))
	p = appendRecord(p, summary(start, 1, histogramValue("h", Histogram{Limits: []float64{1}, Counts: []float64{2}})))
	p = appendRecord(p, summary(start, 0, layoutValue(StandardLayout())))
	f.Add(p, false)
	f.Add(graphDef([]Node{{Name: "a", Inputs: []string{"b"}}}), true)
	f.Add(versionEvent(start), true)
	f.Fuzz(func(t *testing.T, p []byte, bare bool) {
		if bare {
			p = appendRecord(nil, p) // past the checksums
		}
		n := 0
		for _, err := range Read(bytes.NewReader(p)) {
			if n++; err != nil && errors.Is(err, io.EOF) {
				t.Fatal("the end is no error")
			}
		}
		if n > len(p)/16+1 {
			t.Fatalf("%d events in %d bytes", n, len(p))
		}
	})
}

// keep is for compare/tensorboard_check.py: go test ./observe/tensorboard -run TestKeep -keep DIR writes an event file there.
var keep = flag.String("keep", "", "folder that TestKeep writes an event file with every kind of record to")

func TestKeep(t *testing.T) {
	dir := *keep
	if dir == "" {
		dir = t.TempDir()
	}
	writeAll(t, dir)
}
