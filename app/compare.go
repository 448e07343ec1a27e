package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/compare"
	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/internal/shell"
	"github.com/trivium-ml/trivium/train"
)

// ownTime is how long a comparison of the user's own job takes at most, if that allows three repeats.
const ownTime = 10 * time.Minute

// compareVerb compares topologies.
type compareVerb struct {
	Run  compareRun  `cmd:"" default:"withargs" help:"Train under every topology, beside the real systems, and lay the numbers side by side (default)."`
	Show compareShow `cmd:"" help:"Print a comparison again."`
	Diff compareDiff `cmd:"" help:"Print what differs between two comparisons of the same tasks."`

	Peers comparePeers `cmd:"" help:"List the other systems, and install them."`
}

// compareRun measures.
type compareRun struct {
	Quick bool   `help:"At most 3 minutes on 2 cores: softmax and mlp1, 2 workers, four rows, no other systems, no verdicts."`
	File  string `short:"f" placeholder:"JOB.YAML" help:"Compare this job of yours, in place of the paper's tasks."`

	Target string `placeholder:"CONDITION" help:"When your job counts as done, such as 'valid.auc >= 0.78'."`

	Tasks   []string `placeholder:"NAME" help:"logistic, softmax, mlp1, mlp2, cnn, or with -10k on the ten thousand test images of MNIST (default the first four, on the best of MNIST that there is, else on generated digits)."`
	Systems []string `placeholder:"NAME" help:"Rows: ours and other systems (default all; an unknown name lists them)."`
	Workers []int    `short:"w" placeholder:"N" help:"Workers, 1 to 64: part of the full run; of what it lacks, all combinations (then 2 if left out)."`
	Batch   []string `short:"b" placeholder:"N|full" help:"Rows of each worker in an update: likewise (then 100)."`
	Links   []string `placeholder:"RATE" help:"Shape links between processes: 750mbit, 1gbit, 10gbit, none: likewise (then none)."`
	Repeats amount   `placeholder:"N" help:"Interleaved repeats of every row, 1 to 100 (default 7; quick 3; your own job 7, or as many as take ten minutes, 3 at least)."`
	Seconds *float64 `placeholder:"X" help:"To measure at least in each trial (default 5; quick 3)."`
	WarmUp  *float64 `placeholder:"X" help:"Seconds of warm-up at least (default 2; quick 1)."`
	Data    string   `short:"d" placeholder:"DIR" help:"MNIST's IDX files; else they are looked for beside the project, else digits are generated. With --file: in place of its data."`
	Python  string   `placeholder:"PATH" help:"A Python with NumPy, for the independent check; else python3."`

	Peers string `placeholder:"DIR" help:"Where the other systems' environments are; else in your cache folder."`

	Faults   *bool `negatable:"" help:"At the end, kill and stop processes of each row, and say what becomes of the others (the full run, and parts of it, do)."`
	Estimate bool  `help:"Say how long it would take, and measure nothing."`

	Out  string `default:"comparisons" placeholder:"DIR" help:"Where comparisons go (default comparisons)."`
	Dir  string `placeholder:"DIR" help:"The folder of this comparison itself; else one named by time, or the newest that the same command left unfinished."`
	JSON bool   `name:"json" group:"Output" help:"Print the report as a JSON object, or the estimate."`
}

// valueOf is what a flag says; the zero value where it is left out.
func valueOf[T any](flag *T) (value T) {
	if flag != nil {
		value = *flag
	}
	return value
}

func (compareRun) Help() string {
	return "Every row trains the same model on the same rows from the same initial weights, in processes of its own on the same cores; synchronous rows prove by their saved parameters that they computed what local does. An interrupted comparison goes on where it was: repeat the command. The report is report.html, report.csv and report.json."
}

func (v *compareRun) Run(ctx context.Context, s *session) error {
	p, err := v.plan(s)
	if err != nil {
		return misused(err)
	}
	show := newComparing(s.out, v.JSON)
	p.Watch = show.watch()
	if v.Dir == "" {
		if p.Dir = compare.FindUnfinished(v.Out, p); p.Dir != "" {
			show.note(fmt.Sprintf("goes on with %s", p.Dir))
		} else if p.Dir, err = freshDir(v.Out, v.name()); err != nil {
			return err
		}
	}
	if v.Estimate {
		p.Watch.Note = nil
		f, err := compare.Foresee(ctx, p)
		show.finish()
		switch {
		case err != nil:
			return refused(err)
		case v.JSON:
			return json.NewEncoder(s.out).Encode(f)
		}
		fmt.Fprintln(s.out, f)
		return nil
	}
	report, err := compare.Run(ctx, p)
	show.finish()
	switch {
	case ctx.Err() != nil:
		return &codedError{Interrupted, interruptedIn(p.Dir)}
	case err != nil:
		return refused(err)
	}
	if v.JSON {
		return printFile(s, filepath.Join(p.Dir, "report.json"))
	}
	if err := report.Text(s.out); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "report: %s\n", filepath.Join(p.Dir, "report.html"))
	if report.Best != nil {
		fmt.Fprintln(s.out, report.Best.Text)
	}
	return nil
}

