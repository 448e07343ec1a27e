package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/internal/atomicfile"
	"github.com/trivium-ml/trivium/internal/flock"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/coding"
)

const (
	headFile   = "run.json"
	resultFile = "result.json"
	eventsFile = "events.jsonl"
	seriesDir  = "series"
	stepsDir   = "steps"

	stepsFileBytes = 256 << 20 // of one source: then every second step goes
	blockSteps     = 256       // steps in a block: some 10 KB
)

// A Writer writes a run directory. It is an observe.Sink and an observe.Flusher, and safe for concurrent use. A record reaches the
// operating system in one write call, so that a crash of the program tears at most the last one.
//
// Until Finish or Close, or the end of the process, the run is this Writer's: it counts as running, and is not deleted.
type Writer struct {
	dir  string
	head Head

	mu     sync.Mutex
	events *os.File // taken, as long as the run is under way; nil: closed
	torn   bool     // the last event is there in part: the disk was full
	series map[string]*seriesFile
	steps  map[string]*stepsFile
	buffer []byte
	limit  int64 // of a steps file
	closed bool
}

type seriesFile struct {
	file  *os.File
	coder coding.FrameCoder
}

// ErrTaken is why a folder does not become another run's.
var ErrTaken = errors.New("holds a run already")

// Create makes dir a new run directory. A folder that holds a run already is refused, with ErrTaken.
func Create(dir string, head Head) (w *Writer, err error) {
	if _, err := os.Stat(filepath.Join(dir, headFile)); err == nil {
		return nil, fmt.Errorf("rundir: %s %w", dir, ErrTaken)
	}
	head.Version = headVersion
	if head.Start.IsZero() {
		head.Start = time.Now()
	}
	if head.Name == "" {
		head.Name = filepath.Base(dir)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("rundir: %w", err)
	}
	err = os.Mkdir(filepath.Join(dir, seriesDir), 0o777)
	if errors.Is(err, fs.ErrExist) { // of two that begin at once, one made it
		return nil, fmt.Errorf("rundir: %s %w", dir, ErrTaken)
	}
	defer func() {
		if err != nil { // nothing half-made stays behind; a folder with something else in it does
			for _, name := range []string{eventsFile, headFile, stepsDir, seriesDir, "."} {
				_ = os.Remove(filepath.Join(dir, name))
			}
		}
	}()
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, stepsDir), 0o777)
	}
	if err != nil {
		return nil, fmt.Errorf("rundir: %w", err)
	}
	events, err := openAppend(filepath.Join(dir, eventsFile))
	if err != nil {
		return nil, fmt.Errorf("rundir: %w", err)
	}
	if !flock.Take(events) { // before the head: from then on others see a run, and that it is taken
		return nil, errors.Join(fmt.Errorf("rundir: %s %w", dir, ErrTaken), events.Close())
	}
	if err := writeJSON(filepath.Join(dir, headFile), head); err != nil {
		return nil, errors.Join(err, events.Close())
	}
	return &Writer{
		dir: dir, head: head, events: events, series: map[string]*seriesFile{}, steps: map[string]*stepsFile{},
		limit: stepsFileBytes,
	}, nil
}

func openAppend(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
}

// writeJSON writes a file as a whole or not at all.
func writeJSON(name string, v any) error {
	p, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("rundir: %s: %w", name, err)
	}
	if err := atomicfile.WriteBytes(name, append(p, '\n'), atomicfile.Options{Mode: 0o666}); err != nil {
		return fmt.Errorf("rundir: %w", err)
	}
	return nil
}

// Dir returns the folder.
func (w *Writer) Dir() string { return w.dir }

var errClosed = fmt.Errorf("rundir: %w", fs.ErrClosed)

// checkSource refuses a role that could not be part of a file's name: frames may come from other machines.
func checkSource(s observe.Source) error {
	letters := func(r rune) bool { return r >= 'a' && r <= 'z' }
	if s.Role == "" || strings.TrimFunc(string(s.Role), letters) != "" || s.Rank < 0 {
		return fmt.Errorf("rundir: source %q rank %d: want a role in small letters and a rank from 0", s.Role, s.Rank)
	}
	return nil
}

