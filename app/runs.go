package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/internal/nearest"
	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/internal/shell"
	"github.com/trivium-ml/trivium/observe/rundir"
)

type runsVerb struct {
	List   runsList   `cmd:"" default:"withargs" help:"List runs, oldest first."`
	Show   runsShow   `cmd:"" help:"Print all that is known of a run."`
	Diff   runsDiff   `cmd:"" help:"Print what differs between two runs."`
	Report runsReport `cmd:"" help:"Write a page about a run, or about several side by side."`
	Delete runsDelete `cmd:"" help:"Delete runs with their checkpoints."`
}

// runsFlags say where runs are.
type runsFlags struct {
	Out string `default:"runs" placeholder:"DIR" help:"Where the runs are (default runs)."`
}

type runsList struct {
	Filter []string `arg:"" optional:"" help:"A condition, such as 'model=softmax and test.accuracy>0.9' (help runs)."`
	runsFlags
	JSON bool `name:"json" help:"Print a JSON object a line."`
}

func (v *runsList) Run(s *session) error {
	f, err := parseFilter(strings.Join(v.Filter, " "))
	if err != nil && len(v.Filter) == 1 {
		if r, notOne := locateRun(v.Out, v.Filter[0]); notOne == nil {
			err = fmt.Errorf("%w; the run of that name is shown by: runs show %s", err, shell.Word(r.name()))
		}
	}
	if err != nil {
		if verb := nearest.Name(v.Filter[0], []string{"list", "show", "diff", "report", "delete"}); verb != "" {
			err = fmt.Errorf("%w; or did you mean: runs %s", err, verb)
		}
		return misused(err)
	}
	runs, err := readRuns(v.Out)
	if err != nil {
		return err
	}
	var fields []map[string]string
	for _, r := range runs {
		s.warn(r)
		fields = append(fields, texts(r.fields()))
	}
	if err := f.mistaken(fields); err != nil {
		return misused(err)
	}
	var rows []*run
	for i, r := range runs {
		if f.holds(fields[i]) {
			rows = append(rows, r)
		}
	}
	if v.JSON {
		e := json.NewEncoder(s.out)
		for _, r := range rows {
			if err := e.Encode(r.fields()); err != nil {
				return err
			}
		}
		return nil
	}
	if len(rows) == 0 {
		what := "no runs"
		if len(runs) > 0 {
			what = fmt.Sprintf("none of %d runs is so", len(runs))
		}
		_, err := fmt.Fprintf(s.out, "%s in %s\n", what, v.Out)
		return err
	}
	return printRuns(s, rows)
}