// interruptedIn says what is left of a comparison in dir, where nothing is before a trial has begun.
func interruptedIn(dir string) error {
	if left, _ := os.ReadDir(dir); len(left) == 0 {
		return errors.New("interrupted before the first trial: nothing is kept, repeat the command")
	}
	return fmt.Errorf("interrupted; what is finished is in %s, and the same command goes on from there", dir)
}

// refused marks what is the user's to mend: what was asked for, the job, its data, the folder that is to be gone on with.
func refused(err error) error {
	var plan *compare.PlanError
	var mixed *compare.MixedError
	var job *train.JobError
	if errors.As(err, &plan) || errors.As(err, &mixed) || errors.As(err, &job) {
		return misused(err)
	}
	return asInput(err)
}

// name of the comparison's folder, after the time.
func (v *compareRun) name() string {
	switch {
	case v.File != "":
		return identifier(strings.TrimSuffix(filepath.Base(v.File), filepath.Ext(v.File)))
	case v.Quick:
		return "quick"
	}
	return "paper"
}

// freshDir is a folder that is not there yet.
func freshDir(out, name string) (string, error) {
	base := filepath.Join(out, time.Now().Format("20060102-150405-")+name)
	for n := 1; n < 1000; n++ {
		dir := base
		if n > 1 {
			dir = fmt.Sprintf("%s-%d", base, n)
		}
		switch _, err := os.Lstat(dir); {
		case errors.Is(err, os.ErrNotExist):
			return dir, nil
		case err != nil: // such as of a file in the place of the folder
			return "", misused(fmt.Errorf("--out: %w", err))
		}
	}
	return "", fmt.Errorf("compare: %s and its successors are taken", base)
}

// plan makes the plan of the flags, or says everything that is wrong with them.
func (v *compareRun) plan(s *session) (compare.Plan, error) {
	b, err := thisBuild()
	if err != nil {
		return compare.Plan{}, err
	}
	p := compare.Plan{
		Dir: v.Dir, Repeats: int(v.Repeats), Seconds: valueOf(v.Seconds), WarmUp: valueOf(v.WarmUp), Workers: v.Workers, Quick: v.Quick, Python: v.Python,
		Host: compare.Host{
			Topologies: shared, Models: s.models, Sources: s.sources, Optimizers: s.optimizers, Metrics: s.metrics, Build: b.Binary, Version: b.Version,
		},
		Command: shell.Words(append([]string{s.command}, v.typed()...)...),
	}
	var errs []error
	bad := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	bad(v.check())
	for _, word := range v.Batch {
		var n rowCount
		if err := n.UnmarshalText([]byte(word)); err != nil {
			bad(fmt.Errorf("--batch: %w", err))
		}
		p.Batches = append(p.Batches, compare.Batch(n))
	}
	for _, word := range v.Links {
		l, err := compare.ParseLink(word)
		bad(err)
		p.Links = append(p.Links, l)
	}
	all := compare.Strategies(p.Host)
	names := v.Systems
	if v.File != "" {
		workers := v.Workers
		if len(workers) == 0 {
			workers = []int{2} // the plan's default
		}
		task, err := v.own(s, slices.Max(workers))
		bad(err)
		p.Tasks = []compare.Task{task}
		if len(names) == 0 {
			names = compare.OwnRows()
		} else {
			others, _ := compare.Peers(v.Peers) // where their environments would be is no matter
			names = slices.DeleteFunc(slices.Clone(names), func(n string) bool {
				other := slices.ContainsFunc(others, func(s compare.System) bool { return s.Name() == n })
				if other {
					bad(fmt.Errorf("--systems: %s trains the paper's tasks alone; a job of yours is compared under Trivium's own rows", n))
				}
				return other
			})
		}
		p.Within = ownTime
	} else {
		sources, err := compare.FindSources(v.Data)
		bad(err)
		bad(v.paper(&p, sources))
		peers, err := compare.Peers(v.Peers)
		bad(err)
		all = append(all, peers...)
		if v.Quick && len(names) == 0 {
			names = compare.QuickRows()
		}
		if p.Repeats == 0 {
			p.Repeats = 7
			if v.Quick {
				p.Repeats = 3
			}
		}
	}
	p.Systems = all
	if len(names) > 0 {
		p.Systems, err = compare.PickSystems(all, names)
		bad(err)
	}
	if v.File == "" && !v.Quick && len(errs) == 0 {
		bad(p.Choose(len(v.Tasks) > 0, len(names) > 0))
	}
	if p.Faults = p.Full; v.Faults != nil {
		p.Faults = *v.Faults
	}
	if v.Quick {
		p.Seconds, p.WarmUp = cmp.Or(p.Seconds, 3), cmp.Or(p.WarmUp, 1)
	}
	return p, errors.Join(errs...)
}

