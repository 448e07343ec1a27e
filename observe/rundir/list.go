package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium/internal/flock"
)

// An Entry is a run in a folder of runs: its head and its result, without the measurements.
type Entry struct {
	Dir     string
	Head    Head
	Result  *Result // nil: not finished
	Running bool    // a Writer is at work in it: not known where files cannot be locked
	Err     error   // the run cannot be read; then the others but Dir are empty
	Damage  *Damage // of a result that cannot be read: the run counts as one without
}

// State returns the reason that the run ended for, "running", or "unfinished" of one whose process died.
func (e Entry) State() string {
	switch {
	case e.Err != nil:
		return "unreadable"
	case e.Result == nil && e.Running:
		return "running"
	case e.Result == nil:
		return "unfinished"
	}
	return e.Result.Reason
}

// List returns the runs in the folder root, by their begin. A folder for which Is does not hold is no run. A root that does not exist has none.
func List(root string) ([]Entry, error) {
	folders, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("rundir: %w", err)
	}
	var out []Entry
	for _, f := range folders {
		dir := filepath.Join(root, f.Name())
		if Is(dir) {
			out = append(out, Read(dir))
		}
	}
	slices.SortStableFunc(out, func(a, b Entry) int {
		if c := a.Head.Start.Compare(b.Head.Start); c != 0 {
			return c
		}
		return strings.Compare(a.Dir, b.Dir)
	})
	return out, nil
}

// A VersionError says that a run is as whole as ever, and another program's to read.
type VersionError struct {
	File    string
	Version int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("rundir: %s has version %d, this program reads version %d; the program that wrote it reads it", e.File, e.Version, headVersion)
}

// Read reads the head and the result of a run.
func Read(dir string) Entry {
	e := Entry{Dir: dir, Running: running(dir)} // first: it has written its result by then, or it will write none
	name := filepath.Join(dir, headFile)
	p, err := os.ReadFile(name)
	if err != nil {
		return Entry{Dir: dir, Err: fmt.Errorf("rundir: %w", err)}
	}
	var of struct{ Version *int }
	if json.Unmarshal(p, &of) == nil && of.Version != nil && *of.Version != headVersion { // whose fields may be others
		return Entry{Dir: dir, Err: &VersionError{name, *of.Version}}
	}
	if why := decode(p, &e.Head, "version"); why != "" {
		return Entry{Dir: dir, Err: fmt.Errorf("rundir: %s: %s", name, why)}
	}
	p, err = os.ReadFile(filepath.Join(dir, resultFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return e
	case err != nil:
		return Entry{Dir: dir, Err: fmt.Errorf("rundir: %w", err)}
	}
	var r Result
	if why := decode(p, &r, "reason"); why != "" {
		e.Damage = &Damage{resultFile, 0, int64(len(p)), why}
		return e
	}
	e.Result = &r
	return e
}

// decode reads the object p into v, or says in words why it is none: cut off, edited by hand, without the key that each has.
func decode[T any](p []byte, v *T, key string) (why string) {
	var object map[string]json.RawMessage
	syntax, _ := errors.AsType[*json.SyntaxError](json.Unmarshal(p, &object))
	cut := errors.Is(json.NewDecoder(bytes.NewReader(p)).Decode(new(any)), io.ErrUnexpectedEOF) // which Unmarshal has no error of its own for
	switch {
	case len(bytes.TrimSpace(p)) == 0:
		return "it is empty"
	case cut:
		return fmt.Sprintf("it ends in the middle, after %d bytes", len(p))
	case syntax != nil:
		return fmt.Sprintf("it is no JSON: %v at byte %d", syntax, syntax.Offset)
	case object == nil:
		return "it holds no JSON object"
	case object[key] == nil, string(object[key]) == "null":
		return fmt.Sprintf("it has no %q", key)
	}
	if json.Unmarshal(p, v) == nil {
		return ""
	}
	for _, k := range slices.Sorted(maps.Keys(object)) { // the value by itself: the package's errors are in the words of Go's types
		alone, err := json.Marshal(map[string]json.RawMessage{k: object[k]})
		if err == nil && json.Unmarshal(alone, new(T)) != nil {
			return fmt.Sprintf("its %q cannot be %s", k, shortened(object[k]))
		}
	}
	return "it has keys twice"
}

// shortened is a value on one line, at most its first 40 letters.
func shortened(value json.RawMessage) string {
	const most = 40
	var line bytes.Buffer
	_ = json.Compact(&line, value) // it has been read already
	if letters := []rune(line.String()); len(letters) > most {
		return string(letters[:most]) + "..."
	}
	return line.String()
}

// running tells whether a Writer is at work in dir.
func running(dir string) bool { return flock.Taken(filepath.Join(dir, eventsFile)) }

// Is tells whether dir is a run directory. Other programs have a run.json too: a run has besides the folder of series, which Create makes
// before the head and Delete removes after all else; or a head alone, where a Delete was broken off.
func Is(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, headFile)); err != nil {
		return false
	}
	if info, err := os.Stat(filepath.Join(dir, seriesDir)); err == nil {
		return info.IsDir()
	}
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 1
}

// Delete removes a run with all that is in its folder, checkpoints too; of a link to one, the link alone. A folder that holds no run is
// refused, and so is a run that is under way. What makes it one goes last: what cannot be removed stays a run, which is listed and can be deleted again.
func Delete(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, headFile)); err != nil {
		return fmt.Errorf("rundir: %s is no run directory: %w", dir, err)
	}
	if !Is(dir) {
		return fmt.Errorf("rundir: %s is no run directory: beside its %s there are other files, and no folder %s", dir, headFile, seriesDir)
	}
	dir, err := filepath.Abs(dir) // of "link/" and "link/." the system would take what they lead to, and "." cannot be removed
	if err != nil {
		return fmt.Errorf("rundir: %w", err)
	}
	var entries []fs.DirEntry
	info, err := os.Lstat(dir)
	if err == nil && info.IsDir() {
		if running(dir) {
			return fmt.Errorf("rundir: %s is under way: it can be deleted once it has ended", dir)
		}
		entries, err = os.ReadDir(dir)
	}
	for _, e := range entries {
		if e.Name() != headFile && e.Name() != seriesDir {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err == nil && len(entries) > 0 {
		err = os.RemoveAll(filepath.Join(dir, seriesDir))
	}
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("rundir: %w", err)
	}
	return nil
}
