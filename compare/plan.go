package compare

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/observe/host"
)

// A Plan is what is to be compared. Its directory keeps what is finished, so that an interrupted plan goes on.
type Plan struct {
	Tasks   []Task
	Links   []Link // empty: one unshaped link, in namespaces where they are permitted
	Systems []System
	Workers []int   // empty: 2
	Batches []Batch // of each worker; empty: 100. The user's own job has its own
	Repeats int     // 0: 3
	Quick   bool
	Full    bool // the cells that the evaluation names, in place of all combinations; see cells
	Dir     string

	Host    Host
	Seconds float64       // to measure at least; 0: 5
	WarmUp  float64       // 0: 2
	Most    int           // snapshots of a trial; 0: 200
	Limit   time.Duration // of a trial; 0: 10 minutes
	Cores   []int         // nil: those that this process may use
	Command string        // as the user typed it
	Python  string        // with NumPy, for check.py; empty: looked for

	Watch Watch
	now   func() time.Time
}

// Watch is told how a plan goes on. Nil funcs are off.
type Watch struct {
	Note    func(text string)        // what a user should know before
	Status  func(s Status)           // several times a second
	Trialed func(t Trialed, s Table) // a trial is over, and what its table is by now
}

// A Status is a trial under way.
type Status struct {
	Cell        Cell
	Repeat      int // from 1
	Done, Total int // trials
	Phase       string
	Rate        float64 // samples a second so far; 0: not yet known
	Elapsed     time.Duration
	Left        time.Duration // of all; negative: not known
}

// A Trialed is a trial with its result.
type Trialed struct {
	Cell   Cell
	Repeat int
	Result Result
}

// A Cell is one row of one table: what is repeated.
type Cell struct {
	Task    string `json:"task"`
	Batch   Batch  `json:"batch"`
	Workers int    `json:"workers"`
	Servers int    `json:"servers,omitempty"`
	Link    Link   `json:"link,omitzero"`
	System  string `json:"system"`

	index int // of the system
}

// ID names the cell's files.
func (c Cell) ID() string {
	s := fmt.Sprintf("%s-b%s-w%d", c.Task, c.Batch, c.Workers)
	if c.Link.Mbit > 0 {
		s += fmt.Sprintf("-%dmbit", c.Link.Mbit)
	}
	return s + "-" + c.System
}

// A Group is the cells of one table: they differ in the system alone.
type group struct {
	task  Task
	batch Batch
	work  int
	link  Link
	cells []Cell
}

func (p *Plan) defaults() {
	if len(p.Workers) == 0 {
		p.Workers = []int{2}
	}
	if len(p.Batches) == 0 {
		p.Batches = []Batch{100}
	}
	if p.Links = slices.Clone(p.Links); len(p.Links) == 0 {
		p.Links = []Link{{}}
	}
	p.Repeats = cmp.Or(p.Repeats, 3)
	p.Seconds = cmp.Or(p.Seconds, 5)
	p.WarmUp = cmp.Or(p.WarmUp, 2)
	p.Most = cmp.Or(p.Most, snapshots)
	p.Limit = cmp.Or(p.Limit, trialLimit)
	if p.Cores == nil {
		p.Cores = ownCores()
	}
	if p.now == nil {
		p.now = time.Now
	}
	note, status, trialed := p.Watch.Note, p.Watch.Status, p.Watch.Trialed
	p.Watch = Watch{
		Note: func(s string) {
			if note != nil {
				note(s)
			}
		},
		Status: func(s Status) {
			if status != nil {
				status(s)
			}
		},
		Trialed: func(t Trialed, s Table) {
			if trialed != nil {
				trialed(t, s)
			}
		},
	}
}

// Validate reports every mistake in p.
func (p *Plan) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("compare: "+format, args...)) }
	if len(p.Tasks) == 0 {
		bad("there is no task")
	}
	if len(p.Systems) == 0 {
		bad("there is no system")
	}
	for _, n := range p.Workers {
		if n < 1 || n > 64 {
			bad("workers: want 1 to 64, found %d", n)
		}
	}
	for _, l := range p.Links {
		if l.Mbit < 0 || l.Mbit > 100_000 {
			bad("links: want 1 to 100000 Mbit/s, found %d", l.Mbit)
		}
	}
	for _, b := range p.Batches {
		if b < 1 && b != trivium.FullBatch {
			bad("batch: want 1 row or more, or full; found %d", b)
		}
	}
	if p.Repeats < 1 || p.Repeats > 1000 {
		bad("repeats: want 1 to 1000, found %d", p.Repeats)
	}
	if p.Dir == "" {
		bad("there is no directory for the report")
	}
	seen := map[string]bool{}
	for _, s := range p.Systems {
		if seen[s.Name()] {
			bad("system %s is named twice", s.Name())
		}
		seen[s.Name()] = true
	}
	return errors.Join(errs...)
}

