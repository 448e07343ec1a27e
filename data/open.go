package data

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/quantity"
)

// Splits are the data sets of a job.
type Splits struct {
	Train, Valid, Test Dataset // nil where there is none
	Transform          *Transform
	Checksum           string   // of the contents, however they are compressed
	Notes              []string // what a reader of the run should know, such as that the data is generated
	Cautions           []string // those of the notes that concern who applies a model: categories that training did not have, rows that are left out

	plain   Dataset // Train without class weights, where it has them
	files   []rowFile
	fetched *fetched // nil: nothing was
}

// Close lets go of the files that data sets are streamed from. Data sets in memory stay usable.
func (s *Splits) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.close())
	}
	s.files = nil
	errs = append(errs, s.fetched.close())
	s.fetched = nil
	return errors.Join(errs...)
}

// Measured returns the training rows as a model is measured on them: class weights are for training alone, so that the figures of all
// splits compare.
func (s *Splits) Measured() Dataset {
	if s.plain != nil {
		return s.plain
	}
	return s.Train
}

// LabelColumn returns which column of a table the labels are; empty: there is no table, or no label.
func (s *Splits) LabelColumn() string {
	if s.Transform == nil {
		return ""
	}
	return s.Transform.Label.Column
}

// Schema returns what all splits' batches hold.
func (s *Splits) Schema() trivium.Schema {
	for _, ds := range []Dataset{s.Train, s.Test, s.Valid} {
		if ds != nil {
			return ds.Schema()
		}
	}
	return trivium.Schema{}
}

// Generators returns the sources that need no file: digits, logistic and adult.
func Generators() Sources {
	sources := Sources{}
	for name, g := range generators() {
		sources[name] = g.source
	}
	return sources
}

// Options says how Open reads.
type Options struct {
	Sources   Sources    // beside Generators; a name here goes before one there, and before a file's
	Transform *Transform // given: applied, where otherwise one is fitted to the training rows
	Labels    LabelMode  // what the model takes labels for
	Budget    int64      // bytes of memory for the rows of one file, such as BudgetOf; beyond it they are streamed. 0: 4 GiB

	// Walk, given, says how the training rows, of which there are so many, will be walked, by who walks a part of them. The generators then
	// keep what that walk finds, so that the rest takes no memory; a row that another walk or a Read wants after all is made then.
	Walk func(rows int64) BatchOptions

	// Unsummed says that another process opens the same data and has its checksum. Rows that Walk lets the generators leave unmade are then
	// not looked at, and the splits have no checksum, nor a note of the classes that training rows lack.
	Unsummed bool

	// Unlabelled says that rows may have no labels, as when a model is only to be applied. With a Transform, labels and weights of a
	// file that has them are passed over: what they are makes no difference to predictions.
	Unlabelled bool

	// Whole says that nothing is to be trained: where neither the description nor the source itself says which rows are for what, all are Test,
	// and what no split has may lie in pieces.
	Whole bool
}

const defaultBudget = 4 << 30

// BudgetOf is the Options.Budget of a process that may have so many bytes of memory: half of them, since there is more in it than the rows of one
// file, and at most 4 GiB. 0, of memory too: that is not known.
func BudgetOf(memory int64) int64 { return min(defaultBudget, memory/2) }

// validate fills in defaults.
func (o *Options) validate() error {
	if o.Budget == 0 {
		o.Budget = defaultBudget
	}
	var errs []error
	if o.Budget < 0 {
		errs = append(errs, setting("budget", "want 0 or more bytes, found %d", o.Budget))
	}
	if o.Labels > LabelsReal {
		errs = append(errs, setting("labels", "unknown label mode %d", o.Labels))
	}
	if o.Transform != nil {
		errs = append(errs, o.Transform.Validate())
	}
	return errors.Join(errs...)
}

