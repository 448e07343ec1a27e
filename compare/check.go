package compare

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
)

//go:embed check.py
var checkProgram string

// checkTolerance is how far NumPy's loss may be from ours.
const checkTolerance = 1e-5

// check has check.py recompute the losses of the first repeat's saved parameters.
func (r *Report) check(ctx context.Context, p *Plan) {
	list, why := r.checkList(ctx, p)
	if why != "" {
		r.Check.Why = why
		return
	}
	python, err := findNumPy(ctx, p.Python)
	if err != nil {
		r.Check.Why = err.Error()
		return
	}
	var in bytes.Buffer
	enc := json.NewEncoder(&in)
	for _, x := range list {
		if err := enc.Encode(map[string]string{"path": x.path, "x": x.x, "y": x.y}); err != nil {
			r.Check.Why = err.Error()
			return
		}
	}
	out, err := recompute(ctx, python, &in, checkPause)
	if err != nil {
		r.Check.Why = err.Error()
		return
	}
	var found Check
	for lines, i := bufio.NewScanner(bytes.NewReader(out)), 0; lines.Scan() && i < len(list); i++ {
		var x struct {
			Loss float64 `json:"loss"`
		}
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			r.Check.Why = fmt.Sprintf("check.py answers %.80q: %v", printable(lines.Text()), err) // such as NaN, where ours is a number
			return
		}
		found.Compared++
		found.Largest = max(found.Largest, math.Abs(x.Loss-list[i].loss))
	}
	if found.Compared != len(list) { // a part of the proof is none
		found = Check{Why: fmt.Sprintf("%s recomputed %d of %d losses by check.py: is it a Python with NumPy?", python, found.Compared, len(list))}
	}
	r.Check = found
}

// checkPause is for check.py to recompute 64 losses: of 400 MB of rows that is seconds, where no disk has to be waited for.
const checkPause = 10 * time.Minute

// recompute has check.py answer the lines of in, and gives it up where it says nothing for so long.
func recompute(ctx context.Context, python string, in io.Reader, pause time.Duration) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := &awaited{pause: pause, late: time.AfterFunc(pause, func() { cancel(fmt.Errorf("it hangs: no loss in %v", pause)) })}
	defer out.late.Stop()
	cmd := exec.CommandContext(ctx, python, "-c", checkProgram)
	cmd.WaitDelay = time.Second // what it started may keep its output open
	var problems lastLines
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &problems
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("check.py: %w: %s", err, last(problems.lines()))
	}
	return out.text.Bytes(), nil
}

// An awaited text puts off what happens where nothing is written to it for so long.
type awaited struct {
	text  bytes.Buffer
	pause time.Duration
	late  *time.Timer
}

func (w *awaited) Write(p []byte) (int, error) {
	w.late.Reset(w.pause)
	return w.text.Write(p)
}

func last(lines []string) string {
	if len(lines) == 0 {
		return "it says nothing"
	}
	return lines[len(lines)-1]
}

// A checked loss is one that is to be recomputed.
type checked struct {
	path, x, y string
	loss       float64
}

// checkList are the losses that check.py can recompute: those of the paper's models.
func (r *Report) checkList(ctx context.Context, p *Plan) (list []checked, why string) {
	seen := map[string]bool{}
	for _, t := range r.Tables {
		if t.Own {
			return nil, "check.py knows the paper's models, and not every user's"
		}
		dir := filepath.Join(p.Dir, dataDir, t.Task)
		var wanted bool
		for _, x := range t.Rows {
			if seen[x.cell] { // a row of several tables
				continue
			}
			seen[x.cell] = true
			for _, one := range x.Trials {
				if one.Repeat != 1 || one.Result.Error != "" {
					continue
				}
				trial := filepath.Join(p.Dir, trialsDir, x.cell+"-r1")
				for _, pt := range one.Result.Curve {
					path := filepath.Join(trial, snapshotName(pt.Update))
					if _, err := os.Stat(path); err != nil || math.IsNaN(pt.Loss) {
						continue
					}
					wanted = true
					list = append(list, checked{path, filepath.Join(dir, "train-x.npy"), filepath.Join(dir, "train-y.npy"), pt.Loss})
				}
			}
		}
		if !wanted {
			continue
		}
		i := slices.IndexFunc(p.Tasks, func(x Task) bool { return x.Name == t.Task })
		task := p.Tasks[i]
		var err error
		if task.Job.Data, err = drawn(ctx, task.Job.Data, filepath.Join(p.Dir, dataDir)); err != nil {
			return nil, err.Error()
		}
		if err := prepareFor(ctx, task, p.Host, dir); err != nil {
			return nil, err.Error()
		}
	}
	if len(list) == 0 {
		return nil, "no parameters were saved"
	}
	return list, ""
}

