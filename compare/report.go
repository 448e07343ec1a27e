package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// A Report is what a plan found.
type Report struct {
	Format   int               `json:"format"`
	Quick    bool              `json:"quick,omitempty"`
	Command  string            `json:"command,omitempty"`
	Created  string            `json:"created"`
	Build    string            `json:"build"`
	Machine  string            `json:"machine"`
	Cores    int               `json:"cores"`
	Repeats  int               `json:"repeats"`
	Seconds  float64           `json:"seconds"`
	WarmUp   float64           `json:"warm_up"`
	Facts    map[string]Facts  `json:"facts,omitempty"`
	Absent   map[string]string `json:"absent,omitempty"`
	Notes    []string          `json:"notes,omitempty"`
	Tables   []*Table          `json:"tables"`
	Verdicts []Verdict         `json:"verdicts,omitempty"`
	Claims   []Claim           `json:"claims,omitempty"`
	Check    Check             `json:"check"`
	Threats  []string          `json:"threats,omitempty"`
	Best     *Best             `json:"best,omitempty"` // of the user's own job
}

// A Check is what check.py, which knows none of our code, made of the saved parameters.
type Check struct {
	Compared int     `json:"compared"` // losses
	Largest  float64 `json:"largest"`  // difference
	Why      string  `json:"why,omitempty"`
}

// A Table has the rows that differ in the system alone.
type Table struct {
	Task      string `json:"task"`
	Model     string `json:"model"`
	Data      string `json:"data"`
	Target    Target `json:"target"`
	Cap       int    `json:"cap"` // epochs
	Batch     Batch  `json:"batch"`
	Workers   int    `json:"workers"`
	Link      Link   `json:"link,omitzero"`
	Own       bool   `json:"own,omitempty"`
	Reference int64  `json:"reference,omitempty"` // updates that local needs at the workers' effective batch
	Rows      []*Row `json:"rows"`
}

// A Row is one system in a table.
type Row struct {
	System    string   `json:"system"`
	Title     string   `json:"title"`
	Mode      Mode     `json:"mode"`
	Peer      bool     `json:"peer,omitempty"`
	Approx    string   `json:"approx,omitempty"`
	Effective int      `json:"effective_batch"`
	Workers   int      `json:"workers"`
	Servers   int      `json:"servers"`
	Threads   int      `json:"threads"`         // of a worker
	Crowded   bool     `json:"crowded"`         // more busy threads than cores: it carries no verdict
	Error     string   `json:"error,omitempty"` // why there is no result
	Trials    []Repeat `json:"trials,omitempty"`

	Rate    Spread          `json:"samples_per_second"`
	Target  Spread          `json:"seconds_to_target"`
	Start   Spread          `json:"start_seconds"`
	Good    int             `json:"good"`    // trials that ended well
	Reached int             `json:"reached"` // of these, the target
	Best    float64         `json:"best"`
	Proof   string          `json:"proof,omitempty"`
	Largest float64         `json:"deviation"`
	Ranked  bool            `json:"ranked"`
	Why     string          `json:"not_ranked,omitempty"`
	Place   int             `json:"place,omitempty"` // by time to target, from 1
	Use     map[Role]PerUse `json:"use,omitempty"`
}

// Repeat is a repeat with its result.
type Repeat struct {
	Repeat int          `json:"repeat"`
	Result Result       `json:"result"`
	Curve  []curvePoint `json:"curve,omitempty"`
}

// A Spread is a median with its extremes; of no trial it is zero.
type Spread struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Values []float64 `json:"-"`
}

func spread(x []float64) Spread {
	if len(x) == 0 {
		return Spread{}
	}
	return Spread{Median(x), slices.Min(x), slices.Max(x), x}
}

// PerUse is what the processes of a role took: medians over the trials.
type PerUse struct {
	Processes    int     `json:"processes"`
	UserShare    float64 `json:"user_cores"`   // cores that were busy
	SystemShare  float64 `json:"system_cores"` //
	MicrosSample float64 `json:"cpu_micros_per_sample"`
	MeanBytes    float64 `json:"mean_bytes"`
	PeakBytes    float64 `json:"peak_bytes"`
	BytesSample  float64 `json:"bytes_per_sample"` // in and out
	BytesSecond  float64 `json:"bytes_per_second"`
	NotCounted   string  `json:"not_measured,omitempty"`
}

// good is the least number of good repeats that rank.
const good = 3