// groups are the tables of the plan, in the order in which they are measured. A full run has those that the evaluation names: (a) all
// rows and tasks with 3 workers, batch 100 and 500; (b) scaling on mlp1; (c) the sweep of SSP; (d) the full batch; (e) the shaped rates.
func (p *Plan) groups() []group {
	var list []group
	add := func(t Task, b Batch, workers int, link Link, only func(System) bool) {
		g := group{task: t.At(b), batch: b, work: workers, link: link}
		for i, s := range p.Systems {
			a := s.About()
			if only != nil && !only(s) || b == trivium.FullBatch && !a.Full || !suits(s, t) {
				continue
			}
			c := Cell{Task: t.Name, Batch: b, Workers: workers, Servers: a.Server, Link: link, System: s.Name(), index: i}
			if a.Alone {
				c.Workers = 1
			}
			g.cells = append(g.cells, c)
		}
		same := func(o group) bool {
			return o.task.Name == g.task.Name && o.batch == b && o.work == workers && o.link == link
		}
		if i := slices.IndexFunc(list, same); i >= 0 {
			for _, c := range g.cells {
				if !slices.Contains(list[i].cells, c) {
					list[i].cells = append(list[i].cells, c)
				}
			}
		} else if len(g.cells) > 0 {
			list = append(list, g)
		}
	}
	if !p.Full {
		for _, t := range p.Tasks {
			batches := p.Batches
			if t.Own {
				batches = []Batch{Batch(t.Job.Batch)}
			}
			for _, link := range p.Links {
				for _, w := range p.Workers {
					for _, b := range batches {
						add(t, b, w, link, nil)
					}
				}
			}
		}
		return list
	}
	base := p.Links[0]
	sweep := func(s System) bool {
		return s.Name() == "server-bsp" || strings.HasPrefix(s.Name(), "server-ssp") || s.Name() == "server-asp"
	}
	few := func(s System) bool {
		return s.About().Peer || slices.Contains([]string{"local", "server-bsp", "allreduce"}, s.Name())
	}
	main := func(s System) bool { return s.Name() != "server-ssp5" } // of the sweep alone
	named := func(t Task, names ...string) bool {
		return slices.Contains(names, strings.TrimSuffix(t.Name, "-10k"))
	}
	for _, t := range p.Tasks {
		add(t, 100, 3, base, main)
		if !strings.HasSuffix(t.Name, "-10k") { // its targets are for batch 100 alone
			add(t, 500, 3, base, main)
		}
	}
	for _, t := range p.Tasks {
		if named(t, "mlp1") {
			for _, w := range []int{1, 2, 5} {
				add(t, 100, w, base, few)
			}
		}
		if named(t, "logistic", "mlp1") {
			add(t, 100, 3, base, sweep)
		}
		add(t, trivium.FullBatch, 3, base, few)
		if named(t, "logistic", "mlp2") && base.Apart {
			for _, rate := range []int{750, 1000, 10000} {
				add(t, 100, 3, Link{Mbit: rate, Apart: true}, few)
			}
		}
	}
	return list
}

// suits reports whether a system trains a task: per-sample SGD with clocks is how PMLS trains its regression.
func suits(s System, t Task) bool {
	o, ok := s.(*own)
	return !ok || o.clocks == 0 || strings.HasPrefix(t.Job.Model, "logistic")
}

// formatVersion is that of a plan's directory.
const formatVersion = 1