// check finds the mistakes that need no more than the flags.
func (v *compareRun) check() error {
	var errs []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(v.File == "" || v.Target != "", "--target: say when %s counts as done, such as 'valid.auc >= 0.78'", v.File)
	bad(v.File != "" || v.Target == "", "--target: the paper's tasks have targets of their own; it goes with --file")
	bad(v.File == "" || len(v.Tasks) == 0, "--tasks: are the paper's; --file names a task of yours")
	bad(v.File == "" || !v.Quick, "--quick: is of the paper's tasks; --file names a task of yours")
	bad(v.File == "" || len(v.Batch) == 0, "--batch: your job has its own, which all workers share")
	short := func(x *float64) bool { return x == nil || *x > 0 && *x <= 300 }
	bad(short(v.Seconds), "--seconds: want more than 0, and 300 at most, found %v", valueOf(v.Seconds))
	bad(short(v.WarmUp), "--warm-up: want more than 0, and 300 at most, found %v", valueOf(v.WarmUp))
	return errors.Join(errs...)
}

// paper puts the paper's tasks into p.
func (v *compareRun) paper(p *compare.Plan, s compare.Sources) (err error) {
	all, names := compare.Tasks(s), v.Tasks
	if v.Quick && len(names) == 0 {
		names = compare.QuickTasks(all)
	}
	p.Tasks = compare.PaperTasks(all)
	if len(names) > 0 {
		p.Tasks, err = compare.PickTasks(s, names)
	}
	return err
}

// own makes a task of the user's job file. Its batch is that of all workers together.
func (v *compareRun) own(s *session, workers int) (compare.Task, error) {
	train := trainVerb{File: v.File, Workers: 1}
	if v.Data != "" {
		train.Data = &v.Data
	}
	job, _, err := train.job(s)
	if err != nil {
		return compare.Task{}, err
	}
	target, err := compare.ParseTarget(v.Target)
	if err != nil && v.Target != "" {
		return compare.Task{}, fmt.Errorf("--target: %w", err)
	}
	if instead := standIn(&job.Data); instead != "" {
		fmt.Fprintln(s.err, instead)
	}
	epochs := job.Epochs
	if epochs == 0 && job.Steps == 0 {
		epochs = 50
	}
	if job.Batch != trivium.FullBatch && job.Batch < workers {
		return compare.Task{}, fmt.Errorf("%s: batch: %d workers share an update of %s; give it at least a row for each", v.File, workers, quantity.Count(job.Batch, "row"))
	}
	name := identifier(strings.TrimSuffix(filepath.Base(v.File), filepath.Ext(v.File)))
	return compare.Task{Name: name, Job: *job, Target: target, Own: true, Cap: epochs, File: v.File, Data: v.Data}, nil
}

// typed are the words of the command.
func (v *compareRun) typed() []string {
	words := []string{"compare"}
	add := func(flag, value string) {
		if value != "" {
			words = append(words, flag, value)
		}
	}
	if v.Quick {
		words = append(words, "--quick")
	}
	add("-f", v.File)
	add("--data", v.Data)
	add("--target", v.Target)
	add("--tasks", strings.Join(v.Tasks, ","))
	add("--systems", strings.Join(v.Systems, ","))
	add("--workers", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(v.Workers)), ","), "[]"))
	add("--batch", strings.Join(v.Batch, ","))
	add("--links", strings.Join(v.Links, ","))
	if v.Repeats > 0 {
		add("--repeats", fmt.Sprint(v.Repeats))
	}
	if v.Seconds != nil {
		add("--seconds", fmt.Sprint(*v.Seconds))
	}
	if v.WarmUp != nil {
		add("--warm-up", fmt.Sprint(*v.WarmUp))
	}
	switch {
	case v.Faults == nil:
	case *v.Faults:
		words = append(words, "--faults")
	default:
		words = append(words, "--no-faults")
	}
	add("--python", v.Python)
	add("--peers", v.Peers)
	if v.Out != "comparisons" { // the default
		add("--out", v.Out)
	}
	add("--dir", v.Dir)
	return words
}