func newReport(p *Plan, r *record) *Report {
	return &Report{
		Format: formatVersion, Quick: p.Quick, Command: r.Command, Created: r.Created.Format("2006-01-02 15:04:05 MST"), Build: r.Build,
		Machine: r.Machine, Cores: len(p.Cores), Repeats: p.Repeats, Seconds: p.Seconds, WarmUp: p.WarmUp, Facts: r.Facts, Absent: r.Absent,
		Notes: r.Notes,
	}
}

// table begins a table.
func (r *Report) table(g *group, p *Plan) *Table {
	t := &Table{
		Task: g.task.Name, Model: g.task.Job.Model, Data: g.task.Job.Data.Source, Target: g.task.Target, Cap: g.task.Cap, Batch: g.batch,
		Workers: g.work, Link: g.link, Own: g.task.Own,
	}
	for _, c := range g.cells {
		a := p.Systems[c.index].About()
		x := &Row{
			System: c.System, Title: a.Title, Mode: a.Mode, Peer: a.Peer, Approx: a.Approx, Workers: c.Workers, Servers: c.Servers, Threads: 1,
			Effective: effective(&g.task, g.batch, c.Workers),
		}
		if o, ok := p.Systems[c.index].(*own); ok && o.allCores {
			x.Threads = max(1, len(p.Cores))
		}
		x.Crowded = len(p.Cores) > 0 && x.Workers*x.Threads+x.Servers > len(p.Cores)
		t.Rows = append(t.Rows, x)
	}
	r.Tables = append(r.Tables, t)
	return t
}

// add adds a trial to row i, and ranks the rows anew.
func (t *Table) add(i, repeat int, result Result) {
	x := t.Rows[i]
	one := Repeat{Repeat: repeat, Result: result}
	for _, p := range result.Curve {
		one.Curve = append(one.Curve, curveOf(p))
	}
	x.Trials = append(x.Trials, one)
	x.count(t)
	t.rank()
}

// count makes a row's figures of its trials.
func (x *Row) count(t *Table) {
	var rates, targets, starts []float64
	x.Good, x.Reached, x.Proof, x.Largest, x.Error = 0, 0, "", 0, ""
	best := math.NaN()
	roles := map[Role][]PerUse{}
	for _, one := range x.Trials {
		r := &one.Result
		if r.Error != "" {
			x.Error = r.Error
			continue
		}
		x.Good++
		rates, starts = append(rates, r.SamplesPerSec), append(starts, r.StartSeconds)
		if r.Reached {
			x.Reached++
			targets = append(targets, r.SecondsToTarget)
		}
		if t.Target.better(r.Best, best) {
			best = r.Best
		}
		if x.Proof == "" || x.Proof == proven {
			x.Proof = r.Proof
		}
		x.Largest = max(x.Largest, r.Deviation)
		for role, u := range r.PerRole {
			roles[role] = append(roles[role], u.per(r))
		}
	}
	if x.Good > 0 {
		x.Error = ""
	}
	x.Rate, x.Target, x.Start, x.Best = spread(rates), spread(targets), spread(starts), finite(best)
	x.Use = map[Role]PerUse{}
	for role, list := range roles {
		x.Use[role] = medianUse(list)
	}
	switch {
	case x.Error != "":
		x.Why = x.Error
	case x.Proof != "" && x.Proof != proven:
		x.Why = x.Proof
	case x.Reached < x.Good:
		x.Why = fmt.Sprintf("not reached in %d epochs (best %.4g)", t.Cap, x.Best)
	case x.Good < good:
		x.Why = fmt.Sprintf("%d of %d repeats ended well, and %d are wanted", x.Good, len(x.Trials), good)
	default:
		x.Why = ""
	}
	x.Ranked = x.Why == ""
}

// per is u by second and by sample of a trial.
func (u Use) per(r *Result) PerUse {
	out := PerUse{Processes: u.Processes, MeanBytes: u.MeanBytes, PeakBytes: u.PeakBytes, NotCounted: u.NotCounted}
	if r.Seconds > 0 {
		out.UserShare, out.SystemShare = u.User/r.Seconds, u.System/r.Seconds
		out.BytesSecond = float64(u.In+u.Out) / r.Seconds
	}
	if r.Samples > 0 {
		out.MicrosSample = (u.User + u.System) * 1e6 / float64(r.Samples)
		out.BytesSample = float64(u.In+u.Out) / float64(r.Samples)
	}
	return out
}