func printRuns(s *session, rows []*run) error {
	w := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tMODEL\tDATA\tSTATUS\tEPOCHS\tSAMPLES/S\tMETRICS")
	for _, r := range rows {
		epochs, speed, known := "", "", r.Result
		switch {
		case known != nil:
			epochs = strconv.FormatInt(known.Epochs, 10)
		case r.Err == nil:
			if so, err := r.soFar(); err == nil && so.Steps > 0 { // else show says what cannot be read
				known = &so
			}
		}
		var metrics []string
		if known != nil {
			speed = quantity.Short(known.SamplesPerSec)
			for _, m := range slices.Sorted(maps.Keys(known.Metrics)) {
				metrics = append(metrics, m+" "+figure(known.Metrics[m]))
			}
		}
		source := r.Head.DataSource
		if source == "" && r.Err == nil {
			source = "(generated digits)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.name(), r.Head.Model, source, r.State(), epochs, speed, strings.Join(metrics, "  "))
	}
	return w.Flush()
}

type runsDiff struct {
	A string `arg:"" help:"A run."`
	B string `arg:"" help:"Another."`
	runsFlags
	JSON bool `name:"json" help:"Print a JSON object a line."`
}

func (v *runsDiff) Run(s *session) error {
	a, err := findRun(v.Out, v.A)
	if err != nil {
		return err
	}
	b, err := findRun(v.Out, v.B)
	if err != nil {
		return err
	}
	s.warn(a)
	s.warn(b)
	differences := rundir.Diff(a.compared(), b.compared())
	if v.JSON {
		e := json.NewEncoder(s.out)
		for _, d := range differences {
			if err := e.Encode(map[string]string{"field": d.Key, "a": d.A, "b": d.B}); err != nil {
				return err
			}
		}
		return nil
	}
	if len(differences) == 0 {
		_, err := fmt.Fprintln(s.out, "the runs are equal in job, data, build and result")
		return err
	}
	return printDifferences(s, a.name(), b.name(), differences)
}

// wideValue is the width from which a value has a line of its own, below those of the table, which so fits a terminal of 80.
const wideValue = 30

func printDifferences(s *session, a, b string, list []rundir.Difference) error {
	wide := func(d rundir.Difference) bool {
		return max(utf8.RuneCountInString(d.A), utf8.RuneCountInString(d.B)) >= wideValue
	}
	w := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "FIELD\t%s\t%s\n", a, b)
	for _, d := range list {
		if !wide(d) {
			fmt.Fprintf(w, "%s\t%s\t%s\n", d.Key, orDash(d.A), orDash(d.B))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, d := range list {
		if wide(d) {
			fmt.Fprintf(s.out, "\n%s\n  %s: %s\n  %s: %s\n", d.Key, a, orDash(d.A), b, orDash(d.B))
		}
	}
	return nil
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

type runsDelete struct {
	Names []string `arg:"" name:"run" help:"Runs to delete."`
	runsFlags
}

func (v *runsDelete) Run(s *session) error {
	var runs []*run
	for _, name := range v.Names { // all are looked at before one is deleted
		r, err := locateRun(v.Out, name)
		if err != nil {
			return err
		}
		if !rundir.Is(r.Dir) {
			return misusedf("runs: %s has no run.json: it may be another program's folder, and is not deleted", r.Dir)
		}
		if r.Running {
			return misusedf("runs: %s is running: interrupt it, or delete it once it has ended", r.Dir)
		}
		if !slices.ContainsFunc(runs, func(o *run) bool { return filepath.Clean(o.Dir) == filepath.Clean(r.Dir) }) {
			runs = append(runs, r)
		}
	}
	for _, r := range runs {
		if err := rundir.Delete(r.Dir); err != nil {
			return err
		}
		fmt.Fprintf(s.out, "deleted %s\n", r.Dir)
	}
	return nil
}

// A run is what a run directory says of itself, without its measurements.
type run struct{ rundir.Entry }

// readRuns reads every run directory in root, oldest first, after those that cannot be read.
func readRuns(root string) (runs []*run, err error) {
	entries, err := rundir.List(root)
	for _, e := range entries {
		runs = append(runs, &run{e})
	}
	if info, e := os.Stat(root); e == nil && !info.IsDir() {
		err = misused(err)
	}
	return runs, err
}

// findRun finds the run that name means, and refuses one that cannot be read.
func findRun(root, name string) (*run, error) {
	r, err := locateRun(root, name)
	if err == nil && r.Err != nil {
		return nil, misused(r.unreadable())
	}
	return r, err
}

// findTrained finds the run whose checkpoints are wanted: they are as good without a run.json that can be read, of which it warns.
func (s *session) findTrained(root, name string) (*run, error) {
	r, err := locateRun(root, name)
	if err != nil {
		return nil, err
	}
	if _, other := errors.AsType[*rundir.VersionError](r.Err); other {
		return nil, misused(r.Err)
	}
	if r.Err != nil {
		s.warn(r)
	}
	return r, nil
}

// newestRuns is how many runs are named where none has the name that was given.
const newestRuns = 8

// locateRun finds the run that name means: a directory, a name in root, the beginning of one, or last. Of a directory checkpoints are enough: then
// it is a run that cannot be read.
func locateRun(root, name string) (*run, error) {
	if name == "" { // which every name begins with: a variable that a script has not set
		return nil, misusedf("runs: want the name of a run in %s, found none", root)
	}
	for _, is := range []func(dir string) bool{rundir.Is, holdsCheckpoints} {
		for _, dir := range []string{name, filepath.Join(root, name)} {
			if is(dir) {
				return &run{rundir.Read(dir)}, nil
			}
		}
	}
	runs, err := readRuns(root)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(name); err == nil && filepath.Base(name) != name { // a path, and not the beginning of a name
		return nil, misusedf("runs: %s is no run directory, and holds no checkpoints/NAME", name)
	}
	if len(runs) == 0 {
		return nil, misusedf("runs: there is no run in %s; --out says where they are", root)
	}
	if name == "last" {
		return runs[len(runs)-1], nil
	}
	var names []string
	var found []*run
	for _, r := range runs {
		names = append(names, r.name())
		if strings.HasPrefix(r.name(), name) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		if n := len(names); n > newestRuns && nearest.Name(name, names) == "" { // there may be hundreds
			return nil, misusedf("runs: no run in %s is called %q; the newest of %d are %s", root, name, n, strings.Join(names[n-newestRuns:], ", "))
		}
		return nil, misusedf("runs: no run in %s is called %q; %s", root, name, nearest.Sentence(name, names))
	}
	return nil, misusedf("runs: %d runs in %s begin with %q; give more of the name", len(found), root, name)
}

// holdsCheckpoints tells whether dir has what a run leaves whose directory could not be written, or was removed while it trained: checkpoints alone.
func holdsCheckpoints(dir string) bool {
	names, err := checkpoint.List(context.Background(), blob.Dir(filepath.Join(dir, checkpointsDir))) // the disk is looked at, and nothing waited for
	return err == nil && len(names) > 0
}

func (r *run) name() string { return filepath.Base(r.Dir) }

// warn says what of r cannot be read, if anything.
func (s *session) warn(r *run) {
	err := r.noResult()
	if r.Err != nil {
		err = r.unreadable()
	}
	if err != nil {
		fmt.Fprintf(s.err, "%s: %v\n", s.name, err)
	}
}

// noResult says why a result that is there is not known, and how to come to one; nil: it is known, or not there.
func (r *run) noResult() error {
	if r.Damage == nil {
		return nil
	}
	return fmt.Errorf("rundir: %s: %s: the run counts as unfinished; train --resume %s evaluates its last checkpoint again, in a run of its own",
		filepath.Join(r.Dir, r.Damage.File), r.Damage.Why, shell.Word(r.Dir))
}

// unreadable says what is wrong with a run that cannot be read, and what is left to do with it.
func (r *run) unreadable() error {
	if _, other := errors.AsType[*rundir.VersionError](r.Err); other { // it is whole: nobody is to delete it for that
		return r.Err
	}
	err := fmt.Errorf("%w: the run cannot be read; eval, apply, export and train --resume want no more than its checkpoints", r.Err)
	if rundir.Is(r.Dir) { // else it is not deleted either
		err = fmt.Errorf("%w, and runs delete %s removes it", err, shell.Word(r.Dir))
	}
	return err
}

// fields are what filters and show know of a run: those of its head, when and by what it was begun, and the outcome. Numbers are json.Number, so
// that they stay as they are written and are numbers in JSON.
func (r *run) fields() map[string]any {
	if r.Err != nil {
		out := r.outcome()
		out["run"], out["error"] = r.name(), r.Err.Error()
		return out
	}
	out := r.compared()
	out["run"] = r.name()
	if !r.Head.Start.IsZero() {
		out["started"] = r.Head.Start.UTC().Format(time.RFC3339)
	}
	if len(r.Head.Command) > 0 {
		out["command"] = shell.Words(r.Head.Command...)
	}
	return out
}

// compared are the fields in which two runs may be alike.
func (r *run) compared() map[string]any {
	out := r.Head.Fields()
	maps.Copy(out, r.outcome())
	maps.DeleteFunc(out, func(_ string, v any) bool { return v == "" })
	return out
}

// outcome is what came of the run.
func (r *run) outcome() map[string]any {
	out := map[string]any{"status": r.State()}
	if res := r.Result; res != nil {
		out["updates"] = wholeField(res.Steps)
		out["epochs.done"] = wholeField(res.Epochs)
		out["samples"] = wholeField(res.Samples)
		out["seconds"] = realField(res.Seconds, 'f', 3)
		out["samples_per_second"] = realField(res.SamplesPerSec, 'f', 0)
		out["error"] = res.Error
		out["checkpoint"] = res.Checkpoint
		for m, v := range res.Metrics {
			out[m] = realField(v, 'g', -1) // what filters compare is what train and eval say with --json
		}
	}
	return out
}

func wholeField[T int | int64](n T) json.Number { return json.Number(strconv.FormatInt(int64(n), 10)) }

// realField is a number, or a text as result.json has it where JSON has no such number.
func realField(v float64, format byte, digits int) any {
	text := strconv.FormatFloat(v, format, digits, 64)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return text
	}
	return json.Number(text)
}

// texts are fields as filters compare them, and as they are printed.
func texts(fields map[string]any) map[string]string {
	out := make(map[string]string, len(fields))
	for k, v := range fields {
		out[k] = fmt.Sprint(v)
	}
	return out
}