// A record is plan.json: what the trials in a directory have in common. What differs from it is not to be mixed with them.
type record struct {
	Version int               `json:"version"`
	Build   string            `json:"build"`   // of the program
	Machine string            `json:"machine"` // name, processor, cores
	Host    json.RawMessage   `json:"host,omitempty"`
	Command string            `json:"command,omitempty"`
	Created time.Time         `json:"created"`
	Tasks   []Task            `json:"tasks"`
	Systems []string          `json:"systems"`
	Workers []int             `json:"workers"`
	Batches []Batch           `json:"batches"`
	Links   []Link            `json:"links"`
	Repeats int               `json:"repeats"`
	Seconds float64           `json:"seconds"`
	WarmUp  float64           `json:"warm_up"`
	Quick   bool              `json:"quick,omitempty"`
	Full    bool              `json:"full,omitempty"`
	Most    int               `json:"most_snapshots"`
	Cores   []int             `json:"cores"`
	Facts   map[string]Facts  `json:"facts,omitempty"`  // of the systems
	Absent  map[string]string `json:"absent,omitempty"` // systems that are not here, and why
	Notes   []string          `json:"notes,omitempty"`
}

func (p *Plan) record() record {
	r := record{
		Version: formatVersion, Build: p.Host.Build, Command: p.Command, Created: p.now().UTC().Truncate(time.Second), Tasks: p.Tasks,
		Workers: p.Workers, Batches: p.Batches, Links: slices.Clone(p.Links), Repeats: p.Repeats, Seconds: p.Seconds, WarmUp: p.WarmUp, Quick: p.Quick,
		Full: p.Full, Most: p.Most, Cores: p.Cores, Facts: map[string]Facts{}, Absent: map[string]string{},
	}
	for _, s := range p.Systems {
		r.Systems = append(r.Systems, s.Name())
	}
	facts, _ := host.Describe(host.Options{}) // what could not be read is empty
	r.Machine = fmt.Sprintf("%s, %s, %d cores", facts.Name, cmp.Or(facts.CPU, facts.Arch), facts.Cores)
	r.Host, _ = json.Marshal(facts) // a plain struct
	return r
}

// A MixedError says that a directory holds trials that must not be mixed with the plan's.
type MixedError struct {
	Dir string
	Why []string
}

func (e *MixedError) Error() string {
	return fmt.Sprintf("compare: %s holds another comparison, and trials of two are not mixed: %s; name another directory with --dir", e.Dir, strings.Join(e.Why, "; "))
}

// differs says in what b is not the same comparison as a.
func (r *record) differs(o *record) (why []string) {
	if r.Version != o.Version {
		return []string{fmt.Sprintf("it is of format %d, this program writes %d", o.Version, r.Version)}
	}
	if r.Build != o.Build {
		why = append(why, "it was made by another build of the program")
	}
	if r.Machine != o.Machine {
		why = append(why, fmt.Sprintf("it was made on %s, this is %s", o.Machine, r.Machine))
	}
	for _, x := range []struct {
		name string
		a, b any
	}{
		{"tasks", r.Tasks, o.Tasks},
		{"systems", r.Systems, o.Systems},
		{"workers", r.Workers, o.Workers},
		{"batches", r.Batches, o.Batches},
		{"links", r.Links, o.Links},
		{"repeats", r.Repeats, o.Repeats},
		{"seconds", r.Seconds, o.Seconds},
		{"warm-up", r.WarmUp, o.WarmUp},
		{"cores", r.Cores, o.Cores},
		{"cells", r.Full, o.Full},
	} {
		if !reflect.DeepEqual(x.a, x.b) {
			why = append(why, fmt.Sprintf("its %s differ", x.name))
		}
	}
	return why
}

// A directory is a plan's, open and locked.
type directory struct {
	path   string
	record record
	fresh  bool // it was not there before
}

const (
	planFile   = "plan.json"
	lockFile   = "lock"
	trialsDir  = "trials"
	workDir    = "work"
	resultFile = "result.json"
	curveFile  = "curve.json"
)

