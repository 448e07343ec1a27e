package data

import (
	"bytes"
	"cmp"
	"math"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/trivium-ml/trivium/internal/shell"
)

// rawRows are rows of a table as they stand in the file: numbers, codes of categories, label and weight.
type rawRows struct {
	n       int
	numbers []float32 // plan.numbers a row; NaN: missing
	codes   []int32   // plan.categories a row; bucket, code, or negative
	label   []float32 // a number, or a code of plan.labels; NaN: missing. Empty without labels
	weight  []float32 // NaN: missing. Empty without weights
	absent  []bool    // by row and column of the file: the cell is missing, and not mistaken. Empty unless plan.apart
}

func newRawRows(p *plan, n int) *rawRows {
	r := new(rawRows)
	r.resize(p, n)
	return r
}

func (r *rawRows) resize(p *plan, n int) {
	r.n = n
	r.numbers = extend(r.numbers[:0], n*p.numbers)
	r.codes = extend(r.codes[:0], n*p.categories)
	if p.hasLabel {
		r.label = extend(r.label[:0], n)
	}
	if p.hasWeight {
		r.weight = extend(r.weight[:0], n)
	}
	if p.apart {
		r.absent = extend(r.absent[:0], n*len(p.roles))
		clear(r.absent)
	}
}

// slice returns the rows [from, to), a view.
func (r *rawRows) slice(p *plan, from, to int) rawRows {
	s := rawRows{n: to - from, numbers: r.numbers[from*p.numbers : to*p.numbers], codes: r.codes[from*p.categories : to*p.categories]}
	if p.hasLabel {
		s.label = r.label[from:to]
	}
	if p.hasWeight {
		s.weight = r.weight[from:to]
	}
	return s
}

// incomplete reports whether a value that the model needs is missing from the row.
func (r *rawRows) incomplete(p *plan, row int) bool {
	for _, v := range r.numbers[row*p.numbers : (row+1)*p.numbers] {
		if v != v {
			return true
		}
	}
	for _, c := range r.codes[row*p.categories : (row+1)*p.categories] {
		if c == codeMissing {
			return true
		}
	}
	return p.hasLabel && r.label[row] != r.label[row] || p.hasWeight && r.weight[row] != r.weight[row]
}

// move copies row from to row to.
func (r *rawRows) move(p *plan, to, from int) {
	copy(r.numbers[to*p.numbers:(to+1)*p.numbers], r.numbers[from*p.numbers:])
	copy(r.codes[to*p.categories:(to+1)*p.categories], r.codes[from*p.categories:])
	if p.hasLabel {
		r.label[to] = r.label[from]
	}
	if p.hasWeight {
		r.weight[to] = r.weight[from]
	}
}

// A role is what a column of the file is to the model.
type role struct {
	kind roleKind
	at   int // among the numbers, or among the categories
}

type roleKind uint8

const (
	roleSkip roleKind = iota
	roleNumber
	roleCategory
	roleLabel
	roleWeight
)

// A plan says where the fields of a file go in rawRows.
type plan struct {
	names      []string // of the file's columns
	roles      []role   // of each
	numbers    int
	categories int
	hasLabel   bool
	guessed    bool // nobody has named the label: it is the first column
	hasWeight  bool
	fitted     bool // laid out as a fitted transform says
	missing    bool // values may be missing
	drop       bool // rows with missing values are dropped
	apart      bool // values that are missing are told from those that are mistaken
	buckets    int  // for categories; 0: dictionaries
	dicts      []*dictionary
	labels     *dictionary // of text labels; nil: numbers
	rounded    *roundings  // takes note of digits that are lost; nil: nobody asks
}

// roundings are the whole numbers of each column that float32 does not hold. It is safe for concurrent use.
type roundings struct {
	mu      sync.Mutex
	columns map[int]rounding
}

type rounding struct {
	rows  int64
	least float64 // the one nearest to 0
}

func (r *roundings) add(column int, v float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.columns[column]
	if at.rows++; !ok || cmp.Or(cmp.Compare(math.Abs(v), math.Abs(at.least)), cmp.Compare(v, at.least)) < 0 {
		at.least = v
	}
	r.columns[column] = at
}

var nan = float32(math.NaN())

