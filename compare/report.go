package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium/internal/quantity"
)

// A Report is what a plan found.
type Report struct {
	Format    int               `json:"format"`
	Quick     bool              `json:"quick,omitempty"`
	Command   string            `json:"command,omitempty"`
	Created   string            `json:"created"`
	Build     string            `json:"build"`
	Machine   string            `json:"machine"`
	Cores     int               `json:"cores"`
	Repeats   int               `json:"repeats"`
	Seconds   float64           `json:"seconds"`
	WarmUp    float64           `json:"warm_up"`
	Facts     map[string]Facts  `json:"facts,omitempty"`
	Absent    map[string]string `json:"absent,omitempty"`
	Lacking   string            `json:"without_program,omitempty"` // which other systems have none for which tasks
	Notes     []string          `json:"notes,omitempty"`
	Sittings  []Sitting         `json:"sittings,omitempty"`
	Tables    []*Table          `json:"tables"`
	Verdicts  []Verdict         `json:"verdicts,omitempty"` // the comparisons of all claims, each with its own p
	Claims    []Claim           `json:"claims,omitempty"`
	Faults    []Fault           `json:"faults,omitempty"`
	Efforts   []Effort          `json:"efforts,omitempty"`
	Host      json.RawMessage   `json:"host,omitempty"`               // as observe/host describes it
	Frequency string            `json:"frequency,omitempty"`          // policy of the processor
	Control   string            `json:"congestion_control,omitempty"` // of TCP, as the system has it
	Check     Check             `json:"check"`
	Threats   []string          `json:"threats,omitempty"`
	Best      *Best             `json:"best,omitempty"` // of the user's own job

	LinkSpeeds []LinkSpeed `json:"link_speeds,omitempty"` // of those that were measured, in each sitting
	FilesAfter bool        `json:"files_after,omitempty"` // see record

	unfinished bool // its end is still to come
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
	Cap       int    `json:"cap"`             // epochs within which the target counts; 0: as many as Steps takes
	Steps     int64  `json:"steps,omitempty"` // updates within which it counts, if before the epochs; 0: no such bound
	Batch     Batch  `json:"batch"`
	Workers   int    `json:"workers"`
	Link      Link   `json:"link,omitzero"`
	Own       bool   `json:"own,omitempty"`
	Reference int64  `json:"reference,omitempty"` // updates that local needs at the workers' effective batch
	Checksum  string `json:"checksum,omitempty"`  // of the data
	Rows      []*Row `json:"rows"`
}

func newReport(p *Plan, r *record) *Report {
	return &Report{
		Format: formatVersion, Quick: p.Quick, Command: r.Command, Created: r.Created.Format("2006-01-02 15:04:05 MST"), Build: r.Build,
		Machine: r.Machine, Cores: min(p.coreCount(), r.coreLimit()), Repeats: p.Repeats, Seconds: p.Seconds, WarmUp: p.WarmUp, Facts: r.Facts, Absent: r.Absent,
		Notes: r.Notes, Host: r.Host, Frequency: r.Frequency, Control: r.Control, Efforts: efforts(p.Systems),
		LinkSpeeds: r.LinkSpeeds, FilesAfter: r.FilesAfter, Lacking: p.unprogrammed(),
	}
}

// table begins a table.
func (r *Report) table(g *group, p *Plan) *Table {
	t := &Table{
		Task: g.task.Name, Model: g.task.Job.Model, Data: g.task.Job.Data.Source, Target: g.task.Target, Cap: g.task.Cap, Steps: g.task.Job.Steps,
		Batch: g.batch, Workers: g.work, Link: g.link, Own: g.task.Own,
	}
	for _, c := range g.cells {
		a := p.Systems[c.index].About()
		x := &Row{
			System: c.System, Title: a.Title, Mode: a.Mode, Peer: a.Peer, Approx: a.Approx, Shared: a.Shared, Workers: c.Workers, Servers: c.Servers, Threads: 1,
			Effective: effective(&g.task, g.batch, c.Workers), cell: c.ID(),
		}
		if a.Clocks > 0 { // each worker makes steps of one row
			x.Effective = c.Workers
		}
		if o, ok := p.Systems[c.index].(*own); ok && o.allCores {
			x.Threads = p.coreCount()
		}
		x.Crowded = x.Workers*x.Threads+x.Servers > r.Cores
		t.Rows = append(t.Rows, x)
	}
	r.Tables = append(r.Tables, t)
	return t
}

// repeats are those that the rows of tables have, in words: fewer than were asked for where the comparison is not finished.
func (r *Report) repeats(tables ...*Table) string {
	least, most := r.repeatsOf(tables)
	switch {
	case r.Repeats == 1:
		return "1 repeat"
	case most == 0 || least == r.Repeats:
		return fmt.Sprintf("%d repeats", r.Repeats)
	case least == most:
		return fmt.Sprintf("%d (of %d planned) repeats", least, r.Repeats)
	default:
		return fmt.Sprintf("%d to %d (of %d planned) repeats", least, most, r.Repeats)
	}
}

// repeatsOf are the least and the most of what the measured rows of tables have: what is asked for and none, where nothing is measured.
func (r *Report) repeatsOf(tables []*Table) (least, most int) {
	least = r.Repeats
	for _, t := range tables {
		for _, x := range t.Rows {
			if n := len(x.Trials); n > 0 { // else it is absent, and says so
				least, most = min(least, n), max(most, n)
			}
		}
	}
	return least, most
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

// finish draws the conclusions.
func (r *Report) finish(ctx context.Context, p *Plan) {
	r.check(ctx, p)
	r.conclude(p)
}

// conclude draws the conclusions that need no more than the trials.
func (r *Report) conclude(p *Plan) {
	if !p.Quick && !r.own() {
		r.judge()
	}
	if r.own() {
		r.Best = best(r.Tables, p)
	}
	r.threats()
}

// within says within how many epochs or updates the target counts.
func (t *Table) within() string {
	var words []string
	if t.Cap > 0 {
		words = append(words, quantity.Count(t.Cap, "epoch"))
	}
	if t.Steps > 0 {
		words = append(words, quantity.Count(t.Steps, "update"))
	}
	return strings.Join(words, " and ")
}

func (t *Table) title() string {
	if t.Own {
		title := fmt.Sprintf("%s, %s, batch %s", t.Task, quantity.Count(t.Workers, "worker"), t.Batch)
		if t.Link.Mbit > 0 {
			title += fmt.Sprintf(", %s", t.Link)
		}
		return title
	}
	each := " each"
	if t.Workers == 1 {
		each = ""
	}
	return fmt.Sprintf("%s, %s, batch %s%s, %s", t.Task, quantity.Count(t.Workers, "worker"), t.Batch, each, t.Link)
}

// Write writes report.csv, report.html, gap.svg and report.json, each whole or not at all. The last says that the comparison is finished: a
// disk that is full before leaves one that the same command goes on with.
func (r *Report) Write(dir string) error {
	err := errors.Join(
		writeFile(filepath.Join(dir, "report.csv"), r.csv),
		writeFile(filepath.Join(dir, "report.html"), r.html),
		r.writeGap(dir),
	)
	if err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, reportFile), r)
}
