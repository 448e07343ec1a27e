package relay_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/relay"
)

// A sink keeps what it is given.
type sink struct {
	frames []observe.Frame
	steps  []sourced
	events []observe.Event
}

// A sourced step is one of that source.
type sourced struct {
	observe.Source
	observe.Step
}

func (s *sink) Frame(f observe.Frame) error { s.frames = append(s.frames, f); return nil }
func (s *sink) Step(source observe.Source, step observe.Step) error {
	s.steps = append(s.steps, sourced{source, step})
	return nil
}
func (s *sink) Event(e observe.Event) error { s.events = append(s.events, e); return nil }

// TestRelay: what a worker's recorder counts reaches the sinks of the driver's hub, number for number.
func TestRelay(t *testing.T) {
	start := time.Now()
	driver := observe.NewHub(observe.Options{Start: start})
	far := new(sink)
	driver.Attach("far", far)
	receiver := relay.NewReceiver(driver)

	worker := observe.NewHub(observe.Options{Start: start})
	near := new(sink)
	worker.Attach("near", near)
	worker.Attach("driver", relay.NewSender(receiver.Accept))
	r := worker.Recorder(observe.Source{Run: "r", Strategy: "average", Role: observe.Worker, Rank: 2})
	other := worker.Recorder(observe.Source{Run: "r", Strategy: "average", Role: observe.Worker, Rank: 3})
	for step := range int64(2500) {
		if step%100 == 50 { // the steps of two take turns
			other.Begin(step)
			other.End(observe.Facts{Samples: 1})
		}
		r.Begin(step + 1)
		r.Enter(observe.Compute)
		r.Leave()
		r.End(observe.Facts{Samples: 10, Loss: 1 / float64(step+1)})
		if step%500 == 0 {
			worker.Collect(true)
			driver.Collect(true)
		}
	}
	r.Event(observe.Warn, "straggler", 7, "worker 1 is late")
	worker.Collect(true)
	driver.Collect(true)
	if len(far.frames) != len(near.frames) || len(far.steps) != len(near.steps) || len(far.steps) == 0 {
		t.Fatalf("%d frames and %d steps arrived, %d and %d were sent", len(far.frames), len(far.steps), len(near.frames), len(near.steps))
	}
	for i := range near.steps {
		if near.steps[i] != far.steps[i] {
			t.Fatalf("step %d became %+v, was %+v", i, far.steps[i], near.steps[i])
		}
	}
	last := far.frames[len(far.frames)-2] // the last is the other's
	if got := last.Counter(observe.Samples); got != 25_000 {
		t.Errorf("%d samples arrived, want 25,000", got)
	}
	if last.Source.Rank != 2 || last.Source.Role != observe.Worker {
		t.Errorf("the frames are of %v", last.Source)
	}
	if len(far.events) != 1 || far.events[0].Text != "worker 1 is late" || far.events[0].Step != 7 {
		t.Errorf("events %+v", far.events)
	}
	if latest := driver.Latest(); len(latest) != 2 || latest[0].Frame.Counter(observe.Steps) != 2500 {
		t.Errorf("the driver's hub knows %d sources", len(latest))
	}
}

// TestLongText: a text that is too long is cut between two characters.
func TestLongText(t *testing.T) {
	driver, far := observe.NewHub(observe.Options{}), new(sink)
	driver.Attach("far", far)
	sender := relay.NewSender(relay.NewReceiver(driver).Accept)
	if err := sender.Event(observe.Event{Source: observe.Source{Run: "r", Role: observe.Worker}, Text: "x" + strings.Repeat("é", 16<<10)}); err != nil {
		t.Fatal(err)
	}
	driver.Collect(false)
	if len(far.events) != 1 {
		t.Fatalf("%d events", len(far.events))
	}
	if text := far.events[0].Text; !utf8.ValidString(text) || len(text) != 16<<10-1 {
		t.Errorf("the text has %d bytes, and ends with %q", len(text), text[len(text)-2:])
	}
}

func FuzzAccept(f *testing.F) {
	hub := observe.NewHub(observe.Options{})
	var payloads [][]byte
	worker := observe.NewHub(observe.Options{})
	worker.Attach("driver", relay.NewSender(func(p []byte) error { payloads = append(payloads, p); return nil }))
	r := worker.Recorder(observe.Source{Run: "r", Role: observe.Worker})
	r.Begin(1)
	r.End(observe.Facts{Samples: 1})
	r.Event(observe.Info, "end", 1, "done")
	worker.Collect(true)
	for _, p := range payloads {
		f.Add(p)
	}
	receiver := relay.NewReceiver(hub)
	f.Fuzz(func(_ *testing.T, p []byte) {
		_ = receiver.Accept(p) // any answer but a panic
		hub.Collect(false)
	})
}
