package compare

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// Rebuild makes a comparison's report anew of its recorded trials, also of one that is not finished. What only its end can say, such as
// what check.py found, is as the finished report has it.
func Rebuild(dir string) (*Report, error) {
	rec, err := readPlan(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("compare: %s holds no comparison", dir)
	}
	if err != nil {
		return nil, err
	}
	if rec.Version != formatVersion {
		return nil, fmt.Errorf("compare: %s is of format %d, this program reads %d", dir, rec.Version, formatVersion)
	}
	p := Plan{
		Tasks: rec.Tasks, Workers: rec.Workers, Batches: rec.Batches, Links: rec.Links, Repeats: rec.Repeats, Seconds: rec.Seconds, WarmUp: rec.WarmUp,
		Quick: rec.Quick, Full: rec.Full, Only: rec.Only, Cores: rec.Cores, Command: rec.Command, Dir: dir,
	}
	known := Strategies(Host{})
	if peers, err := Peers(""); err == nil {
		known = append(known, peers...)
	}
	for _, name := range rec.Systems {
		if i := slices.IndexFunc(known, func(s System) bool { return s.Name() == name }); i >= 0 {
			p.Systems = append(p.Systems, known[i])
			continue
		}
		about, ok := rec.Abouts[name]
		if !ok {
			return nil, fmt.Errorf("compare: %s: its plan does not say what row %s is", dir, name)
		}
		p.Systems = append(p.Systems, recorded{name, about})
	}
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("compare: %s is not as it was written: %w", filepath.Join(dir, planFile), err)
	}
	d := &directory{path: dir, record: *rec}
	if d.apart() {
		for i, l := range p.Links {
			p.Links[i].Apart = l.Apart || l.Mbit == 0
		}
	}
	r := newReport(&p, rec)
	r.Sittings = rec.Sittings
	references, err := d.references()
	if err != nil {
		return nil, err
	}
	groups := p.groups()
	for i := range groups {
		g := &groups[i]
		t := r.table(g, &p)
		ref := references[referenceKey(&g.task, effective(&g.task, g.batch, g.work))]
		t.Reference, t.Checksum = ref.Updates, ref.Checksum
		for k, c := range g.cells {
			for repeat := 1; repeat <= p.Repeats; repeat++ {
				result, known, err := d.load(c, repeat)
				if err != nil {
					return nil, err
				}
				if known {
					t.add(k, repeat, result)
				}
			}
			if why, gone := rec.Absent[c.System]; gone && len(t.Rows[k].Trials) == 0 {
				t.Rows[k].Error = why
			}
		}
	}
	if err := readJSON(filepath.Join(dir, faultFile), &r.Faults); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	r.Check.Why = "the comparison is not finished"
	old, err := ReadReport(dir)
	if r.unfinished = errors.Is(err, ErrUnfinished); err == nil {
		r.Check, r.Efforts = old.Check, old.Efforts
		for i, t := range r.Tables {
			if i < len(old.Tables) && old.Tables[i].title() == t.title() {
				t.Reference, t.Checksum = old.Tables[i].Reference, old.Tables[i].Checksum
			}
		}
	}
	r.conclude(&p)
	return r, nil
}

// WritePage writes report.html, and the picture of the gap, alone.
func (r *Report) WritePage(dir string) error {
	return errors.Join(writeFile(filepath.Join(dir, "report.html"), r.html), r.writeGap(dir))
}

// apart reports whether the processes of the trials had network namespaces of their own.
func (d *directory) apart() bool {
	names, _ := finishedTrials(d.path) // else there are none
	for _, name := range names {
		var s saved
		if readJSON(filepath.Join(d.path, trialsDir, name, resultFile), &s) == nil {
			return s.Cell.Link.Apart
		}
	}
	return false
}

// A recorded system is a row of which this program has the record alone.
type recorded struct {
	name  string
	about About
}

// Name implements System.
func (s recorded) Name() string { return s.name }

// About implements System.
func (s recorded) About() About { return s.about }

// Detect implements System.
func (s recorded) Detect(context.Context) (Facts, error) {
	return nil, fmt.Errorf("compare: of %s there is a record alone", s.name)
}

// Start implements System.
func (s recorded) Start(context.Context, Spec) (Trial, error) {
	return nil, fmt.Errorf("compare: of %s there is a record alone", s.name)
}
