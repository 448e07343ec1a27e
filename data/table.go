package data

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/quantity"
)

// A tableReader decodes the rows of one file of named columns.
type tableReader interface {
	fileName() string
	numRows() int64
	sum() uint32
	columns() []string
	textColumns() ([]bool, error) // which columns the first rows show to hold text
	// decode writes the rows [from, to) to dst, which has room for them. Mistakes go to bad, which says whether to go on. It is safe
	// for concurrent use.
	decode(p *plan, dst *rawRows, from, to int64, bad func(*Error) error) error
	locate(e *Error, row int64) // adds the place of a row to an error
	close() error
}

// A tableFile is a file of named columns: CSV, JSON lines, Parquet, or a matrix in NPY.
type tableFile struct {
	tableReader
	p     *plan
	raw   *rawRows      // all rows, if they are in memory
	stats []columnStats // of the training rows
	set   labelSet
	used  [][]bool       // by category column and code: a training row has it
	watch func(*rawRows) // sees every block of a scan in turn; nil: nobody

	cautions []string // of its rows: see Splits.Cautions
}

// maxDense is the width up to which one-hot columns make dense rows; wider ones are sparse.
const maxDense = 4096

// layOut decides what each column of the file is to the model, as the job says.
func (t *tableFile) layOut(desc *trivium.Data, labelOptional bool) error {
	names := t.columns()
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] {
			return t.twoColumns(n)
		}
		seen[n] = true
	}
	p := &plan{
		names: names, roles: make([]role, len(names)), missing: desc.Missing != "" && desc.Missing != "error",
		drop: desc.Missing == "drop", buckets: desc.Hash,
	}
	var errs []error
	find := func(field, name string) int {
		if i := slices.Index(names, name); i >= 0 {
			return i
		}
		if i, err := strconv.Atoi(name); err == nil && i >= -len(names) && i < len(names) {
			return (i + len(names)) % len(names)
		}
		errs = append(errs, t.noColumn(field, name))
		return -1
	}
	label := slices.Index(names, "label")
	p.guessed = desc.Label == "" && label < 0
	if desc.Label != "" {
		label = find("label", desc.Label)
	} else if label < 0 {
		for label = 0; label < len(names)-1 && t.isIndex(label); {
			label++
		}
	}
	text, err := t.textColumns()
	if err != nil {
		return err
	}
	categorical := make([]bool, len(names))
	for _, name := range desc.Categorical {
		if i := find("categorical", name); i >= 0 {
			categorical[i] = true
		}
	}
	for i := range p.roles {
		p.roles[i].kind = roleNumber
		if categorical[i] {
			p.roles[i].kind = roleCategory
		} else if i != label && t.isIndex(i) {
			p.roles[i].kind = roleSkip
		}
	}
	for _, name := range desc.Drop {
		if i := find("drop", name); i >= 0 {
			p.roles[i].kind = roleSkip
		}
	}
	if desc.Weight != "" {
		if i := find("weight", desc.Weight); i >= 0 {
			p.roles[i].kind = roleWeight
			p.hasWeight = true
			if i == label {
				errs = append(errs, setting("weight", "column %q cannot be both label and weight", names[i]))
			}
		}
	}
	for i, n := range names {
		if p.roles[i].kind != roleSkip && !utf8.ValidString(n) { // a saved transform could not name it
			errs = append(errs, fault(t.fileName(), "the name %q of column %d is not in UTF-8; save the file as UTF-8", n, i))
		}
	}
	if label >= 0 && p.roles[label].kind == roleSkip && !labelOptional {
		errs = append(errs, setting("drop", "column %q is the label; name another with --label", names[label]))
	}
	if label >= 0 && p.roles[label].kind != roleSkip {
		p.roles[label].kind, p.hasLabel = roleLabel, true
		if text[label] || categorical[label] {
			p.labels = newDictionary(nil)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	t.p = p
	t.number()
	return nil
}

func (t *tableFile) twoColumns(name string) *Error {
	return fault(t.fileName(), "two columns are called %q; give one of them another name, as the columns are told apart by theirs", name)
}

func (t *tableFile) noColumn(field, name string) *Error {
	e := fault(t.fileName(), "there is no column %q; the columns are %s", name, listNames(t.columns()))
	e.Field = field
	if c, ok := t.tableReader.(*csvFile); ok && c.number != "" {
		e.Msg += "; " + c.rowNote()
	}
	if t.oneColumn() {
		e.Msg += "; " + separators
	} else if strings.Contains(strings.Join(t.columns(), ""), ",") {
		e.Msg += `; where a flag lists columns, the comma of a name is \,`
	}
	return e
}

// number gives the columns their places in rawRows, in the order of the file.
func (t *tableFile) number() {
	p := t.p
	p.numbers, p.categories, p.dicts = 0, 0, nil
	for i := range p.roles {
		switch p.roles[i].kind {
		case roleNumber:
			p.roles[i].at = p.numbers
			p.numbers++
		case roleCategory:
			p.roles[i].at = p.categories
			p.categories++
			p.dicts = append(p.dicts, newDictionary(nil))
		}
	}
}

// follow lays the columns out as a fitted transform says.
func (t *tableFile) follow(tr *Transform) error {
	names := t.namesUnder(tr)
	columns := columnsByName(names)
	p := &plan{names: names, roles: make([]role, len(names)), fitted: true, missing: tr.Missing != "error", drop: tr.Missing == "drop"}
	var errs []error
	for i := range tr.Columns {
		c := &tr.Columns[i]
		at, ok := columns[c.Name]
		if !ok {
			errs = append(errs, fault(t.fileName(), "column %q is missing, which the model needs; the columns are %s", c.Name, listNames(names)))
			continue
		}
		switch c.Kind {
		case Number:
			p.roles[at] = role{roleNumber, p.numbers}
			p.numbers++
		case OneHot:
			p.roles[at] = role{roleCategory, p.categories}
			p.categories++
			p.dicts = append(p.dicts, newDictionary(append([]string{}, c.Categories...)))
		case Hashed:
			p.roles[at] = role{roleCategory, p.categories}
			p.categories++
			p.dicts = append(p.dicts, nil)
			p.buckets = c.Buckets
		}
	}
	if at, ok := columns[tr.Label.Column]; ok && tr.Schema.Labels.Kind != trivium.NoLabel && p.roles[at].kind == roleSkip {
		p.roles[at].kind, p.hasLabel = roleLabel, true
		if tr.Label.Text {
			p.labels = newDictionary(append([]string{}, tr.Schema.Labels.Names...))
		}
	}
	if at, ok := columns[tr.Weight]; ok && tr.Weight != "" && p.roles[at].kind == roleSkip {
		p.roles[at].kind, p.hasWeight = roleWeight, true
	} else if tr.Weight != "" && !ok {
		t.cautions = append(t.cautions, fmt.Sprintf("%s has no column %q, the weights: all its rows weigh 1", t.fileName(), tr.Weight))
	}
	for i, n := range names { // what the model passes over may be there twice
		if at := columns[n]; at != i && p.roles[at].kind != roleSkip {
			errs = append(errs, t.twoColumns(n))
		}
	}
	t.p = p
	return errors.Join(errs...)
}

// numbered reports whether the columns have no names but their numbers.
func (t *tableFile) numbered() bool {
	switch f := t.tableReader.(type) {
	case *csvFile:
		return f.number != "" || f.counts
	case *matrixFile:
		return true
	}
	return false
}

// namesUnder are the names of the columns for a model of tr. Where they are numbers, and there is one column less than in training, it is the label's
// that is not there, as in rows to predict, and the columns behind it keep the numbers that they had.
func (t *tableFile) namesUnder(tr *Transform) []string {
	names := t.columns()
	m, _ := t.tableReader.(*matrixFile)
	beside := m != nil && m.labels != nil
	inputs := len(names)
	if beside {
		inputs--
	}
	label, err := strconv.Atoi(tr.Label.Column)
	if err != nil || label < 0 || label >= tr.Numbered || inputs != tr.Numbered-1 || !t.numbered() {
		return names
	}
	names = slices.Delete(classNumbers(tr.Numbered), label, label+1)
	if beside {
		return append(names, tr.Label.Column)
	}
	t.cautions = append(t.cautions, fmt.Sprintf("%s has %s, one less than in training: column %d, the label, is taken for the one that is not there",
		t.fileName(), quantity.Count(inputs, "column"), label))
	return names
}

// columnsByName are the places of columns: there may be many thousands.
func columnsByName(names []string) map[string]int {
	at := make(map[string]int, len(names))
	for i, name := range names {
		if _, ok := at[name]; !ok { // of two of one name the first
			at[name] = i
		}
	}
	return at
}

// bytes returns the memory that all rows take, decoded.
func (t *tableFile) bytes() int64 { return t.numRows() * t.rowBytes() }

func (t *tableFile) rowBytes() int64 { return 4 * int64(t.p.numbers+t.p.categories+2) }

// scan decodes every row once: into memory, if that is within the budget. It collects what a transform is fitted to from the rows
// [from, to).
func (t *tableFile) scan(ctx context.Context, from, to int64, wantStats, drop bool, budget int64, bad func(*Error) error) error {
	p, rows := t.p, t.numRows()
	resident := t.bytes() <= budget
	if resident {
		t.raw = newRawRows(p, int(rows))
	}
	t.used = make([][]bool, p.categories)
	group := 4 * runtime.GOMAXPROCS(0)
	type found struct {
		raw   rawRows
		stats []columnStats
		set   labelSet
	}
	blocks := make([]found, group)
	var mu sync.Mutex
	report := func(e *Error) error {
		mu.Lock()
		defer mu.Unlock()
		return bad(e)
	}
	for start := int64(0); start < rows; start += int64(group) * blockRows {
		n := min(int64(group), (rows-start+blockRows-1)/blockRows)
		err := parallel(ctx, n, 1, func(i, _ int64) error {
			b := &blocks[i]
			lo := start + i*blockRows
			hi := min(lo+blockRows, rows)
			if resident {
				b.raw = t.raw.slice(p, int(lo), int(hi))
			} else {
				b.raw.resize(p, int(hi-lo))
			}
			if err := t.decode(p, &b.raw, lo, hi, report); err != nil {
				return err
			}
			b.set = labelSet{}
			if p.hasLabel && p.labels == nil {
				for r, v := range b.raw.label {
					if v == v && !(drop && b.raw.incomplete(p, r)) {
						b.set.add(v, lo+int64(r))
					}
				}
			}
			b.stats = b.stats[:0]
			if f, l := max(lo, from), min(hi, to); wantStats && f < l {
				train := b.raw.slice(p, int(f-lo), int(l-lo))
				b.stats = blockStats(b.stats, &train, p, drop)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i := range n {
			b := &blocks[i]
			lo := start + i*blockRows
			t.set.merge(&b.set)
			if t.watch != nil {
				t.watch(&b.raw)
			}
			if len(b.stats) > 0 {
				t.mergeStats(b.stats)
			}
			if p.categories > 0 && p.buckets == 0 {
				t.markUsed(&b.raw, int(max(0, from-lo)), int(min(int64(b.raw.n), to-lo)), drop)
			}
		}
	}
	return nil
}

func (t *tableFile) mergeStats(more []columnStats) {
	if t.stats == nil {
		t.stats = slices.Clone(more)
		return
	}
	for c := range more {
		t.stats[c].merge(&more[c])
	}
}

// markUsed notes the categories of the rows [from, to), passing over incomplete rows if those are dropped.
func (t *tableFile) markUsed(r *rawRows, from, to int, drop bool) {
	k := t.p.categories
	for row := from; row < to; row++ {
		if drop && r.incomplete(t.p, row) {
			continue
		}
		for c, code := range r.codes[row*k : (row+1)*k] {
			if code < 0 {
				continue
			}
			for int(code) >= len(t.used[c]) {
				t.used[c] = append(t.used[c], make([]bool, len(t.used[c])+64)...)
			}
			t.used[c][code] = true
		}
	}
}

// at adds the place of a row to an error about it.
func (t *tableFile) at(err error, row int64) error {
	var e *Error
	if errors.As(err, &e) && e.File == "" {
		e.File = t.fileName()
		if row >= 0 {
			t.locate(e, row)
			for i, r := range t.p.roles {
				if r.kind == roleLabel && e.Field == "" {
					e.Field = columnField(t.p.names[i])
				}
			}
		}
	}
	return err
}

func (t *tableFile) dataset(ctx context.Context, tr *Transform, budget int64) (Dataset, func(int64) int64, error) {
	if m, ok := t.tableReader.(*matrixFile); ok && tr.Kind == KindArray { // the model's rows had a file of labels beside them
		return (&arrayFile{x: m.array, crc: m.crc}).dataset(ctx, tr, budget)
	}
	if tr.Kind != KindTable {
		return nil, nil, fault(t.fileName(), "it is a table, and the model was trained on %s", tr.rows())
	}
	fitted := t.p != nil
	if !fitted {
		if err := t.follow(tr); err != nil {
			return nil, nil, err
		}
		unknown := newUnknown(t.p)
		t.watch = unknown.look
		if err := t.scan(ctx, 0, 0, false, false, budget, stop); err != nil {
			return nil, nil, err
		}
		t.cautions = append(t.cautions, unknown.notes(t)...)
	}
	w := newTableWriter(tr, t.p)
	if t.numRows()*w.rowBytes() > budget && tr.Missing != "drop" {
		t.raw = nil // it fits, and what it becomes does not: a category takes as many numbers as there are
	}
	if t.raw == nil {
		if tr.Missing == "drop" {
			return nil, nil, setting("missing", "dropping rows needs the table in memory, which takes %s of the %s allowed", quantity.Bytes(t.bytes()), quantity.Bytes(budget))
		}
		return &stream{schema: w.schema, rows: t.numRows(), rowBytes: w.rowBytes(), budget: budget, read: t.reader(w)}, nil, nil
	}
	raw := t.raw
	t.raw = nil // the data set's from here on
	place, ids := t.dropRows(tr, raw)
	b := trivium.Batch{IDs: ids}
	shapeOf(&b, &w.schema)
	b.IDs = ids
	bad, err := w.all(ctx, &b, raw)
	if err != nil {
		return nil, nil, err
	}
	if bad >= 0 {
		row := int64(bad)
		if ids != nil {
			row = ids[bad]
		}
		return nil, nil, t.noClass(w, raw.label[bad], row)
	}
	return newMemory(w.schema, b), place, nil
}

// noClass says that the label of a row is no class. Of a name the row is read once more: where rows are dropped, none is refused for its label
// before it is known which ones stay.
func (t *tableFile) noClass(w *tableWriter, label float32, row int64) error {
	if t.p.labels != nil {
		strict := *t.p
		strict.drop = false
		if err := t.decode(&strict, newRawRows(&strict, 1), row, row+1, stop); err != nil {
			return err
		}
	}
	return t.at(w.labels.refuse("", label), row)
}

// dropRows removes incomplete rows, if the transform says so. It returns where a row of the file went, and where each row came from.
func (t *tableFile) dropRows(tr *Transform, raw *rawRows) (place func(int64) int64, ids []int64) {
	if tr.Missing != "drop" {
		return nil, nil
	}
	for row := range raw.n {
		if raw.incomplete(t.p, row) {
			continue
		}
		raw.move(t.p, len(ids), row)
		ids = append(ids, int64(row))
	}
	if len(ids) == raw.n {
		return nil, nil
	}
	t.cautions = append(t.cautions, fmt.Sprintf("%s: %s of %s lack values and are left out (--missing drop)", t.fileName(),
		grouped(int64(raw.n-len(ids))), quantity.Count(raw.n, "row")))
	*raw = raw.slice(t.p, 0, len(ids))
	return func(row int64) int64 {
		at, _ := slices.BinarySearch(ids, row)
		return int64(at)
	}, ids
}

// reader returns the Read of the file's stream.
func (t *tableFile) reader(w *tableWriter) func(context.Context, *trivium.Batch, int64, int64) error {
	var pool sync.Pool // of *rawRows
	return func(_ context.Context, dst *trivium.Batch, from, to int64) error {
		raw, ok := pool.Get().(*rawRows)
		if !ok {
			raw = new(rawRows)
		}
		defer pool.Put(raw)
		raw.resize(t.p, int(to-from))
		if err := t.decode(t.p, raw, from, to, stop); err != nil {
			return err
		}
		if bad := w.append(dst, raw); bad >= 0 {
			return t.at(w.labels.refuse("", raw.label[bad]), from+int64(bad))
		}
		return nil
	}
}
