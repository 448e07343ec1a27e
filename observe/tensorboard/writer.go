package tensorboard

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	pointEvery = time.Second // of a tag
	maxTags    = 200         // of a directory
	maxFiles   = 1000        // one process makes in a directory within one second
)

// A Writer writes an event file. It is safe for concurrent use; times are wall time and come from the caller.
type Writer struct {
	mu     sync.Mutex
	file   *os.File
	tags   map[string]*tagState
	left   map[string]bool // tags there was no room for
	failed error
	closed bool
	buffer []byte
	charts sinkState
}

type tagState struct {
	last    time.Time // wall time of the last written point
	waiting *point    // the newest that came too early
}

type point struct {
	at    time.Time
	step  int64
	value []byte // of a Summary
}

// NewWriter creates an event file in dir, which is made if need be: one directory per process. Start is in the file's name.
func NewWriter(dir, host string, start time.Time) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	file, err := create(dir, host, start)
	if err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	w := &Writer{file: file, tags: map[string]*tagState{}, left: map[string]bool{}}
	if err := w.write(versionEvent(start)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return w, nil
}

// create makes events.out.tfevents.<10-digit seconds>.<host>.<pid>.<uid> with the first uid that is free.
func create(dir, host string, start time.Time) (*os.File, error) {
	host = strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r == ':' || r < ' ' {
			return '_'
		}
		return r
	}, host)
	for uid := range maxFiles {
		name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.%d", start.Unix(), host, os.Getpid(), uid)
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return file, err
		}
	}
	return nil, fmt.Errorf("%s has %d event files of this second already", dir, maxFiles)
}

// Path returns the event file's name.
func (w *Writer) Path() string { return w.file.Name() }

// versionEvent is the first record of a file.
func versionEvent(at time.Time) []byte {
	p := appendString(stamp(at, 0), eventFileVersion, "brain.Event:2")
	return appendMessage(p, eventSourceMetadata, appendString(nil, 1, "trivium"))
}

// stamp begins an event.
func stamp(at time.Time, step int64) []byte {
	p := appendDouble(nil, eventWallTime, float64(at.UnixNano())/1e9)
	return appendInt(p, eventStep, step)
}

// write writes an event as one record in one call. After an error nothing more is written: half a record would hide what follows.
func (w *Writer) write(event []byte) error {
	switch {
	case w.closed:
		return fmt.Errorf("tensorboard: %s: %w", w.file.Name(), fs.ErrClosed)
	case w.failed != nil:
		return w.failed
	}
	w.buffer = appendRecord(w.buffer[:0], event)
	if _, err := w.file.Write(w.buffer); err != nil {
		w.failed = fmt.Errorf("tensorboard: %w", err)
	}
	return w.failed
}

// Scalar adds a point to the chart of a tag, at most one a second: of those that come faster the newest is kept, and written when the
// second is over, by Flush or the next point, or by Close.
func (w *Writer) Scalar(at time.Time, tag string, step int64, v float64) error {
	return w.add(at, tag, step, scalarValue(tag, v))
}

// A Histogram is what TensorBoard draws: counts between upper limits. Limits and Counts are of one length.
type Histogram struct {
	Min, Max, Sum, SumSquares float64
	Limits, Counts            []float64
}

// Histogram adds a histogram to a tag, under the same limit.
func (w *Writer) Histogram(at time.Time, tag string, step int64, h Histogram) error {
	if len(h.Limits) != len(h.Counts) {
		return fmt.Errorf("tensorboard: histogram %q has %d limits and %d counts", tag, len(h.Limits), len(h.Counts))
	}
	return w.add(at, tag, step, histogramValue(tag, h))
}

func (w *Writer) add(at time.Time, tag string, step int64, value []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	t, ok := w.room(tag)
	if !ok {
		return nil
	}
	p := point{at, step, value}
	if !t.last.IsZero() && at.Sub(t.last) < pointEvery {
		t.waiting = &p
		return nil
	}
	return w.point(t, p)
}

// room returns the state of a tag, unless the directory has its 200 already. Those left out are named in the file when it is closed.
func (w *Writer) room(tag string) (*tagState, bool) {
	t := w.tags[tag]
	if t == nil {
		if len(w.tags) == maxTags {
			w.left[tag] = true
			return nil, false
		}
		t = &tagState{}
		w.tags[tag] = t
	}
	return t, true
}

func (w *Writer) point(t *tagState, p point) error {
	t.last, t.waiting = p.at, nil
	return w.write(appendMessage(stamp(p.at, p.step), eventSummary, appendMessage(nil, summaryValue, p.value)))
}

// Text adds a text, in Markdown, to a tag.
func (w *Writer) Text(at time.Time, tag string, step int64, markdown string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text(at, tag, step, markdown)
}

func (w *Writer) text(at time.Time, tag string, step int64, markdown string) error {
	if _, ok := w.room(tag); !ok {
		return nil
	}
	return w.write(summary(at, step, textValue(tag, markdown)))
}

// Graph writes a graph, for the graphs page. A file has one.
func (w *Writer) Graph(at time.Time, nodes []Node) error {
	p := appendMessage(stamp(at, 0), eventGraph, graphDef(nodes))
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.write(p)
}

// HParams writes the hyper-parameters of this run: strings, numbers and truth values. EndHParams says how it ended. TensorBoard shows
// runs of one group as repetitions of one another, so the group is usually the run's own name.
func (w *Writer) HParams(start time.Time, group string, values map[string]any) error {
	value, err := sessionStart(start, group, values)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.write(summary(start, 0, value))
}

// EndHParams closes what HParams opened.
func (w *Writer) EndHParams(end time.Time, succeeded bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.write(summary(end, 0, sessionEnd(end, succeeded)))
}

// Layout writes the arrangement of the custom scalars page.
func (w *Writer) Layout(at time.Time, categories []Category) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.write(summary(at, 0, layoutValue(categories)))
}

func summary(at time.Time, step int64, value []byte) []byte {
	return appendMessage(stamp(at, step), eventSummary, appendMessage(nil, summaryValue, value))
}

// Flush writes the points that wait and whose second is over. All else is with the operating system already. A hub calls it at each
// round, so that no point waits longer than 2 s.
func (w *Writer) Flush() error { return w.FlushAt(time.Now()) }

// FlushAt is Flush at a given time.
func (w *Writer) FlushAt(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flush(func(t *tagState) bool { return now.Sub(t.last) >= pointEvery })
}

func (w *Writer) flush(due func(*tagState) bool) error {
	for _, tag := range slices.Sorted(maps.Keys(w.tags)) {
		if t := w.tags[tag]; t.waiting != nil && due(t) {
			if err := w.point(t, *t.waiting); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close writes all points that wait and closes the file. If tags were left out, a text says which.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	err := w.flush(func(*tagState) bool { return true })
	if len(w.left) > 0 {
		text := fmt.Sprintf("%d tags beyond the first %d were left out: %s", len(w.left), maxTags, strings.Join(w.leftOut(), ", "))
		err = errors.Join(err, w.write(summary(time.Now(), 0, textValue("left_out", text))))
	}
	err = errors.Join(err, w.file.Close())
	w.closed = true
	return err
}

// LeftOut returns the tags that there was no room for.
func (w *Writer) LeftOut() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leftOut()
}

func (w *Writer) leftOut() []string { return slices.Sorted(maps.Keys(w.left)) }