func medianUse(list []PerUse) PerUse {
	out := list[0]
	of := func(f func(*PerUse) *float64) {
		var x []float64
		for i := range list {
			x = append(x, *f(&list[i]))
		}
		*f(&out) = Median(x)
	}
	of(func(u *PerUse) *float64 { return &u.UserShare })
	of(func(u *PerUse) *float64 { return &u.SystemShare })
	of(func(u *PerUse) *float64 { return &u.MicrosSample })
	of(func(u *PerUse) *float64 { return &u.MeanBytes })
	of(func(u *PerUse) *float64 { return &u.PeakBytes })
	of(func(u *PerUse) *float64 { return &u.BytesSample })
	of(func(u *PerUse) *float64 { return &u.BytesSecond })
	return out
}

// rank orders the rows that may be ranked by their time to the target.
func (t *Table) rank() {
	var list []*Row
	for _, x := range t.Rows {
		x.Place = 0
		if x.Ranked {
			list = append(list, x)
		}
	}
	slices.SortStableFunc(list, func(a, b *Row) int {
		switch {
		case a.Target.Median < b.Target.Median:
			return -1
		case a.Target.Median > b.Target.Median:
			return 1
		}
		return 0
	})
	for i, x := range list {
		x.Place = i + 1
	}
}

// first returns the best row and the one after it; nil where there is none.
func (t *Table) first() (best, next *Row) {
	for _, x := range t.Rows {
		switch x.Place {
		case 1:
			best = x
		case 2:
			next = x
		}
	}
	return best, next
}

// A Best says which row a user should take for his own job.
type Best struct {
	System  string  `json:"system"`
	Next    string  `json:"next,omitempty"`
	Verdict Verdict `json:"verdict"`
	Command string  `json:"command"`
	Text    string  `json:"text"`
}

// finish draws the conclusions.
func (r *Report) finish(ctx context.Context, p *Plan) {
	r.check(ctx, p)
	if !p.Quick && !r.own() {
		r.judge()
	}
	r.threats()
	for _, t := range r.Tables {
		if t.Own {
			r.Best = best(t, p)
		}
	}
}

// best is the last line of a user's own comparison.
func best(t *Table, p *Plan) *Best {
	a, b := t.first()
	if a == nil {
		return &Best{Text: "best: none, since no row may be ranked: " + t.whyNone()}
	}
	x := &Best{System: a.System}
	i := slices.IndexFunc(p.Systems, func(s System) bool { return s.Name() == a.System })
	if o, ok := p.Systems[i].(*own); ok {
		x.Command = o.trainCommand(t, a, p)
	}
	x.Text = fmt.Sprintf("best: %s reaches %v in %s", a.System, t.Target, secondsWord(a.Target.Median))
	if b != nil {
		x.Next = b.System
		x.Verdict = Judge(a.Target.Values, b.Target.Values)
		x.Text += fmt.Sprintf(", %.2f times as fast as the next, %s (95 %% interval %.2f to %.2f", x.Verdict.Ratio, b.System, x.Verdict.Low, x.Verdict.High)
		switch {
		case x.Verdict.Outcome == Faster:
			x.Text += fmt.Sprintf(", p = %.2g)", x.Verdict.P)
		case len(a.Target.Values) < fewest:
			x.Text += fmt.Sprintf("; %d repeats prove nothing: --repeats 7)", len(a.Target.Values))
		default:
			x.Text += "; no difference is proven)"
		}
	}
	if x.Command != "" {
		x.Text += "; repeat it with: " + x.Command
	}
	return x
}

// whyNone is why no row of the table may be ranked.
func (t *Table) whyNone() string {
	var words []string
	for _, x := range t.Rows {
		words = append(words, x.System+": "+orElse(x.Why, "not measured"))
	}
	return strings.Join(words, "; ")
}

// trainCommand is what trains a row by itself.
func (o *own) trainCommand(t *Table, x *Row, p *Plan) string {
	words := []string{p.programName(), "train"}
	var file string
	for _, task := range p.Tasks {
		if task.Name == t.Task {
			file = task.File
		}
	}
	if file != "" {
		words = append(words, "-f", quoted(file))
	} else {
		words = append(words, t.Model)
	}
	if !o.alone {
		words = append(words, "--topology", o.topology, "--workers", fmt.Sprint(x.Workers), "--processes")
		if o.flags != "" {
			words = append(words, o.flags)
		}
	}
	words = append(words, "--threads", fmt.Sprint(x.Threads))
	if t.Own && x.Effective > 0 && x.Effective%x.Workers == 0 {
		words = append(words, "--batch", fmt.Sprint(x.Effective/x.Workers))
	}
	return strings.Join(words, " ")
}