// openDirectory makes the plan's directory, or opens it where it holds the same comparison.
func (p *Plan) openDirectory() (_ *directory, err error) {
	d := &directory{path: p.Dir, record: p.record()}
	var old record
	err = readJSON(filepath.Join(p.Dir, planFile), &old)
	switch {
	case err == nil:
		if why := d.record.differs(&old); len(why) > 0 {
			return nil, &MixedError{p.Dir, why}
		}
		d.record = old
	case errors.Is(err, fs.ErrNotExist):
		_, gone := os.Stat(p.Dir)
		d.fresh = errors.Is(gone, fs.ErrNotExist)
		if entries, err := os.ReadDir(p.Dir); err == nil && len(entries) > 0 {
			return nil, fmt.Errorf("compare: %s is not empty, and holds no comparison", p.Dir)
		}
	default:
		return nil, fmt.Errorf("compare: the directory cannot be continued: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(p.Dir, trialsDir), 0o755); err != nil {
		return nil, err
	}
	if err := d.lock(); err != nil {
		return nil, err
	}
	// What was under way when an earlier process ended is not a result.
	if err := os.RemoveAll(filepath.Join(p.Dir, workDir)); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// lock refuses a directory that another process works in.
func (d *directory) lock() error {
	name := filepath.Join(d.path, lockFile)
	for range 2 {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil {
			_, err = fmt.Fprintf(f, "%d\n", os.Getpid())
			return errors.Join(err, f.Close())
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && pid != os.Getpid() && alive(pid) {
			return fmt.Errorf("compare: %s: process %d is at work in it", d.path, pid)
		}
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("compare: %s: another process takes its lock", d.path)
}

// close puts away what is not a result; of a comparison that ended before its first trial, everything.
func (d *directory) close() error {
	if done, err := filepath.Glob(filepath.Join(d.path, trialsDir, "*")); err == nil && len(done) == 0 && d.fresh {
		if _, err := os.Stat(filepath.Join(d.path, "report.json")); errors.Is(err, fs.ErrNotExist) {
			return os.RemoveAll(d.path)
		}
	}
	return errors.Join(os.RemoveAll(filepath.Join(d.path, workDir)), os.Remove(filepath.Join(d.path, lockFile)))
}

func (d *directory) save() error { return writeJSON(filepath.Join(d.path, planFile), &d.record) }

// trialDir is where a finished trial lies.
func (d *directory) trialDir(c Cell, repeat int) string {
	return filepath.Join(d.path, trialsDir, fmt.Sprintf("%s-r%d", c.ID(), repeat))
}

// saved is what is written of a trial.
type saved struct {
	Cell   Cell   `json:"cell"`
	Repeat int    `json:"repeat"`
	Result Result `json:"result"`
}

// load reads a finished trial.
func (d *directory) load(c Cell, repeat int) (Result, bool, error) {
	var s saved
	err := readJSON(filepath.Join(d.trialDir(c, repeat), resultFile), &s)
	if errors.Is(err, fs.ErrNotExist) {
		return Result{}, false, nil
	}
	if err != nil {
		return Result{}, false, fmt.Errorf("compare: a finished trial cannot be read: %w; remove its folder to run it again", err)
	}
	var curve []curvePoint
	if err := readJSON(filepath.Join(d.trialDir(c, repeat), curveFile), &curve); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Result{}, false, err
	}
	for _, x := range curve {
		s.Result.Curve = append(s.Result.Curve, x.point())
	}
	return s.Result, true, nil
}

// begin returns the folder of a trial under way.
func (d *directory) begin(c Cell, repeat int) (string, error) {
	dir := filepath.Join(d.path, workDir, fmt.Sprintf("%s-r%d", c.ID(), repeat))
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}

// finish makes the folder of a trial that of a result: from then on it counts.
func (d *directory) finish(dir string, c Cell, repeat int, r Result) error {
	var curve []curvePoint
	for _, x := range r.Curve {
		curve = append(curve, curveOf(x))
	}
	if err := writeJSON(filepath.Join(dir, curveFile), curve); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(dir, resultFile), saved{c, repeat, r}); err != nil {
		return err
	}
	to := d.trialDir(c, repeat)
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.Rename(dir, to)
}

// A curvePoint is a Point as JSON has it: null where a number is not finite.
type curvePoint struct {
	Update  int64    `json:"update"`
	Seconds float64  `json:"seconds"`
	Samples int64    `json:"samples"`
	Loss    *float64 `json:"loss"`
	Value   *float64 `json:"value"`
}

func curveOf(p Point) curvePoint {
	return curvePoint{p.Update, p.Seconds, p.Samples, finiteOrNil(p.Loss), finiteOrNil(p.Value)}
}

func (p curvePoint) point() Point {
	return Point{p.Update, p.Seconds, p.Samples, orNaN(p.Loss), orNaN(p.Value)}
}