// putText stores a field's text in row.
func (p *plan) putText(dst *rawRows, row, column int, text []byte) *Error {
	r := p.roles[column]
	switch r.kind {
	case roleSkip:
		return nil
	case roleCategory:
		return p.putCategory(dst, row, column, text)
	case roleLabel:
		if p.labels != nil {
			return p.putTextLabel(dst, row, column, text)
		}
	}
	v, ok := parseNumber(text)
	if !ok { // blanks between quotes are no part of a number
		text = trim(text)
		v, ok = parseNumber(text)
	}
	if !ok {
		if isMissing(text) {
			return p.putMissing(dst, row, column)
		}
		if truth, ok := parseTruth(text); ok && p.fitted && r.kind != roleWeight { // training had it from a format that has truth values
			return p.putTruth(dst, row, column, truth)
		}
		p.store(dst, row, r, nan)
		_, commas := parseNumber(bytes.ReplaceAll(text, []byte{','}, nil))
		text = shortText(text)
		switch {
		case commas:
			return p.fail(column, "want a number, found %q: a number has a point, as in 2.5, and no commas", text)
		case p.fitted && r.kind == roleNumber:
			return p.fail(column, "want a number, as in training, found %q", text)
		case p.fitted && r.kind == roleLabel:
			return p.fail(column, "want a number as label, as in training, found %q", text)
		case r.kind == roleNumber:
			return p.fail(column, "want a number, found %q; if the column holds names, list it with --categorical %s, or leave it out with --drop %[2]s", text, listed(p.names[column]))
		case r.kind == roleLabel:
			return p.fail(column, "want a number as label, as in the rows before, found %q; if labels are names, list the column with --categorical %s",
				text, listed(p.names[column]))
		}
		return p.fail(column, "want a number as weight, found %q", text)
	}
	return p.putNumber(dst, row, column, v, 64)
}

// listed is a column's name as a flag that lists columns takes it, in a shell.
func listed(name string) string { return shell.Word(strings.ReplaceAll(name, ",", `\,`)) }

// putNumber stores a number in row, which the file holds in 32 or 64 bits.
func (p *plan) putNumber(dst *rawRows, row, column int, v float64, bits int) *Error {
	r := p.roles[column]
	switch {
	case r.kind == roleSkip:
		return nil
	case r.kind == roleCategory || r.kind == roleLabel && p.labels != nil:
		return p.putName(dst, row, column, v, bits)
	case v != v:
		e := p.putMissing(dst, row, column)
		if e != nil {
			e.Msg = "NaN: " + e.Msg
		}
		return e
	case !finite32(v):
		p.store(dst, row, r, nan)
		return p.fail(column, "%v is not a finite number of 32 bits", v)
	case r.kind == roleWeight && v < 0:
		p.store(dst, row, r, nan)
		return p.fail(column, "want a weight of 0 or more, found %v", v)
	}
	if p.rounded != nil && v == math.Trunc(v) && float64(float32(v)) != v && math.Abs(v) < 1<<63 { // beyond, it was none when it was written
		p.rounded.add(column, v)
	}
	p.store(dst, row, r, float32(v))
	return nil
}

// putName stores a number of a column of names, as appendName has it.
func (p *plan) putName(dst *rawRows, row, column int, v float64, bits int) *Error {
	switch {
	case v != v:
		return p.putMissing(dst, row, column)
	case math.Abs(v) >= exactNames:
		p.store(dst, row, p.roles[column], nan)
		return p.fail(column, "%v is too large for a name: from 2^53 on numbers run together; write the column as text", v)
	}
	var buf [32]byte
	return p.putText(dst, row, column, appendName(buf[:0], v, bits))
}

// putTruth stores a truth value, where the format tells it from a text: as 1 or 0, or as a name.
func (p *plan) putTruth(dst *rawRows, row, column int, truth bool) *Error {
	var v float64
	if truth {
		v = 1
	}
	if p.takesNumber(column) {
		return p.putNumber(dst, row, column, v, 64)
	}
	return p.putText(dst, row, column, strconv.AppendBool(nil, truth))
}

// takesNumber reports whether what lies in a column is kept as a number.
func (p *plan) takesNumber(column int) bool {
	switch p.roles[column].kind {
	case roleNumber, roleWeight:
		return true
	case roleLabel:
		return p.labels == nil
	}
	return false
}

// putMissing stores that row has no value there.
func (p *plan) putMissing(dst *rawRows, row, column int) *Error {
	r := p.roles[column]
	if r.kind == roleSkip {
		return nil
	}
	p.store(dst, row, r, nan)
	if p.apart {
		dst.absent[row*len(p.roles)+column] = true
	}
	switch {
	case p.missing && (p.drop || r.kind == roleNumber || r.kind == roleCategory):
	case p.fitted && r.kind == roleLabel:
		return p.fail(column, "the label is missing: fill it, or leave the row out")
	case p.fitted && r.kind == roleWeight:
		return p.fail(column, "the weight is missing: fill it, or leave the row out")
	case r.kind == roleLabel:
		return p.fail(column, "the label is missing; --missing drop passes over such rows")
	case r.kind == roleWeight:
		return p.fail(column, "the weight is missing; --missing drop passes over such rows")
	case p.fitted:
		return p.fail(column, "the value is missing, and the model was trained on a table where none may be: fill it, or train with --missing mean, zero or drop")
	default:
		return p.fail(column, "the value is missing; say what to do with --missing mean, zero or drop")
	}
	return nil
}

