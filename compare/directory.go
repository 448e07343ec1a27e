package compare

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe/host"
)

// formatVersion is that of a plan's directory.
const formatVersion = 1

// A record is plan.json: what the trials in a directory have in common. What differs from it is not to be mixed with them.
type record struct {
	Version   int               `json:"version"`
	Build     string            `json:"build"`   // of the program
	Machine   string            `json:"machine"` // name, processor, cores
	Host      json.RawMessage   `json:"host,omitempty"`
	Frequency string            `json:"frequency,omitempty"`
	Control   string            `json:"congestion_control,omitempty"`
	Abouts    map[string]About  `json:"abouts,omitempty"` // of the systems
	Command   string            `json:"command,omitempty"`
	Created   time.Time         `json:"created"`
	Tasks     []Task            `json:"tasks"`
	Systems   []string          `json:"systems"`
	Workers   []int             `json:"workers"`
	Batches   []Batch           `json:"batches"`
	Links     []Link            `json:"links"`
	Network   string            `json:"network,omitempty"` // how processes reach each other
	Repeats   int               `json:"repeats"`
	Open      bool              `json:"repeats_were_open,omitempty"` // the plan left their number open
	Seconds   float64           `json:"seconds"`
	WarmUp    float64           `json:"warm_up"`
	Quick     bool              `json:"quick,omitempty"`
	Full      bool              `json:"full,omitempty"`
	Only      Part              `json:"only,omitzero"` // of the full run
	Most      int               `json:"most_snapshots"`
	Cores     []int             `json:"cores"`
	Facts     map[string]Facts  `json:"facts,omitempty"`  // of the systems
	Absent    map[string]string `json:"absent,omitempty"` // systems that are not here, and why
	Notes     []string          `json:"notes,omitempty"`
	Sittings  []Sitting         `json:"sittings,omitempty"`

	LinkSpeeds []LinkSpeed `json:"link_speeds,omitempty"` // as they were measured
	FilesAfter bool        `json:"files_after,omitempty"` // other systems write their parameters to files once nothing is measured any more
}

func (p *Plan) record() record {
	r := record{
		Version: formatVersion, Build: p.Host.Build, Command: p.Command, Created: p.now().UTC().Truncate(time.Second), Tasks: p.Tasks,
		Workers: p.Workers, Batches: p.Batches, Links: slices.Clone(p.Links), Repeats: p.Repeats, Open: p.open, Seconds: p.Seconds, WarmUp: p.WarmUp, Quick: p.Quick,
		Full: p.Full, Only: p.Only, Most: p.Most, Cores: p.Cores, FilesAfter: true, Facts: map[string]Facts{}, Abouts: map[string]About{}, Absent: map[string]string{},
	}
	for _, s := range p.Systems {
		r.Systems = append(r.Systems, s.Name())
		r.Abouts[s.Name()] = s.About()
	}
	r.Frequency = frequencyPolicy("/sys/devices/system/cpu")
	r.Control = congestionControl("/proc/sys/net/ipv4")
	facts, _ := host.Describe(host.Options{}) // what could not be read is empty
	r.Machine = fmt.Sprintf("%s, %s, %s", facts.Name, cmp.Or(facts.CPU, facts.Arch), quantity.Count(facts.Cores, "core"))
	r.Host, _ = json.Marshal(facts) // a plain struct
	return r
}

// coreLimit is how many threads the control group lets be busy at once, as a container may have fewer than there are cores: one at least.
func (r *record) coreLimit() int {
	var h host.Facts
	if json.Unmarshal(r.Host, &h) != nil || h.CPULimit <= 0 {
		return math.MaxInt
	}
	return max(1, int(h.CPULimit))
}

// A MixedError says that a directory holds trials that must not be mixed with the plan's.
type MixedError struct {
	Dir string
	Why []string
}

func (e *MixedError) Error() string {
	return fmt.Sprintf("compare: %s holds another comparison, and trials of two are not mixed: %s; name another directory with --dir", e.Dir, strings.Join(e.Why, "; "))
}

// differs says in what o is not the same comparison as r.
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
	why = append(why, otherTasks(o.Tasks, r.Tasks)...)
	for _, x := range []struct{ name, then, now string }{
		{"systems", listed(o.Systems), listed(r.Systems)},
		{"workers", listed(o.Workers), listed(r.Workers)},
		{"batches", listed(o.Batches), listed(r.Batches)},
		{"links", listed(o.Links), listed(r.Links)},
		{"repeats", fmt.Sprint(o.Repeats), fmt.Sprint(r.Repeats)},
		{"seconds", fmt.Sprint(o.Seconds), fmt.Sprint(r.Seconds)},
		{"warm-up", fmt.Sprint(o.WarmUp), fmt.Sprint(r.WarmUp)},
		{"cores", listed(o.Cores), listed(r.Cores)},
		{"cells", o.cells(), r.cells()},
	} {
		if x.then != x.now {
			why = append(why, fmt.Sprintf("its %s differ (%s then, %s now)", x.name, x.then, x.now))
		}
	}
	return why
}