// findNumPy returns a Python that has NumPy.
func findNumPy(ctx context.Context, given string) (string, error) {
	names := []string{"python3", "python"}
	if given != "" {
		names = []string{given}
	}
	for _, n := range names {
		path, err := exec.LookPath(n)
		if err != nil {
			continue
		}
		if _, err := answer(ctx, detectLimit, path, "-c", "import numpy"); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("looked for %s with NumPy on PATH (--python names one)", strings.Join(names, " and "))
}

// answer is what a Python prints; an error where it ends with another code than 0, or not in time.
func answer(ctx context.Context, limit time.Duration, python string, words ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, words...)
	cmd.WaitDelay = time.Second // as above
	return cmd.Output()
}

// prepareFor is prepare for who has no evaluator: it opens the data only where something is to be written.
func prepareFor(ctx context.Context, t Task, h Host, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "train-y.npy")); err == nil {
		return nil
	}
	e, err := openEvaluator(ctx, t, h)
	if err != nil {
		return err
	}
	defer e.close()
	return prepare(ctx, e, dir)
}

// prepare writes what programs that are not ours read: the training rows as train-x.npy (float32) and train-y.npy (int32). What is
// there stays.
func prepare(ctx context.Context, e *evaluator, dir string) error {
	names := []string{filepath.Join(dir, "train-x.npy"), filepath.Join(dir, "train-y.npy")}
	if _, err := os.Stat(names[1]); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	ds := e.splits.Train
	in := ds.Schema().Inputs
	if len(in) != 1 || in[0].Form != trivium.Dense || ds.Schema().Labels.Kind != trivium.Class {
		return fmt.Errorf("compare: %s: peers read dense rows with classes", e.task.Name)
	}
	columns := in[0].Columns()
	labels := make([]int32, 0, ds.Rows())
	err := writeFile(names[0], func(f *os.File) error {
		w := bufio.NewWriterSize(f, 1<<20)
		if _, err := w.Write(npyHeader("<f4", ds.Rows(), int64(columns))); err != nil {
			return err
		}
		for b, err := range data.Batches(ctx, ds, data.BatchOptions{Batch: 256}) {
			if err != nil {
				return err
			}
			if err := writeFloats(w, b.Inputs[0].Values[:b.Rows*columns]); err != nil {
				return err
			}
			labels = append(labels, b.Labels.Class[:b.Rows]...)
		}
		return w.Flush()
	})
	if err != nil {
		return err
	}
	return writeFile(names[1], func(f *os.File) error {
		w := bufio.NewWriterSize(f, 1<<20)
		if _, err := w.Write(npyHeader("<i4", ds.Rows())); err != nil {
			return err
		}
		if err := writeInts(w, labels); err != nil {
			return err
		}
		return w.Flush()
	})
}

// npyHeader is the head of a NumPy file, version 1.0: padded so that the cells begin at a multiple of 64 bytes.
func npyHeader(dtype string, shape ...int64) []byte {
	dims := ""
	for _, n := range shape {
		dims += fmt.Sprintf("%d, ", n)
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", dtype, dims)
	for (10+len(text)+1)%64 != 0 {
		text += " "
	}
	text += "\n"
	return append([]byte{0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, byte(len(text)), byte(len(text) >> 8)}, text...)
}