// quoted is a word as a shell takes it.
func quoted(s string) string {
	if strings.ContainsAny(s, " \t'\"$&;()<>|*?[]#~\\`") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

func (p *Plan) programName() string {
	if name, _, ok := strings.Cut(p.Command, " compare"); ok && name != "" {
		return name
	}
	return "trivium"
}

func (t *Table) title() string {
	if t.Own {
		return fmt.Sprintf("%s, %d workers, batch %s", t.Task, t.Workers, t.Batch)
	}
	return fmt.Sprintf("%s, %d workers, batch %s each, %s", t.Task, t.Workers, t.Batch, t.Link)
}

// threats are the reasons for doubt that the recorded facts give.
func (r *Report) threats() {
	say := func(format string, args ...any) { r.Threats = append(r.Threats, fmt.Sprintf(format, args...)) }
	crowded, flagged, trials := 0, map[string]int{}, 0
	for _, t := range r.Tables {
		for _, x := range t.Rows {
			if x.Crowded {
				crowded++
			}
			for _, one := range x.Trials {
				trials++
				for _, f := range one.Result.Flags {
					key, _, _ := strings.Cut(f, " took")
					if strings.HasPrefix(f, "the machine was") {
						key = "the machine was busy before"
					}
					flagged[key]++
				}
			}
		}
	}
	if crowded > 0 {
		say("%d rows have more busy threads than the %d cores: what they show is partly the scheduler. They are grey, and carry no verdict.", crowded, r.Cores)
	}
	keys := make([]string, 0, len(flagged))
	for k := range flagged {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		say("%d of %d trials are flagged: %s.", flagged[k], trials, k)
	}
	if r.Repeats < 7 {
		say("There are %d repeats: too few for verdicts after correction.", r.Repeats)
	}
	for _, n := range r.Notes {
		say("%s.", strings.TrimSuffix(n, "."))
	}
	say("One machine: what holds between processes of one host need not hold between hosts.")
}

// Text prints the tables as a terminal shows them.
func (r *Report) Text(w io.Writer) error {
	var errs []error
	for _, t := range r.Tables {
		errs = append(errs, t.Text(w))
		fmt.Fprintln(w)
	}
	switch c := &r.Check; {
	case c.Compared > 0 && c.Largest <= checkTolerance:
		fmt.Fprintf(w, "proof: check.py, with NumPy and none of this program, finds the same %d losses within %.1g\n", c.Compared, math.Max(c.Largest, 1e-9))
	case c.Compared > 0:
		fmt.Fprintf(w, "proof: check.py differs by %.2g in one of %d losses: no row should be trusted\n", c.Largest, c.Compared)
	case c.Why != "":
		fmt.Fprintf(w, "proof: not checked by NumPy: %s\n", c.Why)
	}
	return errors.Join(errs...)
}

// Text prints the table as a terminal shows it.
func (t *Table) Text(w io.Writer) error {
	fmt.Fprintf(w, "%s (%s on %s): target %v\n", t.title(), t.Model, filepath.Base(t.Data), t.Target)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "\tROW\tBATCH\tSAMPLES/S\t[MIN-MAX]\tTO TARGET\t[MIN-MAX]\tSAME LOSS\tMEMORY\tBYTES/SAMPLE\t")
	for _, x := range t.Rows {
		place := " "
		if x.Place > 0 {
			place = fmt.Sprint(x.Place)
		}
		mark := x.System
		if x.Crowded {
			mark += " *"
		}
		if x.Good == 0 {
			note := x.Error
			if note == "" {
				note = "not yet"
			}
			fmt.Fprintf(tab, "%s\t%s\t%s\t%s\n", place, mark, Batch(x.Effective), note)
			continue
		}
		target, span := secondsWord(x.Target.Median), fmt.Sprintf("%s-%s", secondsWord(x.Target.Min), secondsWord(x.Target.Max))
		if x.Reached < x.Good {
			target, span = "not reached", fmt.Sprintf("best %.4g", x.Best)
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s-%s\t%s\t%s\t%s\t%s\t%s\t\n", place, mark, Batch(x.Effective), rateWord(x.Rate.Median), rateWord(x.Rate.Min),
			rateWord(x.Rate.Max), target, span, x.proofWord(), x.memoryWord(), x.networkWord())
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	for _, x := range t.Rows {
		if x.Crowded {
			fmt.Fprintln(w, "* more busy threads than cores: no verdict")
			break
		}
	}
	return nil
}

func (x *Row) proofWord() string {
	switch {
	case x.Approx != "":
		return "exempt"
	case x.Mode != Sync:
		return "stale"
	case x.Proof == proven:
		return fmt.Sprintf("yes (%.0e)", x.Largest)
	case x.Proof == "":
		return "-"
	}
	return "NO"
}

func (x *Row) memoryWord() string {
	var sum float64
	for _, u := range x.Use {
		sum += u.MeanBytes
	}
	if sum == 0 {
		return "not measured"
	}
	return byteWord(sum)
}

func (x *Row) networkWord() string {
	if x.Workers == 1 && x.Servers == 0 {
		return "0"
	}
	var sum float64
	known := len(x.Use) > 0
	for _, u := range x.Use {
		sum += u.BytesSample
		known = known && u.NotCounted == ""
	}
	if !known {
		return "not measured"
	}
	return fmt.Sprintf("%.0f", sum/2) // each byte goes out once and comes in once
}

// Write writes report.json, report.csv and report.html, each whole or not at all.
func (r *Report) Write(dir string) error {
	return errors.Join(
		writeJSON(filepath.Join(dir, "report.json"), r),
		writeFile(filepath.Join(dir, "report.csv"), r.csv),
		writeFile(filepath.Join(dir, "report.html"), r.html),
	)
}

// ReadReport reads the report of a finished comparison.
func ReadReport(dir string) (*Report, error) {
	r := new(Report)
	err := readJSON(filepath.Join(dir, "report.json"), r)
	if errors.Is(err, fs.ErrNotExist) {
		if _, e := readPlan(dir); e == nil {
			return nil, fmt.Errorf("compare: %s holds a comparison that is not finished: the command that began it goes on with it", dir)
		}
		return nil, fmt.Errorf("compare: %s holds no comparison", dir)
	}
	if err != nil {
		return nil, err
	}
	if r.Format != formatVersion {
		return nil, fmt.Errorf("compare: %s is of format %d, this program reads %d", dir, r.Format, formatVersion)
	}
	for _, t := range r.Tables { // the values behind the medians
		for _, x := range t.Rows {
			for i := range x.Trials {
				for _, p := range x.Trials[i].Curve {
					x.Trials[i].Result.Curve = append(x.Trials[i].Result.Curve, p.point())
				}
			}
			x.count(t)
		}
		t.rank()
	}
	return r, nil
}

func readPlan(dir string) (*record, error) {
	r := new(record)
	return r, readJSON(filepath.Join(dir, planFile), r)
}

// FindUnfinished returns the newest folder in root whose comparison is the plan's and not finished; empty: there is none.
func FindUnfinished(root string, p Plan) string {
	p.defaults()
	mine := p.record()
	entries, err := filepath.Glob(filepath.Join(root, "*", planFile))
	if err != nil {
		return ""
	}
	slices.Sort(entries)
	for _, name := range slices.Backward(entries) {
		dir := filepath.Dir(name)
		old, err := readPlan(dir)
		if err != nil || len(mine.differs(old)) > 0 {
			continue
		}
		if _, err := ReadReport(dir); err != nil {
			return dir
		}
	}
	return ""
}

// rateWord is 20600 as 20.6k.
func rateWord(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.2fM", x/1e6)
	case x >= 1e5:
		return fmt.Sprintf("%.0fk", x/1e3)
	case x >= 1e3:
		return fmt.Sprintf("%.1fk", x/1e3)
	}
	return fmt.Sprintf("%.0f", x)
}

// secondsWord is 0.0123 as 12.3 ms.
func secondsWord(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f s", x)
	case x >= 1:
		return fmt.Sprintf("%.2f s", x)
	}
	return fmt.Sprintf("%.0f ms", x*1e3)
}

// byteWord is 12582912 as 12 MiB.
func byteWord(x float64) string {
	switch {
	case x >= 1<<30:
		return fmt.Sprintf("%.1f GiB", x/(1<<30))
	case x >= 1<<20:
		return fmt.Sprintf("%.0f MiB", x/(1<<20))
	case x >= 1<<10:
		return fmt.Sprintf("%.0f KiB", x/(1<<10))
	}
	return fmt.Sprintf("%.0f B", x)
}
