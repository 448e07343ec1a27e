package data

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium"
)

// describeOthers finds the mistakes in the files of the splits that are not trained on, whose rows are read as the training file's.
func (d *Description) describeOthers(ctx context.Context, where *location, desc trivium.Data, o Options) error {
	if namesFile(desc.Train) { // of another source
		return nil
	}
	var paths []string
	for _, x := range []struct{ named, convention string }{{desc.Valid, where.valid}, {desc.Test, where.test}} {
		path := x.convention
		if x.named != "" {
			path = ""
		}
		if namesFile(x.named) {
			path = where.relative(x.named)
		}
		if path != "" && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	main, err := openRowFile(where.train, &desc)
	if err != nil {
		return err
	}
	files := []rowFile{main}
	for _, path := range paths {
		f, e := openRowFile(path, &desc)
		if err = d.found(e); err != nil {
			break
		}
		if e == nil {
			files = append(files, f)
		}
	}
	if err == nil {
		err = d.checkAll(ctx, main, files[1:], desc, o)
	}
	for _, f := range files {
		err = errors.Join(err, f.close())
	}
	return err
}

// checkAll finds the mistakes in files as a model trained on main has them read. What training asks flags for, and a look does not, is as if given.
func (d *Description) checkAll(ctx context.Context, main rowFile, files []rowFile, desc trivium.Data, o Options) error {
	for _, c := range d.Columns {
		if c.Kind == "text" {
			desc.Categorical = append(slices.Clip(desc.Categorical), c.Name)
		}
	}
	if desc.Missing == "" || desc.Missing == "error" {
		desc.Missing = "zero"
	}
	tr, err := main.fit(ctx, fitting{desc: desc, labels: o.Labels, budget: o.Budget, to: main.numRows(), others: files, unlabelled: true})
	if e, ok := errors.AsType[*Error](err); ok {
		if slices.ContainsFunc(files, func(f rowFile) bool { return f.fileName() == e.File }) { // sparse rows are as wide as the widest
			return d.problem(e)
		}
		for _, f := range files {
			d.Notes = append(d.Notes, fmt.Sprintf("%s is not looked at: nothing can be trained on %s yet", f.fileName(), main.fileName()))
		}
		return nil
	}
	for _, f := range files {
		if err != nil {
			return err
		}
		before := len(d.Problems)
		if t, ok := f.(*tableFile); ok && tr.Kind == KindTable {
			err = d.found(t.check(ctx, d, tr))
		} else { // training says the first
			_, _, e := f.dataset(ctx, tr, o.Budget)
			err = d.found(e)
		}
		sortByPlace(d.Problems[before:])
	}
	return err
}

// found notes err if it is a mistake in the data, else returns it.
func (d *Description) found(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return d.problem(e)
	}
	return err
}

// check finds the mistakes in the rows of t under tr, and notes in how many a cell is missing.
func (t *tableFile) check(ctx context.Context, d *Description, tr *Transform) error {
	if err := t.follow(tr); err != nil {
		return err
	}
	p := t.p
	p.apart = true
	w := newTableWriter(tr, p)
	next, incomplete := int64(0), 0
	var failed error
	t.watch = func(r *rawRows) {
		for row := range r.n {
			if slices.Contains(r.absent[row*len(p.roles):(row+1)*len(p.roles)], true) {
				incomplete++
			}
			if w.labels.classes == nil || r.label[row] != r.label[row] || p.drop && r.incomplete(p, row) {
				continue
			}
			if _, known := w.labels.classes.of(r.label[row]); !known {
				failed = errors.Join(failed, d.found(t.noClass(w, r.label[row], next+int64(row))))
			}
		}
		next += int64(r.n)
	}
	err := t.scan(ctx, 0, 0, false, false, -1, d.problem)
	if incomplete > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("%s: cells are missing in %d of %d rows", t.fileName(), incomplete, t.numRows()))
	}
	return errors.Join(err, failed)
}