// Open makes the data sets that d describes. A file's rows are resident if they fit into the budget; else each read decodes them from
// the file, of which an index of every 512th row's place is kept (a gzip file is decompressed into a temporary file for that). Images of
// bytes stay bytes in memory, and become numbers of [0, 1] where they are read.
//
// Where a source or a split is a URL of http or https, the file is fetched first, into a temporary one.
//
// Train, Valid and Test of d are files, ranges of rows ("0:8000", "8000:"), or fractions ("0.8") that are taken in that order from the
// start. What is not said follows the source: a folder with train and test files has both; of a single file, the first 0.8 of the rows
// are for training and the rest for testing. Rows are not shuffled before they are cut. If only some are given, training has the rows
// that the others leave. Beside a file for training, ranges and fractions are of that file's rows.
//
// A mistake in the data or in d is an *Error. Close the splits when the data is no longer read.
func Open(ctx context.Context, d trivium.Data, o Options) (*Splits, error) {
	if err := errors.Join(checkCounts(&d), o.validate()); err != nil {
		return nil, err
	}
	name := d.Source
	if name == "" && !namesFile(d.Train) {
		name = "digits"
	}
	var s *Splits
	var err error
	if own, ok := o.Sources[name]; ok {
		if own == nil {
			return nil, setting("source", "%q, of this program's own, has no function that reads it", name)
		}
		s, err = openSource(ctx, checked(own), d, o)
	} else if generate, ok := generators()[name]; ok {
		used := []string{"rows"}
		if name == "logistic" {
			used = append(used, "columns")
		}
		if err := RefuseSettings(d, used...); err != nil {
			return nil, err
		}
		s, err = openSource(ctx, func(ctx context.Context, d trivium.Data) (*Splits, error) { return generate(ctx, d, o.Walk != nil) }, d, o)
	} else {
		s, err = openFetched(ctx, d, o)
	}
	if err != nil {
		return nil, err
	}
	if err := finish(ctx, s, d, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// checkCounts refuses what no description can mean: those of a job are checked with it, others come from a program.
func checkCounts(d *trivium.Data) error {
	for _, f := range []struct {
		name  string
		value int64
	}{{"rows", d.Rows}, {"columns", int64(d.Columns)}, {"classes", int64(d.Classes)}, {"hash", int64(d.Hash)}} {
		if f.value < 0 {
			return setting(f.name, "want 0 or more, found %d", f.value)
		}
	}
	return nil
}

func openSource(ctx context.Context, source Source, d trivium.Data, o Options) (*Splits, error) {
	s, err := source(ctx, d)
	if err != nil {
		return nil, err
	}
	if s == nil || s.Train == nil && s.Valid == nil && s.Test == nil {
		return nil, fault("", "the source %q returned no data", d.Source)
	}
	if l := s.Schema().Labels; d.Classes != 0 && l.Kind == trivium.Class && l.Width != d.Classes {
		return nil, setting("classes", "%d are declared, and the labels of %s are %d classes", d.Classes, cmp.Or(d.Source, "digits"), l.Width)
	}
	named := describeCut(&d)
	if s.Train == nil && named != "" {
		return nil, setting("split", "the source %q has no training rows, of which others could be cut: %s", d.Source, named)
	}
	if s.Train != nil {
		others := s.Test != nil || s.Valid != nil
		if o.Whole && named == "" && !others {
			d.Test = ":"
		}
		cuts, err := cut(&d, s.Train.Rows(), others, o.Whole)
		if err != nil {
			return nil, err
		}
		if cuts.files() != "" {
			return nil, setting("split", "%q: a source that is no file is cut by row ranges or fractions", cuts.files())
		}
		if err := s.cutMain(s.Train, cuts, nil); err != nil {
			return nil, err
		}
	}
	if s.Transform == nil {
		s.Transform = o.Transform
	}
	return s, nil
}

// cutMain makes the splits that are ranges of the main data set.
func (s *Splits) cutMain(main Dataset, c cuts, place func(int64) int64) error {
	s.Notes = append(append(s.Notes, c.notes...), c.shared()...)
	for _, x := range []struct {
		piece cutPiece
		dst   *Dataset
	}{{c.train, &s.Train}, {c.valid, &s.Valid}, {c.test, &s.Test}} {
		switch {
		case x.piece.rows == nil && x.dst == &s.Train:
			s.Train = nil
		case x.piece.rows != nil:
			from, to := x.piece.rows.from, x.piece.rows.to
			if place != nil {
				from, to = place(from), place(to)
			}
			ds, err := Slice(main, from, to)
			if err != nil {
				return err
			}
			*x.dst = ds
		}
	}
	return nil
}

// openFetched is openFiles, once what is named by a URL is here.
func openFetched(ctx context.Context, d trivium.Data, o Options) (*Splits, error) {
	f, err := fetchURLs(ctx, &d)
	if err != nil {
		return nil, err
	}
	s, err := openFiles(ctx, d, o)
	if err != nil {
		return nil, f.name(errors.Join(err, f.close()))
	}
	f.rename(s.Notes)
	f.rename(s.Cautions)
	s.fetched, s.Notes = f, append(f.notes, s.Notes...)
	return s, nil
}

// openFiles opens the main file and those of other splits, fits or takes the transform, and makes the data sets.
func openFiles(ctx context.Context, d trivium.Data, o Options) (*Splits, error) {
	where := new(location)
	var err error
	if d.Source != "" {
		if where, err = locate(d.Source, d.Format); err != nil {
			return nil, err
		}
	}
	if o.Whole && describeCut(&d) == "" && where.valid == "" && where.test == "" {
		d.Test, where.notes = ":", nil // which say how it is cut
	}
	if namesFile(d.Train) {
		where.train, d.Train = where.relative(d.Train), "0:"
		if namesRows(d.Valid) || namesRows(d.Test) { // they are of that file, which trains on its others
			d.Train = ""
		}
	}
	if where.train == "" {
		return nil, setting("source", "no data is named: give a file, a folder or one of %s", strings.Join(generatorNames(), ", "))
	}
	s := &Splits{Notes: where.notes}
	if err := s.openSplits(ctx, where, d, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Splits) openSplits(ctx context.Context, where *location, d trivium.Data, o Options) error {
	open := func(path string) (rowFile, error) {
		f, err := openRowFile(path, &d)
		if err == nil {
			s.files = append(s.files, f)
		}
		return f, err
	}
	main, err := open(where.train)
	if err != nil {
		return err
	}
	if err := refuseFileSettings(main, &d, o.Transform != nil); err != nil {
		return err
	}
	c, err := cut(&d, main.numRows(), where.valid != "" || where.test != "", o.Whole)
	if err != nil {
		return err
	}
	others := map[string]rowFile{}
	for _, x := range []struct {
		piece      *cutPiece
		convention string
	}{{&c.valid, where.valid}, {&c.test, where.test}} {
		if x.piece.rows != nil {
			continue
		}
		x.piece.file = where.relative(cmp.Or(x.piece.file, x.convention))
		if path := x.piece.file; path != "" && others[path] == nil {
			if others[path], err = open(path); err != nil {
				return err
			}
		}
	}
	return s.assemble(ctx, main, c, others, d, o)
}

// assemble fits the transform, unless one is given, and makes the data sets.
func (s *Splits) assemble(ctx context.Context, main rowFile, c cuts, others map[string]rowFile, d trivium.Data, o Options) error {
	train := rowRange{}
	if c.train.rows != nil {
		train = *c.train.rows
	}
	t := o.Transform
	if t == nil {
		if train.from == train.to {
			return setting("train", "no rows are left to train on")
		}
		var err error
		t, err = main.fit(ctx, fitting{desc: d, labels: o.Labels, budget: o.Budget, from: train.from, to: train.to, others: s.files[1:], unlabelled: o.Unlabelled})
		if err != nil {
			return err
		}
	}
	if o.Transform != nil && o.Unlabelled {
		bare := *t
		bare.Schema.Labels, bare.Label, bare.Weight = trivium.LabelSpec{}, LabelTransform{Column: t.Label.Column}, ""
		t = &bare
	}
	s.Transform = t
	ds, place, err := main.dataset(ctx, t, o.Budget)
	if err != nil {
		return err
	}
	rows := map[rowFile]Dataset{main: ds}
	s.noteRows(main, ds)
	if err := s.cutMain(ds, c, place); err != nil {
		return err
	}
	opened := map[string]Dataset{}
	for _, x := range []struct {
		file string
		dst  *Dataset
	}{{c.valid.file, &s.Valid}, {c.test.file, &s.Test}} {
		if x.file == "" {
			continue
		}
		if opened[x.file] == nil {
			if opened[x.file], _, err = others[x.file].dataset(ctx, t, o.Budget); err != nil {
				return err
			}
			rows[others[x.file]] = opened[x.file]
			s.noteRows(others[x.file], opened[x.file])
		}
		*x.dst = opened[x.file]
	}
	s.Notes = append(s.Notes, c.copies(main, others)...)
	var sums []string
	for _, f := range s.files {
		sums = append(sums, fmt.Sprintf("%08x", f.sum()))
	}
	s.Checksum = "crc32c:" + strings.Join(sums, "+")
	return s.letGo(rows)
}

// noteRows adds what a reader of the run should know of a file's rows.
func (s *Splits) noteRows(f rowFile, ds Dataset) {
	if t, ok := f.(*tableFile); ok {
		s.Notes, s.Cautions = append(s.Notes, t.cautions...), append(s.Cautions, t.cautions...)
		if t.p != nil && !t.p.fitted { // not of a matrix that is read as a dataset, nor again for a model that has been trained
			s.Notes = append(append(s.Notes, t.indexNotes()...), t.labelNote()...)
		}
	}
	st, ok := ds.(*stream)
	if !ok {
		return
	}
	note := fmt.Sprintf("%s is streamed: its rows would take %s, the memory for data is %s", f.fileName(),
		quantity.Bytes(cmp.Or(st.held, st.rows*st.rowBytes)), quantity.Bytes(st.budget))
	if windows := min(st.rows, 2*windowRows) * st.rowBytes; windows > st.budget { // the order of an epoch hangs on them: they cannot be smaller
		note += fmt.Sprintf("; a walk has two windows of %d rows in memory, %s", windowRows, quantity.Bytes(windows))
	}
	s.Notes = append(s.Notes, note)
}

// finish checks the splits and applies class weights.
func finish(ctx context.Context, s *Splits, d trivium.Data, o Options) error {
	if s.Train != nil && s.Train.Rows() == 0 && !o.Whole {
		return setting("train", "no rows are left to train on")
	}
	schema := s.Schema()
	if s.Transform == nil {
		s.Transform = readyTransform(d.Source, schema)
	}
	if err := s.checkLabels(); err != nil && !o.Unlabelled {
		return err
	}
	if o.Transform != nil && len(o.Transform.Schema.Inputs) > 0 && len(schema.Inputs) > 0 {
		want := o.Transform.Schema
		if o.Unlabelled || schema.Labels.Kind != want.Labels.Kind { // a measure may take others, such as numbers for two classes, or says why not
			want.Labels = trivium.LabelSpec{}
		}
		if err := unlike(schema, want, "the model was made for"); err != nil {
			return fault(d.Source, "%v", err)
		}
	}
	weighed := s.Train != nil && !o.Unlabelled && (d.ClassWeight != "" || len(s.Transform.Label.Weights) > 0)
	if m, ok := s.Train.(*memory); ok && m.late != nil && o.Unsummed && !weighed { // weights are of all rows' labels
		_ = Prepare(ctx, m, o.Walk(m.Rows())) // a hint: what it lacks is made when it is wanted
	} else if err := s.look(ctx, o.Walk); err != nil {
		return err
	}
	if weighed {
		if err := s.weighClasses(ctx, d.ClassWeight, schema.Labels); err != nil {
			return err
		}
	}
	return s.checkWeights(ctx)
}

// look takes what only a look at all rows tells: the checksum where no file had one, and the classes that training rows lack.
func (s *Splits) look(ctx context.Context, walk func(rows int64) BatchOptions) error {
	if m, ok := s.Train.(*memory); ok && walk != nil {
		m.expect(walk(m.Rows()))
	}
	if s.Checksum == "" {
		var err error
		if s.Checksum, err = checksum(ctx, s.Train, s.Valid, s.Test); err != nil {
			return err
		}
	}
	s.noteAbsentClasses(s.Schema().Labels)
	return nil
}

// readyTransform is that of rows that are numbers already. Those of the generators can be had from files too. Classes that the source
// does not name are named by their numbers.
func readyTransform(source string, schema trivium.Schema) *Transform {
	if l := &schema.Labels; l.Kind == trivium.Class && len(l.Names) == 0 {
		for c := range l.Width {
			l.Names = append(l.Names, strconv.Itoa(c))
		}
	}
	t := &Transform{Version: TransformVersion, Kind: KindReady, Schema: schema}
	switch source {
	case "", "digits":
		t.Kind, t.Divisor = KindArray, 255
	case "adult":
		t.Kind = KindSparse
	}
	return t
}
