package rundir

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/coding"
)

// A Run is a run directory that was opened for reading.
type Run struct {
	Dir     string
	Head    Head
	Result  *Result // nil: the run has not finished
	Events  []observe.Event
	Sources []observe.Source // that have frames or steps, by role and rank; without incarnation
	Last    map[string]observe.Frame
	Damage  []Damage // what could not be read
}

// Open reads a run directory, of a run that is finished, under way, or crashed. What cannot be read is in Damage; an error means that
// there is no run to speak of, and names the path.
func Open(dir string) (*Run, error) {
	entry := Read(dir)
	if entry.Err != nil {
		return nil, entry.Err
	}
	r := &Run{Dir: dir, Head: entry.Head, Result: entry.Result, Last: map[string]observe.Frame{}}
	if entry.Damage != nil {
		r.Damage = append(r.Damage, *entry.Damage)
	}
	if err := r.readEvents(); err != nil {
		return nil, err
	}
	if err := r.findSources(); err != nil {
		return nil, err
	}
	for _, source := range r.Sources {
		damage, err := r.scanFrames(source, func(f observe.Frame) bool {
			r.Last[source.String()] = f
			return true
		})
		if err != nil {
			return nil, err
		}
		r.Damage = append(r.Damage, damage...)
		damage, err = r.scanSteps(source, func(observe.Step) bool { return true })
		if err != nil {
			return nil, err
		}
		r.Damage = append(r.Damage, damage...)
	}
	return r, nil
}

// Frames walks the frames of a source in the order they were written; damaged ones, which are in Damage, are passed over. An error
// ends the walk.
func (r *Run) Frames(source observe.Source) iter.Seq2[observe.Frame, error] {
	return func(yield func(observe.Frame, error) bool) {
		_, err := r.scanFrames(source, func(f observe.Frame) bool { return yield(f, nil) })
		if err != nil {
			yield(observe.Frame{}, err)
		}
	}
}

// Steps walks the recorded steps of a source, likewise.
func (r *Run) Steps(source observe.Source) iter.Seq2[observe.Step, error] {
	return func(yield func(observe.Step, error) bool) {
		_, err := r.scanSteps(source, func(s observe.Step) bool { return yield(s, nil) })
		if err != nil {
			yield(observe.Step{}, err)
		}
	}
}

func (r *Run) scanFrames(source observe.Source, yield func(observe.Frame) bool) ([]Damage, error) {
	var coder coding.FrameCoder
	return r.scanFile(filepath.Join(seriesDir, source.String()+".bin"), func(payload []byte) (bool, error) {
		f, err := coder.Decode(source, payload)
		if err != nil {
			return true, err
		}
		return yield(f), nil
	})
}

func (r *Run) scanSteps(source observe.Source, yield func(observe.Step) bool) ([]Damage, error) {
	var steps []observe.Step
	return r.scanFile(filepath.Join(stepsDir, source.String()+".bin"), func(payload []byte) (bool, error) {
		var err error
		if steps, _, err = coding.DecodeSteps(steps[:0], payload); err != nil {
			return true, err
		}
		for _, s := range steps {
			if !yield(s) {
				return false, nil
			}
		}
		return true, nil
	})
}

// scanFile scans a binary file; one that is not there is empty.
func (r *Run) scanFile(name string, f func(payload []byte) (bool, error)) ([]Damage, error) {
	file, err := os.Open(filepath.Join(r.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("rundir: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("rundir: %w", err)
	}
	damage, err := scan(filepath.ToSlash(name), file, info.Size(), f)
	if err != nil {
		return damage, fmt.Errorf("rundir: %w", err)
	}
	return damage, nil
}

func (r *Run) readEvents() error {
	file, err := os.Open(filepath.Join(r.Dir, eventsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("rundir: %w", err)
	}
	defer file.Close()
	in := bufio.NewReader(file)
	var offset int64
	for {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("rundir: %w", err)
		}
		if len(line) == 0 {
			return nil
		}
		var e eventLine
		switch bad := json.Unmarshal(line, &e); {
		case !bytes.HasSuffix(line, []byte("\n")):
			r.Damage = append(r.Damage, Damage{eventsFile, offset, int64(len(line)), "the file ends inside a line"})
		case bad != nil:
			r.Damage = append(r.Damage, Damage{eventsFile, offset, int64(len(line)), bad.Error()})
		default:
			r.Events = append(r.Events, e.event(r.Head))
		}
		offset += int64(len(line))
	}
}

func (e eventLine) event(h Head) observe.Event {
	out := observe.Event{
		Time: e.Time, Level: e.Level, Kind: e.Kind, Step: -1, Text: e.Text,
		Source: observe.Source{Role: e.Role, Rank: e.Rank, Incarnation: e.Incarnation},
	}
	if e.Role != "" {
		out.Source.Run, out.Source.Strategy = h.Name, h.Strategy
	}
	if e.Step != nil {
		out.Step = *e.Step
	}
	return out
}

func (r *Run) findSources() error {
	seen := map[string]bool{}
	for _, d := range []string{seriesDir, stepsDir} {
		entries, err := os.ReadDir(filepath.Join(r.Dir, d))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rundir: %w", err)
		}
		for _, e := range entries {
			name, isBin := strings.CutSuffix(e.Name(), ".bin")
			role, rankText, ok := strings.Cut(name, "-")
			rank, err := strconv.Atoi(rankText)
			if !isBin || !ok || err != nil || seen[name] {
				continue // not of this package: a halved file of a crash, an editor's copy
			}
			seen[name] = true
			r.Sources = append(r.Sources, observe.Source{Run: r.Head.Name, Strategy: r.Head.Strategy, Role: observe.Role(role), Rank: rank})
		}
	}
	slices.SortFunc(r.Sources, func(a, b observe.Source) int {
		if a.Role != b.Role {
			return strings.Compare(string(a.Role), string(b.Role))
		}
		return a.Rank - b.Rank
	})
	return nil
}