// settledAs is r with as many repeats as o has, where both left their number open.
func (r record) settledAs(o *record) *record {
	if r.Open && o.Open {
		r.Repeats = o.Repeats
	}
	return &r
}

func listed[T any](list []T) string {
	var words []string
	for _, x := range list {
		words = append(words, fmt.Sprint(x))
	}
	return strings.Join(words, ", ")
}

func (r *record) cells() string {
	if !r.Full {
		return "all combinations"
	}
	if part := r.Only.String(); part != "" {
		return "the full run's of " + part
	}
	return "the full run's"
}

// otherTasks says in what now are not the tasks that then are; by which name a user calls a file of his is no matter.
func otherTasks(then, now []Task) (why []string) {
	on := func(tasks []Task) string {
		var words []string
		for _, t := range tasks {
			words = append(words, t.Name+" on "+t.Job.Data.Source)
		}
		return listed(words)
	}
	if a, b := on(then), on(now); a != b {
		return []string{fmt.Sprintf("its tasks differ (%s then, %s now; --data names a folder)", a, b)}
	}
	for i := range then {
		a, b := &then[i], &now[i]
		for _, x := range []struct {
			name string
			same bool
		}{
			{"job", sameJob(&a.Job, &b.Job) && a.Own == b.Own},
			{"target", a.Target == b.Target},
			{"batches", slices.Equal(a.Batches, b.Batches)},
			{"epochs", a.Cap == b.Cap},
		} {
			if !x.same {
				why = append(why, fmt.Sprintf("its tasks differ, in the %s of %s", x.name, a.Name))
			}
		}
	}
	return why
}

// sameJob compares jobs as they are written: an empty list of a job file is not, and comes back as none.
func sameJob(a, b *trivium.Job) bool {
	x, err := a.Encode()
	y, err2 := b.Encode()
	return err == nil && err2 == nil && bytes.Equal(x, y)
}

// widened is o with what r asks for beyond it: further systems and repeats, which a later sitting measures. Where r asks for less, it is o.
func (r *record) widened(o record) record {
	missing := func(system string) bool { return !slices.Contains(r.Systems, system) }
	if r.Repeats >= o.Repeats && !slices.ContainsFunc(o.Systems, missing) {
		o.Systems, o.Abouts, o.Repeats, o.Command = r.Systems, r.Abouts, r.Repeats, r.Command
	}
	return o
}

// A directory is a plan's, open and locked.
type directory struct {
	path   string
	record record
	fresh  bool     // it held no comparison before
	made   bool     // it was not there before
	above  []string // folders that were made for it, such as that of all comparisons: innermost first
}

const (
	planFile   = "plan.json"
	lockFile   = "lock"
	trialsDir  = "trials"
	workDir    = "work"
	dataDir    = "data" // what processes read; made anew where it is missing, and put away at the end
	resultFile = "result.json"
	curveFile  = "curve.json"
	reportFile = "report.json" // of a comparison that is finished
)