func (p *plan) store(dst *rawRows, row int, r role, v float32) {
	switch r.kind {
	case roleNumber:
		dst.numbers[row*p.numbers+r.at] = v
	case roleCategory:
		dst.codes[row*p.categories+r.at] = codeMissing
	case roleLabel:
		dst.label[row] = v
	case roleWeight:
		dst.weight[row] = v
	}
}

func (p *plan) putCategory(dst *rawRows, row, column int, text []byte) *Error {
	r := p.roles[column]
	if isMissing(text) {
		return p.putMissing(dst, row, column)
	}
	at := row*p.categories + r.at
	if p.buckets > 0 {
		dst.codes[at] = int32(Bucket(p.names[column], text, p.buckets))
		return nil
	}
	if !utf8.Valid(text) {
		p.store(dst, row, r, nan)
		return p.failText(column, text)
	}
	c := p.dicts[r.at].of(text)
	dst.codes[at] = c
	if c == codeTooMany {
		return p.fail(column, "more than %d categories; hash them with --hash 2^20", maxClasses)
	}
	return nil
}

func (p *plan) putTextLabel(dst *rawRows, row, column int, text []byte) *Error {
	if isMissing(text) {
		return p.putMissing(dst, row, column)
	}
	if !utf8.Valid(text) {
		dst.label[row] = nan
		return p.failText(column, text)
	}
	c := p.labels.of(text)
	dst.label[row] = float32(c)
	switch c {
	case codeTooMany:
		return p.fail(column, "more than %d distinct labels", maxClasses)
	case codeUnknown:
		if p.drop { // the row may lack a value and go: tableFile.noClass refuses it if it stays
			return nil
		}
		dst.label[row] = nan
		return p.fail(column, "label %q is outside the %d classes: %s", shortText(text), len(p.labels.names), listNames(p.labels.names))
	}
	return nil
}

// failText refuses a name that a model could not keep: transforms are saved as JSON, which has UTF-8 alone, and the name that comes back
// from there would be another.
func (p *plan) failText(column int, text []byte) *Error {
	return p.fail(column, "the text %q is not in UTF-8; save the file as UTF-8", shortText(text))
}

func (p *plan) fail(column int, format string, args ...any) *Error {
	e := fault("", format, args...)
	e.Field = columnField(p.names[column])
	return e
}

// isMissing reports whether a field's text says that there is no value: nothing, or what common programs write for it. Where numbers are
// wanted, NaN is one, which putNumber takes for missing; among names it is what becomes of an empty cell in a table made text.
func isMissing(text []byte) bool {
	switch string(text) {
	case "", "NA", "N/A", "?", "null", "NULL", "None", "NaN", "nan":
		return true
	}
	return false
}

// columnStats are a column's figures over some rows. Merged in the order of the rows they are the same on every machine.
type columnStats struct {
	n             int64
	missing       int64
	mean, squares float64 // squares: sum of squared distances from the mean
	min, max      float64
}

// blockStats returns the figures of each number column over rows of r, passing over incomplete rows if those are dropped.
func blockStats(dst []columnStats, r *rawRows, p *plan, drop bool) []columnStats {
	dst = extend(dst[:0], p.numbers)
	for c := range dst {
		dst[c] = columnStats{min: math.Inf(1), max: math.Inf(-1)}
	}
	skip := make([]bool, r.n)
	for row := range r.n {
		if skip[row] = drop && r.incomplete(p, row); skip[row] {
			continue
		}
		for c, v := range r.numbers[row*p.numbers : (row+1)*p.numbers] {
			s := &dst[c]
			if v != v {
				s.missing++
				continue
			}
			s.n++
			s.mean += float64(v)
			s.min, s.max = min(s.min, float64(v)), max(s.max, float64(v))
		}
	}
	for c := range dst {
		if dst[c].n > 0 {
			dst[c].mean /= float64(dst[c].n)
		}
	}
	for row := range r.n {
		if skip[row] {
			continue
		}
		for c, v := range r.numbers[row*p.numbers : (row+1)*p.numbers] {
			if v == v {
				d := float64(v) - dst[c].mean
				dst[c].squares += float64(d * d)
			}
		}
	}
	return dst
}

// merge adds o, which follows s (Chan, Golub, LeVeque 1983).
func (s *columnStats) merge(o *columnStats) {
	s.missing += o.missing
	if o.n == 0 {
		return
	}
	if s.n == 0 {
		missing := s.missing
		*s = *o
		s.missing = missing
		return
	}
	n := float64(s.n + o.n)
	d := o.mean - s.mean
	s.squares += o.squares + float64(float64(d*d)*(float64(s.n)*float64(o.n)/n))
	s.mean += float64(d * (float64(o.n) / n))
	s.n += o.n
	s.min, s.max = min(s.min, o.min), max(s.max, o.max)
}

// deviation is the population's standard deviation.
func (s *columnStats) deviation() float64 {
	if s.n == 0 {
		return 0
	}
	return math.Sqrt(s.squares / float64(s.n))
}
