package compare

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// ErrUnfinished says that a comparison has trials to do.
var ErrUnfinished = errors.New("the comparison is not finished")

// ReadReport reads the report of a finished comparison.
func ReadReport(dir string) (*Report, error) {
	r := new(Report)
	err := readJSON(filepath.Join(dir, reportFile), r)
	if errors.Is(err, fs.ErrNotExist) {
		switch _, e := readPlan(dir); {
		case e == nil:
			return nil, fmt.Errorf("compare: %s: %w: the command that began it goes on with it", dir, ErrUnfinished)
		case !errors.Is(e, fs.ErrNotExist):
			return nil, fmt.Errorf("compare: the comparison cannot be read: %w", e)
		}
		return nil, fmt.Errorf("compare: %s holds no comparison", dir)
	}
	if err == nil && slices.ContainsFunc(r.Tables, func(t *Table) bool { return t == nil || slices.Contains(t.Rows, nil) }) {
		err = fmt.Errorf("%s has a table or a row that is null", filepath.Join(dir, reportFile))
	}
	if err != nil {
		return nil, fmt.Errorf("compare: the report cannot be read: %w; the command that made it makes it anew of the trials", err)
	}
	if r.Format == formatVersion && len(r.Tables) == 0 {
		return nil, fmt.Errorf("compare: %s has no table; the command that made it makes it anew of the trials", filepath.Join(dir, reportFile))
	}
	if r.Format != formatVersion {
		return nil, fmt.Errorf("compare: %s is of format %d, this program reads %d", dir, r.Format, formatVersion)
	}
	for _, t := range r.Tables { // the values behind the medians, and whose trials they are
		for _, x := range t.Rows {
			x.cell = t.cellOf(x)
			for i := range x.Trials {
				for _, p := range x.Trials[i].Curve {
					x.Trials[i].Result.Curve = append(x.Trials[i].Result.Curve, p.point())
				}
			}
			if len(x.Trials) > 0 { // else its Error says why there is none
				x.count(t)
			}
		}
		t.rank()
	}
	return r, nil
}

// cellOf is the ID of a row's cell, which a report does not say: what it is made of is all there.
func (t *Table) cellOf(x *Row) string {
	c := Cell{Task: t.Task, Batch: t.Batch, Workers: x.Workers, Link: t.Link, System: x.System}
	if x.Workers < t.Workers || strings.HasPrefix(x.System, "local") { // a row of one process has no link
		c.Link = Link{}
	}
	return c.ID()
}

func readPlan(dir string) (*record, error) {
	r := new(record)
	return r, readJSON(filepath.Join(dir, planFile), r)
}

// FindUnfinished returns the newest folder in root whose comparison is the plan's and not finished; empty: there is none.
func FindUnfinished(root string, p Plan) string {
	p.defaults()
	mine := p.record()
	for _, dir := range slices.Backward(comparisons(root)) {
		old, err := readPlan(dir)
		if err != nil || len(mine.settledAs(old).differs(old)) > 0 {
			continue
		}
		if _, err := ReadReport(dir); err != nil {
			return dir
		}
	}
	return ""
}
