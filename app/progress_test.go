package app

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/observe/rundir"
	"github.com/trivium-ml/trivium/train"
)

var halfway = figures{
	Progress: train.Progress{Epoch: 3, Epochs: 10, Step: 500, Steps: 1000, Loss: 0.08712, Samples: 50_000, Elapsed: 10 * time.Second},
	Metrics:  map[string]float64{"valid.accuracy": 0.961, "test.auc": math.NaN()},
}

func TestBarLine(t *testing.T) {
	got := barLine(halfway, 80, false)
	if want := "epoch 3/10  [================>                ]  50 %  loss 0.08712  5k samples/s  left 00:10"; len(got) > 80 || !strings.HasPrefix(got, "epoch 3/10  [==") ||
		!strings.HasSuffix(got, want[strings.Index(want, "  50 %")+1:]) {
		t.Errorf("got %q (%d columns)", got, len(got))
	}
	if narrow := barLine(halfway, 30, false); len(narrow) > 29 {
		t.Errorf("%q has %d columns, want 29 at most", narrow, len(narrow))
	}
	if strings.Contains(got, "\x1b") || !strings.Contains(barLine(halfway, 80, true), "\x1b[32m") {
		t.Error("want colour where it is asked for, and only there")
	}
}

func TestKeyValues(t *testing.T) {
	want := "epoch=3 step=500 steps=1000 loss=0.08712 samples_per_second=5000 seconds=10.0 left=10 test.auc=NaN valid.accuracy=0.961"
	if got := keyValues(halfway); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestProgressOfAResumedRun(t *testing.T) {
	f := halfway
	f.Began = 400 // 100 updates in 10 s, 500 to go
	if got := f.Left(); got != 50*time.Second {
		t.Errorf("%v left, want 50s", got)
	}
}

// TestProgressLines: in a pipe a line every five seconds, on a terminal ten drawings a second, and as JSON an object a line.
func TestProgressLines(t *testing.T) {
	for _, c := range []struct {
		style style
		want  int
	}{{quiet, 0}, {lines, 4}, {objects, 4}, {bar, 200}} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			p := &progress{out: &out, style: c.style, size: func() (int, int) { return 80, 24 }, stop: make(chan struct{})}
			p.last = halfway
			p.start()
			time.Sleep(20*time.Second + time.Millisecond)
			p.finish()
			sep := "\n"
			if c.style == bar {
				sep = "\rep"
			}
			if got := strings.Count(out.String(), sep); got != c.want {
				t.Errorf("style %d: %d drawings in 20 s, want %d", c.style, got, c.want)
			}
			if c.style != objects {
				return
			}
			for line := range strings.Lines(out.String()) {
				var o map[string]any
				if err := json.Unmarshal([]byte(line), &o); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				if o["event"] != "progress" || o["step"] != 500.0 || o["test.auc"] != nil || o["seconds_left"] != 10.0 {
					t.Errorf("got %v", o)
				}
			}
		})
	}
}

func TestFigures(t *testing.T) {
	for got, want := range map[string]string{
		thousands(10980): "10,980", thousands(12): "12",
		clock(90 * time.Second): "01:30", clock(3725 * time.Second): "1:02:05",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestAsOf: a result says of which update its metrics are where that is not the last, also where a run that goes on has them from before.
func TestAsOf(t *testing.T) {
	resumed := func(evaluated int64) *checkpoint.Checkpoint {
		return &checkpoint.Checkpoint{Progress: checkpoint.Progress{Step: 50, Evaluated: evaluated}}
	}
	for _, c := range []struct {
		resume    *checkpoint.Checkpoint
		evaluated int64 // 0: not
		metrics   map[string]float64
		want      string
	}{
		{nil, 1040, map[string]float64{"test.accuracy": 0.75}, "interrupted  test.accuracy 0.75  as of update 1,040  0 "},
		{nil, 1060, map[string]float64{"test.accuracy": 0.75}, "interrupted  test.accuracy 0.75  0 "},
		{nil, 0, nil, "interrupted  0 "},
		{resumed(40), 0, map[string]float64{"test.accuracy": 0.75}, "interrupted  test.accuracy 0.75  as of update 40  0 "},
		{resumed(40), 1060, map[string]float64{"test.accuracy": 0.75}, "interrupted  test.accuracy 0.75  0 "},
		{resumed(-1), 0, map[string]float64{"test.accuracy": 0.75}, "interrupted  test.accuracy 0.75  as of the run before  0 "},
	} {
		var out bytes.Buffer
		run := &training{resume: c.resume, show: &progress{out: &out, style: lines}}
		o := newObservation(rundir.Head{})
		watch := run.watch(o, nil)
		if c.evaluated > 0 {
			watch.Evaluated(train.Progress{Step: c.evaluated}, c.metrics)
			out.Reset()
		}
		run.conclude(o, trivium.Result{Reason: trivium.Interrupted, Steps: 1060, Metrics: c.metrics}, nil)
		if !strings.HasPrefix(out.String(), c.want) {
			t.Errorf("evaluated after update %d of %+v: %q, want %q", c.evaluated, c.resume, &out, c.want)
		}
	}
}

// TestBeforeAnyUpdate: of a model that is measured before any update there is neither an epoch nor a loss to show.
func TestBeforeAnyUpdate(t *testing.T) {
	for style, want := range map[style]string{
		lines:   "evaluated epoch=0 step=0 samples_per_second=0 seconds=0.0 test.accuracy=0.1\n",
		objects: `{"epoch":0,"epochs":0,"event":"evaluation","samples":0,"samples_per_second":0,"seconds":0,"step":0,"steps":0,"test.accuracy":0.1}` + "\n",
		bar:     "epoch 0    test.accuracy 0.1  0 samples/s\n",
	} {
		var out strings.Builder
		p := &progress{out: &out, style: style}
		p.evaluated(train.Progress{Epoch: 1, Loss: math.NaN()}, map[string]float64{"test.accuracy": 0.1})
		if out.String() != want {
			t.Errorf("style %d: %q, want %q", style, &out, want)
		}
	}
	unknown := figures{Progress: train.Progress{Epoch: 1, Epochs: 2, Step: 3, Steps: 9, Loss: math.NaN()}} // of a worker that had no rows yet
	if line := barLine(unknown, 80, false); strings.Contains(line, "loss") {
		t.Errorf("the bar is %q, want no loss", line)
	}
}