// openDirectory makes the plan's directory, or opens it where it holds the same comparison. What is in it is looked at under its lock: another
// process may be about to end there.
func (p *Plan) openDirectory() (_ *directory, err error) {
	d := &directory{path: filepath.Clean(p.Dir), record: p.record()}
	if err := d.make(); err != nil {
		d.leave()
		return nil, fmt.Errorf("compare: the directory cannot be made: %w", err)
	}
	if err := d.lock(); err != nil {
		if d.made {
			_ = os.Remove(d.path) // which another process has, where it is not empty
			d.leave()
		}
		return nil, err
	}
	begun, err := d.open()
	if err != nil {
		return nil, errors.Join(err, d.unlock())
	}
	// What was under way when an earlier process ended is not a result.
	err = os.RemoveAll(filepath.Join(d.path, workDir))
	if err == nil && !begun {
		err = d.save()
	}
	if err == nil {
		err = os.MkdirAll(filepath.Join(d.path, trialsDir), 0o755)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// make makes the folder, where there is none. Of two processes that begin at once, one made it.
func (d *directory) make() error {
	parent := filepath.Dir(d.path)
	for dir := parent; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		d.above = append(d.above, dir)
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	err := os.Mkdir(d.path, 0o755)
	d.made = err == nil
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, err := os.Stat(d.path); err == nil && !info.IsDir() {
		return &PlanError{fmt.Errorf("%s is no folder; name another with --dir", d.path)}
	}
	return nil
}

// open looks whether the plan's comparison is begun here, and refuses what is another's.
func (d *directory) open() (begun bool, err error) {
	var old record
	err = readJSON(filepath.Join(d.path, planFile), &old)
	switch {
	case err == nil:
		d.record = *d.record.settledAs(&old)
		old = d.record.widened(old)
		if why := d.record.differs(&old); len(why) > 0 {
			return true, &MixedError{d.path, why}
		}
		old.Quick, old.Tasks = d.record.Quick, d.record.Tasks // the same but for what a file is called: as in the report of this command
		d.record = old
		if old.Facts == nil { // what is empty is not written
			d.record.Facts = map[string]Facts{}
		}
		if old.Absent == nil {
			d.record.Absent = map[string]string{}
		}
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return true, &PlanError{fmt.Errorf("compare: the directory cannot be gone on with: %w; name another with --dir", err)}
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return false, fmt.Errorf("compare: the directory cannot be read: %w", err)
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != lockFile }) {
		return false, &PlanError{fmt.Errorf("compare: %s is not empty, and holds no comparison; name another directory with --dir", d.path)}
	}
	d.fresh = true
	return false, nil
}

// close puts away what is not a result; of a comparison that ended before its first trial, everything.
func (d *directory) close() error {
	_, unfinished := os.Stat(filepath.Join(d.path, reportFile))
	if done, err := finishedTrials(d.path); err == nil && len(done) == 0 && d.fresh && errors.Is(unfinished, fs.ErrNotExist) {
		return d.clear()
	}
	errs := []error{os.RemoveAll(filepath.Join(d.path, workDir))}
	if unfinished == nil { // its data can be made again; an estimate of more may have made it
		errs = append(errs, os.RemoveAll(filepath.Join(d.path, dataDir)))
	}
	return errors.Join(append(errs, os.Remove(filepath.Join(d.path, lockFile)))...)
}

// clear leaves the directory as it was found: not there, or empty.
func (d *directory) clear() error {
	if d.made {
		err := os.RemoveAll(d.path)
		d.leave()
		return err
	}
	var errs []error
	for _, name := range []string{planFile, referenceFile, trialsDir, workDir, dataDir, lockFile} {
		errs = append(errs, os.RemoveAll(filepath.Join(d.path, name)))
	}
	return errors.Join(errs...)
}

// leave removes the folders that were made for the directory, now that it is gone: what something else is in by now stays.
func (d *directory) leave() {
	for _, dir := range d.above {
		_ = os.Remove(dir)
	}
}

// finishedTrials are the names of a comparison's finished trials. The directory is the user's to name, and no pattern: "runs [a]" is one.
func finishedTrials(dir string) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, trialsDir))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if errors.Is(err, fs.ErrNotExist) { // it ended before it had a folder for them
		err = nil
	}
	return names, err
}

// comparisons are the folders in root that hold one, the newest last: names begin with a date.
func comparisons(root string) (dirs []string) {
	entries, _ := os.ReadDir(root) // sorted; where there is no root, there are none
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		if _, err := os.Stat(filepath.Join(dir, planFile)); err == nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// reach says how processes reach each other, which is found out anew at each sitting: not every user may make namespaces.
func (d *directory) reach(by string) error {
	if was := d.record.Network; was != "" && was != by {
		return &MixedError{d.path, []string{fmt.Sprintf("its processes talked over %s, and these would over %s: repeat the command as the user who began it", was, by)}}
	}
	d.record.Network = by
	return nil
}

// unfinish takes the directory for one with trials to do: what its report says is not all any more.
func (d *directory) unfinish() error {
	if err := os.Remove(filepath.Join(d.path, reportFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
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
	dir := d.trialDir(c, repeat)
	var s saved
	err := readJSON(filepath.Join(dir, resultFile), &s)
	if errors.Is(err, fs.ErrNotExist) {
		return Result{}, false, nil
	}
	if err == nil && (s.Cell.ID() != c.ID() || s.Repeat != repeat) { // such as null
		err = fmt.Errorf("%s: it is no result of repeat %d of %s", filepath.Join(dir, resultFile), repeat, c.ID())
	}
	var curve []curvePoint
	if err == nil {
		if err = readJSON(filepath.Join(dir, curveFile), &curve); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return Result{}, false, &PlanError{fmt.Errorf("compare: a finished trial cannot be read: %w; remove its folder to run it again", err)}
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
	return curvePoint{p.Update, p.Seconds, p.Samples, finite.OrNil(p.Loss), finite.OrNil(p.Value)}
}

func (p curvePoint) point() Point {
	return Point{p.Update, p.Seconds, p.Samples, orNaN(p.Loss), orNaN(p.Value)}
}