// compareShow prints a comparison, finished or not.
type compareShow struct {
	Dir  string `arg:"" help:"The folder of a comparison."`
	JSON bool   `name:"json" help:"Print it as a JSON object."`

	Rewrite bool `help:"Write report.html anew, of the recorded trials."`
}

func (v *compareShow) Run(s *session) error {
	r, err := compare.ReadReport(v.Dir)
	unfinished := errors.Is(err, compare.ErrUnfinished)
	if v.Rewrite || unfinished && !v.JSON {
		r, err = compare.Rebuild(v.Dir)
	}
	if err != nil {
		return misused(err)
	}
	if v.Rewrite {
		if err := r.WritePage(v.Dir); err != nil {
			return err
		}
	}
	if v.JSON {
		return printFile(s, filepath.Join(v.Dir, "report.json"))
	}
	fmt.Fprintf(s.out, "%s\n%s, %s\n\n", r.Command, r.Machine, r.Created)
	if err := r.Text(s.out); err != nil {
		return err
	}
	page := filepath.Join(v.Dir, "report.html")
	if _, err := os.Stat(page); err == nil {
		fmt.Fprintf(s.out, "report: %s\n", page)
	}
	if unfinished {
		fmt.Fprintln(s.out, "not finished: the command that began it goes on with it")
	}
	if r.Best != nil {
		fmt.Fprintln(s.out, r.Best.Text)
	}
	return nil
}

// compareDiff compares two comparisons.
type compareDiff struct {
	A    string `arg:"" help:"The folder of a comparison."`
	B    string `arg:"" help:"That of another."`
	JSON bool   `name:"json" help:"Print a JSON object."`
}

func (v *compareDiff) Run(s *session) error {
	a, err := compare.ReadReport(v.A)
	if err != nil {
		return misused(err)
	}
	b, err := compare.ReadReport(v.B)
	if err != nil {
		return misused(err)
	}
	d := compare.Diff(a, b)
	if v.JSON {
		return d.JSON(s.out)
	}
	return d.Text(s.out)
}

// printFile prints a file as it is.
func printFile(s *session, name string) error {
	p, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	_, err = s.out.Write(p)
	return err
}

// comparePeers is about other systems.
type comparePeers struct {
	List    peersList    `cmd:"" default:"withargs" help:"Say which are here."`
	Install peersInstall `cmd:"" help:"Make a private environment for each that is named, by its usual client."`
}

// peersFlags say where environments are.
type peersFlags struct {
	Peers string `placeholder:"DIR" help:"Where the environments are; else in your cache folder."`
}

type peersList struct {
	peersFlags
	JSON bool `name:"json" help:"Print a JSON array."`
}

func (v *peersList) Run(ctx context.Context, s *session) error {
	list, err := compare.PeerStates(ctx, v.Peers)
	if err != nil {
		return err
	}
	if v.JSON {
		return json.NewEncoder(s.out).Encode(list)
	}
	for _, p := range list {
		state := p.Absent
		if state == "" {
			var words []string
			for _, name := range slices.Sorted(maps.Keys(p.Facts)) {
				words = append(words, name+" "+p.Facts[name])
			}
			state = strings.Join(words, ", ")
		}
		fmt.Fprintf(s.out, "%s (%s; rows %s): %s\n", p.Name, p.Title, strings.Join(p.Rows, ", "), state)
	}
	return nil
}

type peersInstall struct {
	Names []string `arg:"" name:"name" help:"Of the systems, as the list has them."`
	peersFlags
	PeerSource map[string]string `placeholder:"NAME=DIR" help:"Folder of the source of a system that is built: pmls=DIR."`
}

func (peersInstall) Help() string {
	return "Says first how much each takes. An installation that was interrupted goes on: repeat the command. Nothing is ever installed otherwise."
}

func (v *peersInstall) Run(ctx context.Context, s *session) error {
	return refused(compare.InstallPeers(ctx, v.Peers, v.Names, v.PeerSource, s.out))
}