// Frame appends a frame to the series of its source.
func (w *Writer) Frame(f observe.Frame) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	name := f.Source.String()
	s := w.series[name]
	if s == nil {
		if err := checkSource(f.Source); err != nil {
			return err
		}
		file, err := openAppend(filepath.Join(w.dir, seriesDir, name+".bin"))
		if err != nil {
			return fmt.Errorf("rundir: %w", err)
		}
		s = &seriesFile{file: file}
		w.series[name] = s
	}
	payload := s.coder.Append(nil, &f)
	if len(payload) > maxPayload {
		return fmt.Errorf("rundir: frame %d of %s takes %d bytes, more than %d", f.Sequence, f.Source, len(payload), maxPayload)
	}
	w.buffer = appendBlock(w.buffer[:0], payload)
	if _, err := s.file.Write(w.buffer); err != nil {
		return fmt.Errorf("rundir: %w", err)
	}
	return nil
}

// Step appends a step. It reaches the file with the next Flush, or with the block that it fills.
func (w *Writer) Step(source observe.Source, step observe.Step) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	name := source.String()
	s := w.steps[name]
	if s == nil {
		if err := checkSource(source); err != nil {
			return err
		}
		s = &stepsFile{name: filepath.Join(w.dir, stepsDir, name+".bin"), limit: w.limit, every: 1}
		if err := s.open(); err != nil {
			return err
		}
		w.steps[name] = s
	}
	return s.add(source.Incarnation, step)
}

// Flush writes the steps that wait.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flush()
}

func (w *Writer) flush() error {
	var errs []error
	for _, s := range w.steps {
		errs = append(errs, s.flush())
	}
	return errors.Join(errs...)
}

// eventLine is a line of events.jsonl.
type eventLine struct {
	Time        time.Time     `json:"time"`
	Level       observe.Level `json:"level"`
	Kind        string        `json:"kind"`
	Role        observe.Role  `json:"role,omitempty"`
	Rank        int           `json:"rank"`
	Incarnation uint64        `json:"incarnation,omitempty"`
	Step        *int64        `json:"step,omitempty"`
	Text        string        `json:"text"`
}

// Event appends an event.
func (w *Writer) Event(e observe.Event) error {
	line := eventLine{e.Time, e.Level, e.Kind, e.Source.Role, e.Source.Rank, e.Source.Incarnation, nil, e.Text}
	if e.Step >= 0 {
		line.Step = &e.Step
	}
	p, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("rundir: event: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	p = append(p, '\n')
	if w.torn {
		p = append([]byte{'\n'}, p...)
	}
	n, err := w.events.Write(p)
	w.torn = err != nil && (w.torn || n > 0)
	if err != nil {
		return fmt.Errorf("rundir: %w", err)
	}
	return nil
}

// Finish writes what waits; then it writes the result, also if something before did not work: a reader must learn how the run ended. Then
// it closes what Close does. Where the folder was removed, or moved, in mid-run, others may have written checkpoints there anew: with a new head
// they are a run again, and the error says what it lacks.
func (w *Writer) Finish(r Result) error {
	if r.End.IsZero() {
		r.End = time.Now()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.closeFiles(), w.restore(), writeJSON(filepath.Join(w.dir, resultFile), r), w.letGo())
}

// restore makes a folder that has lost its head a run directory again.
func (w *Writer) restore() error {
	name := filepath.Join(w.dir, headFile)
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := os.MkdirAll(filepath.Join(w.dir, seriesDir), 0o777)
	if err != nil {
		err = fmt.Errorf("rundir: %w", err)
	} else {
		err = writeJSON(name, w.head)
	}
	lacks := fmt.Errorf("rundir: %s was removed or moved while the run was under way: it has none of the run's events and measurements", w.dir)
	return errors.Join(lacks, err)
}

// Close writes what waits and closes all files without a result: the run counts as unfinished. A second Close does nothing.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.closeFiles(), w.letGo())
}

// closeFiles writes what waits and closes all files but that of the events.
func (w *Writer) closeFiles() error {
	if w.closed {
		return nil
	}
	w.closed = true
	errs := []error{w.flush()}
	for _, s := range w.series {
		errs = append(errs, s.file.Close())
	}
	for _, s := range w.steps {
		errs = append(errs, s.file.Close())
	}
	return errors.Join(errs...)
}

// letGo ends this Writer's hold on the run.
func (w *Writer) letGo() error {
	if w.events == nil {
		return nil
	}
	flock.Release(w.events)
	err := w.events.Close()
	w.events = nil
	return err
}
