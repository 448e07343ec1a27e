package data

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
)

// A jsonFile reads JSON lines: one object a line. Its fields are those of the first sampleRows rows; one that a row lacks is missing
// there. A field holds a number, a text, true, false or null, or an array of as many numbers in every line, which become the columns
// name.0, name.1, …. One that holds more than that where it first occurs, or arrays of several lengths among those rows, can be dropped.
type jsonFile struct {
	x       *lineIndex
	fields  []jsonField
	index   map[string]int // of fields, by name
	names   []string
	buffers sync.Pool // of *jsonBuffer
}

type jsonField struct {
	name   string
	line   int64  // the first that has it
	column int    // the first
	length int    // of an array; −1: a scalar
	null   bool   // it has no value yet that tells what it is
	other  string // why it is not read; empty: it is
}

const nestedJSON = "it holds objects, or arrays of more than numbers and texts, which are not read"

type jsonBuffer struct {
	bytes []byte
	text  []byte // of a string with escapes
	seen  []bool // which fields the row has had
}

func openJSONL(f *file) (*jsonFile, error) {
	start, err := textStart(f)
	if err != nil {
		return nil, err
	}
	x, err := indexLines(f, lineSyntax{}, start, 1)
	if err != nil {
		return nil, err
	}
	if x.rows == 0 {
		return nil, fault(f.name, "there are no rows in it")
	}
	j := &jsonFile{x: x, index: map[string]int{}}
	first := min(x.rows, sampleRows)
	r, err := x.read(nil, 0, first)
	if err != nil {
		return nil, err
	}
	for i := range first {
		line, ok := r.row()
		if !ok {
			return nil, r.failure()
		}
		if bad := j.learn(line, r.line); bad != nil && i == 0 { // another's mistake is said when it is decoded
			bad.File, bad.Line = f.name, r.line
			return nil, bad
		}
	}
	j.layOut()
	if len(j.names) == 0 {
		return nil, fault(f.name, "there are no fields in the first %d lines", first)
	}
	return j, nil
}

// learn takes the fields that no row before had.
func (j *jsonFile) learn(line []byte, number int64) *Error {
	var buf jsonBuffer
	s := jsonScanner{p: line}
	return s.object(&buf, func(name []byte) *Error {
		f := jsonField{name: string(name), line: number, length: -1}
		switch at := s.p; s.peek() {
		case '{':
			f.other = nestedJSON
		case '[':
			f.length = 0
			if bad := s.array(&buf, func(int, jsonValue) *Error { f.length++; return nil }); bad != nil {
				s.p, f.other, f.length = at, nestedJSON, -1
			}
		default:
			v, bad := s.value(&buf)
			if bad != nil {
				return bad
			}
			f.null = v.kind == jsonNull
		}
		if f.other != "" {
			if bad := s.skip(); bad != nil {
				return bad
			}
		}
		at, known := j.index[f.name]
		switch {
		case !known:
			j.index[f.name] = len(j.fields)
			j.fields = append(j.fields, f)
		case j.fields[at].null && !f.null: // whether it is an array that was null, this row tells
			j.fields[at] = f
		case j.fields[at].other == "" && f.other != "":
			g := &j.fields[at]
			g.other, g.length, g.line = f.other, f.length, number
		case j.fields[at].length >= 0 && f.length >= 0 && f.length != j.fields[at].length:
			g := &j.fields[at]
			g.other = fmt.Sprintf("want an array of %d values, as in line %d, found %d", g.length, g.line, f.length)
			g.length, g.line = -1, number
		}
		return nil
	})
}

// layOut gives the fields their columns.
func (j *jsonFile) layOut() {
	for i := range j.fields {
		f := &j.fields[i]
		f.column = len(j.names)
		if f.length < 0 {
			j.names = append(j.names, f.name)
		}
		for k := range f.length {
			j.names = append(j.names, fmt.Sprintf("%s.%d", f.name, k))
		}
	}
}

func (j *jsonFile) fileName() string  { return j.x.f.name }
func (j *jsonFile) numRows() int64    { return j.x.rows }
func (j *jsonFile) sum() uint32       { return j.x.crc }
func (j *jsonFile) columns() []string { return j.names }
func (j *jsonFile) close() error      { return j.x.f.close() }

func (j *jsonFile) locate(e *Error, row int64) { e.Line = j.x.lineOf(row) }

func (j *jsonFile) textColumns() ([]bool, error) {
	votes := make(textVotes, len(j.names))
	r, err := j.x.read(nil, 0, min(j.x.rows, sampleRows))
	if err != nil {
		return nil, err
	}
	var buf jsonBuffer
	for range min(j.x.rows, sampleRows) {
		line, ok := r.row()
		if !ok {
			break
		}
		// What is wrong with a row is said when it is decoded, with what is wrong with others.
		_ = j.row(&buf, line, func(column int, v jsonValue) *Error {
			if v.kind != jsonBool {
				votes.add(column, v.text)
			}
			return nil
		})
	}
	return votes.text(), nil
}

func (j *jsonFile) decode(p *plan, dst *rawRows, from, to int64, bad func(*Error) error) error {
	buf, ok := j.buffers.Get().(*jsonBuffer)
	if !ok {
		buf = new(jsonBuffer)
	}
	defer j.buffers.Put(buf)
	r, err := j.x.read(buf.bytes, from, to)
	if err != nil {
		return err
	}
	defer func() { buf.bytes = r.buf }()
	report := func(e *Error) error {
		e.File, e.Line = j.x.f.name, r.line
		return bad(e)
	}
	for row := range int(to - from) {
		line, ok := r.row()
		if !ok {
			return r.failure()
		}
		for column := range p.roles { // a field that is absent is missing
			p.store(dst, row, p.roles[column], nan)
		}
		var stopped error
		e := j.row(buf, line, func(column int, v jsonValue) *Error {
			var e *Error
			switch v.kind {
			case jsonOther:
				e = j.notRead(p, column, r.line)
			case jsonNull:
				e = p.putMissing(dst, row, column)
			case jsonBool:
				e = p.putTruth(dst, row, column, string(v.text) == "true")
			default:
				e = p.putText(dst, row, column, v.text)
			}
			if e != nil {
				stopped = report(e)
				if stopped != nil {
					return e
				}
			}
			return nil
		})
		if stopped != nil {
			return stopped
		}
		if e == nil {
			e = j.absent(p, dst, row, buf)
		}
		if e != nil {
			if err := report(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// notRead says, once, of a field that is needed, that its values are not read.
func (j *jsonFile) notRead(p *plan, column int, line int64) *Error {
	if p.roles[column].kind == roleSkip {
		return nil
	}
	for i := range j.fields {
		if f := &j.fields[i]; f.column == column && f.line == line {
			return p.fail(column, "%s; --drop leaves the column out", f.other)
		}
	}
	return nil
}

// absent reports the first field that the row lacks and the model needs, where values may not be missing.
func (j *jsonFile) absent(p *plan, dst *rawRows, row int, buf *jsonBuffer) *Error {
	for i, seen := range buf.seen {
		if seen {
			continue
		}
		f := &j.fields[i]
		columns := f.length
		if columns < 0 {
			columns = 1
		}
		for i, r := range p.roles[f.column : f.column+columns] { // one of an array may be needed where another is not
			if p.apart && r.kind != roleSkip {
				dst.absent[row*len(p.roles)+f.column+i] = true
			}
			if r.kind == roleSkip || p.missing && (p.drop || r.kind == roleNumber || r.kind == roleCategory) {
				continue
			}
			return fault("", "field %q is missing, which line %d has", f.name, f.line)
		}
	}
	return nil
}

// row gives each value of a line to put.
func (j *jsonFile) row(buf *jsonBuffer, line []byte, put func(column int, v jsonValue) *Error) *Error {
	buf.seen = extend(buf.seen[:0], len(j.fields))
	clear(buf.seen)
	next := 0 // fields mostly come in the same order
	s := jsonScanner{p: line}
	return s.object(buf, func(name []byte) *Error {
		if next >= len(j.fields) || j.fields[next].name != string(name) {
			i, ok := j.index[string(name)]
			if !ok {
				return fault("", "field %q is in none of the first %d rows, whose fields are %s", name, sampleRows, listNames(j.names))
			}
			next = i
		}
		f := &j.fields[next]
		if buf.seen[next] {
			return fault("", "field %q occurs twice", name)
		}
		buf.seen[next] = true
		next++
		if f.other != "" {
			if bad := s.skip(); bad != nil {
				bad.Field = fmt.Sprintf("field %q", f.name)
				return bad
			}
			return put(f.column, jsonValue{kind: jsonOther})
		}
		if f.length < 0 {
			v, bad := s.value(buf)
			if bad != nil {
				bad.Field = fmt.Sprintf("field %q", f.name)
				return bad
			}
			return put(f.column, v)
		}
		n := 0
		switch s.peek() {
		case '[':
			if bad := s.array(buf, func(i int, v jsonValue) *Error {
				if n++; i >= f.length {
					return nil
				}
				return put(f.column+i, v)
			}); bad != nil {
				return bad
			}
		case 'n':
			v, bad := s.value(buf)
			if bad != nil {
				bad.Field = fmt.Sprintf("field %q", f.name)
				return bad
			}
			if v.kind != jsonNull {
				break
			}
			for i := range f.length { // all its values are missing
				if bad := put(f.column+i, v); bad != nil {
					return bad
				}
			}
			return nil
		}
		if n != f.length {
			return fault("", "field %q: want an array of %d values, as in line %d, found %d", f.name, f.length, f.line, n)
		}
		return nil
	})
}

// A jsonValue is a scalar.
type jsonValue struct {
	kind jsonKind
	text []byte
}

type jsonKind uint8

const (
	jsonNumber jsonKind = iota
	jsonText
	jsonBool
	jsonNull
	jsonOther // of a field whose values are not read
)

// A jsonScanner reads a line without building values: encoding/json takes ten times as long.
type jsonScanner struct{ p []byte }

// peek returns the next byte that is not blank, or 0.
func (s *jsonScanner) peek() byte {
	for len(s.p) > 0 && (blank(s.p[0]) || s.p[0] == '\n') {
		s.p = s.p[1:]
	}
	if len(s.p) == 0 {
		return 0
	}
	return s.p[0]
}

func (s *jsonScanner) want(c byte) *Error {
	if s.peek() != c {
		return s.found(fmt.Sprintf("%q", c))
	}
	s.p = s.p[1:]
	return nil
}

func (s *jsonScanner) found(wanted string) *Error {
	if len(s.p) == 0 {
		return fault("", "want %s, found the end of the line", wanted)
	}
	return fault("", "want %s, found %q", wanted, s.p[:min(len(s.p), 20)])
}

// object calls field for each name, with the scanner at its value, and wants nothing to follow.
func (s *jsonScanner) object(buf *jsonBuffer, field func(name []byte) *Error) *Error {
	if s.peek() != '{' {
		if s.peek() == '[' {
			return fault("", "it is a JSON array; want an object a line, as jq -c '.[]' writes them")
		}
		return s.found("'{', which begins an object a line")
	}
	s.p = s.p[1:]
	if s.peek() == 0 {
		return fault("", "the object does not end in its line; want an object a line, as jq -c . writes them")
	}
	for first := true; s.peek() != '}' || !first; first = false {
		name, bad := s.text(buf)
		if bad != nil {
			return bad
		}
		if bad := s.want(':'); bad != nil {
			return bad
		}
		if bad := field(name); bad != nil {
			return bad
		}
		if s.peek() != ',' {
			break
		}
		s.p = s.p[1:]
	}
	if bad := s.want('}'); bad != nil {
		return bad
	}
	if s.peek() != 0 || len(s.p) > 0 {
		return s.found("the end of the line")
	}
	return nil
}

func (s *jsonScanner) array(buf *jsonBuffer, element func(i int, v jsonValue) *Error) *Error {
	if bad := s.want('['); bad != nil {
		return bad
	}
	for i := 0; s.peek() != ']' || i > 0; i++ {
		v, bad := s.value(buf)
		if bad != nil {
			return bad
		}
		if bad := element(i, v); bad != nil {
			return bad
		}
		if s.peek() != ',' {
			break
		}
		s.p = s.p[1:]
	}
	return s.want(']')
}

// value reads a scalar. Its text is valid until the next one.
func (s *jsonScanner) value(buf *jsonBuffer) (jsonValue, *Error) {
	switch s.peek() {
	case '"':
		text, bad := s.text(buf)
		return jsonValue{jsonText, text}, bad
	case '[', '{':
		return jsonValue{}, s.found("a number, a text, true, false or null")
	}
	n := 0
	for n < len(s.p) && s.p[n] != ',' && s.p[n] != '}' && s.p[n] != ']' && !blank(s.p[n]) {
		n++
	}
	v := jsonValue{jsonNumber, s.p[:n]}
	switch string(v.text) {
	case "true", "false":
		v.kind = jsonBool
	case "null":
		v.kind = jsonNull
	default:
		if _, ok := parseNumber(v.text); !ok {
			return v, s.found("a number, a text, true, false or null")
		}
	}
	s.p = s.p[n:]
	return v, nil
}

// skip passes over a value of any kind.
func (s *jsonScanner) skip() *Error {
	var value json.RawMessage
	d := json.NewDecoder(bytes.NewReader(s.p))
	if err := d.Decode(&value); err != nil {
		return s.found("a value")
	}
	s.p = s.p[d.InputOffset():]
	return nil
}

// text reads a string.
func (s *jsonScanner) text(buf *jsonBuffer) ([]byte, *Error) {
	if s.peek() != '"' {
		return nil, s.found("a text in double quotes")
	}
	end := bytes.IndexByte(s.p[1:], '"') + 1
	escape := bytes.IndexByte(s.p[:max(end, 0)], '\\')
	if end > 0 && escape < 0 {
		text := s.p[1:end]
		s.p = s.p[end+1:]
		return text, nil
	}
	for i := 1; i < len(s.p); i++ {
		if s.p[i] == '\\' {
			i++
			continue
		}
		if s.p[i] != '"' {
			continue
		}
		var text string
		if err := json.Unmarshal(s.p[:i+1], &text); err != nil {
			return nil, s.found("a text in double quotes")
		}
		s.p = s.p[i+1:]
		buf.text = append(buf.text[:0], text...)
		return buf.text, nil
	}
	return nil, fault("", "a double quote is opened and never closed")
}
