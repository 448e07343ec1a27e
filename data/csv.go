package data

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// A csvFile reads delimited text: comma, semicolon or tab, with the quoting of RFC 4180; a quote that opens no field is a character (see
// quoteState). The first line names the columns unless one of its fields is a number of digits; then columns are called 0, 1, …. So is a column that
// the first line gives no name. Three numbers and more that count up from 0 are names as well: those that pandas gives.
type csvFile struct {
	x         *lineIndex
	delimiter byte
	names     []string
	number    string    // of the first line, which is a row for it; empty: that line names the columns
	counts    bool      // its names are those that pandas gives: 0, 1, 2, …
	index     bool      // the first column has the rows' names, as pandas and R write them: it has none itself, or the one that pandas gives it
	buffers   sync.Pool // of *csvBuffer
}

type csvBuffer struct {
	bytes []byte
	field []byte // a quoted field without its quotes
}

func openCSV(f *file) (*csvFile, error) {
	skip, err := textStart(f)
	if err != nil {
		return nil, err
	}
	first, err := firstLines(f)
	if err != nil {
		return nil, err
	}
	first = first[skip:]
	line := int64(1)
	for { // blank lines
		end := bytes.IndexByte(first, '\n')
		if end < 0 || len(trim(first[:end])) > 0 && !separatorLine(first[:end]) {
			break
		}
		skip, line, first = skip+int64(end)+1, line+1, first[end+1:]
	}
	r := lineReader{x: &lineIndex{syntax: lineSyntax{quotes: true}}, rest: first}
	head, ok := r.row()
	if !ok {
		return nil, fault(f.name, "there are no rows in it")
	}
	c := &csvFile{delimiter: delimiterOf(head, r.rest)}
	fields, bad := c.split(head)
	if bad != nil {
		bad.File, bad.Line = f.name, line
		return nil, bad
	}
	numbers := slices.DeleteFunc(slices.Clone(fields), func(field string) bool {
		_, number := parseNumber(trim([]byte(field)))
		return !number || !strings.ContainsAny(field, "0123456789") // nan and inf may be names
	})
	ofPandas := len(numbers) >= 3 && slices.Equal(numbers, classNumbers(len(numbers)))
	start, startLine := skip, line
	if len(numbers) == 0 || ofPandas {
		c.names, c.counts = fields, ofPandas
		c.index = len(fields) > 1 && (fields[0] == "" || fields[0] == "Unnamed: 0")
		for i, number := range classNumbers(len(fields)) {
			switch {
			case fields[i] != "":
			case ofPandas:
				fields[i] = "Unnamed: " + number // as pandas reads it, where the number is another's name
			default:
				fields[i] = number // which is no other's name: the line would be no header
			}
		}
		if r.rest == nil {
			return nil, fault(f.name, "there are no rows after the header")
		}
		start = skip + int64(len(first)-len(r.rest))
		startLine = line + int64(bytes.Count(first[:len(first)-len(r.rest)], []byte{'\n'}))
	} else {
		c.names, c.number = classNumbers(len(fields)), numbers[0]
	}
	if c.x, err = indexLines(f, lineSyntax{quotes: true, delimiter: c.delimiter}, start, startLine); err != nil {
		return nil, err
	}
	if c.x.rows == 0 {
		return nil, fault(f.name, "there are no rows after the header")
	}
	return c, nil
}

// firstLineNotes say what the first line is taken for, where it has numbers.
func (c *csvFile) firstLineNotes() []string {
	switch {
	case c.counts:
		return []string{"the first line is no row: 0, 1, 2, … in it are the names that pandas gives columns; if they are values, write a line of names before it"}
	case c.number != "":
		return []string{c.rowNote()}
	}
	return nil
}

// rowNote says why the first line is taken for no names, where it has a number.
func (c *csvFile) rowNote() string {
	return fmt.Sprintf("the first line is a row, since %s in it is a number; if it names the columns, write names with letters", shortText([]byte(c.number)))
}

// separatorLine reports whether a line before the header tells Excel the delimiter, such as sep=; alone. The rows tell it as well.
func separatorLine(line []byte) bool {
	text := bytes.Trim(line, "\" \r")
	return len(text) == len("sep=;") && bytes.HasPrefix(text, []byte("sep=")) && strings.IndexByte(delimiters, text[len(text)-1]) >= 0
}

// firstLines returns the start of the file with at least its first line that is not blank, if it has one.
func firstLines(f *file) ([]byte, error) {
	for n := int64(64 << 10); ; n *= 4 {
		p, err := f.read(nil, 0, min(n, f.size))
		if err != nil {
			return nil, err
		}
		if int64(len(p)) == f.size || wholeLine(bytes.TrimLeft(bytes.TrimPrefix(p, utf8Mark), " \t\r\n")) {
			return p, nil
		}
		if n >= maxLine {
			e := fault(f.name, "a line of more than %d MiB: is this a text file?", maxLine>>20)
			e.Line = 1
			return nil, e
		}
	}
}

// wholeLine reports whether the first line of text ends in it: at a newline that is not in quotes.
func wholeLine(text []byte) bool {
	for field := fieldStart; ; {
		line, rest, newline := bytes.Cut(text, []byte{'\n'})
		if field = field.after(line, 0); !newline || field != fieldQuoted {
			return newline
		}
		text = rest
	}
}

var utf8Mark = []byte("\xef\xbb\xbf") // a byte order mark, which some programs put before text

// delimiterRows is how many rows after the first tell what separates fields.
const delimiterRows = 10

// delimiterOf is what separates fields: that of comma, semicolon and tab which most of the next rows have as often as the first line, as a
// name may hold another; among equals that which the first line has most of. rest is what follows the first line.
func delimiterOf(line, rest []byte) byte {
	first, alike := countDelimiters(line), [len(delimiters)]int{}
	r := lineReader{x: &lineIndex{syntax: lineSyntax{quotes: true}}, rest: rest}
	for range delimiterRows {
		row, ok := r.row()
		if !ok {
			break
		}
		for i, n := range countDelimiters(row) {
			if n == first[i] && n > 0 {
				alike[i]++
			}
		}
	}
	best := 0
	for i := range delimiters {
		if cmp.Or(cmp.Compare(alike[i], alike[best]), cmp.Compare(first[i], first[best])) > 0 {
			best = i
		}
	}
	return delimiters[best]
}

// countDelimiters returns how often a line has each, outside quotes.
func countDelimiters(line []byte) (counts [len(delimiters)]int) {
	field := fieldStart
	for i, b := range line {
		if at := strings.IndexByte(delimiters, b); at >= 0 && field != fieldQuoted {
			counts[at]++
		}
		field = field.after(line[i:i+1], 0)
	}
	return counts
}

// split returns the fields of a line as text.
func (c *csvFile) split(line []byte) (fields []string, bad *Error) {
	var buf csvBuffer
	for done := false; !done; {
		var field []byte
		field, line, done, bad = c.next(&buf, line)
		if bad != nil {
			return nil, bad
		}
		fields = append(fields, string(field))
	}
	return fields, nil
}

// next cuts the first field off a line. done: it was the last.
func (c *csvFile) next(buf *csvBuffer, line []byte) (field, rest []byte, done bool, bad *Error) {
	p := line
	for len(p) > 0 && p[0] == ' ' {
		p = p[1:]
	}
	if len(p) > 0 && p[0] == '"' {
		return c.nextQuoted(buf, p[1:])
	}
	for i, b := range p {
		if b == c.delimiter {
			return trimRight(p[:i]), p[i+1:], false, nil
		}
	}
	return trimRight(p), nil, true, nil
}

func trimRight(p []byte) []byte {
	for len(p) > 0 && blank(p[len(p)-1]) {
		p = p[:len(p)-1]
	}
	return p
}

func (c *csvFile) nextQuoted(buf *csvBuffer, p []byte) (field, rest []byte, done bool, bad *Error) {
	buf.field = buf.field[:0]
	for {
		end := bytes.IndexByte(p, '"')
		if end < 0 {
			return nil, nil, true, fault("", "a double quote is opened and never closed")
		}
		buf.field = append(buf.field, p[:end]...)
		p = p[end+1:]
		if len(p) == 0 || p[0] != '"' {
			break
		}
		buf.field = append(buf.field, '"')
		p = p[1:]
	}
	for len(p) > 0 && p[0] != c.delimiter {
		if !blank(p[0]) {
			return nil, nil, true, fault("", "%q follows a closing quote; want the delimiter %q", p[:1], c.delimiter)
		}
		p = p[1:]
	}
	if len(p) == 0 {
		return buf.field, nil, true, nil
	}
	return buf.field, p[1:], false, nil
}

func (c *csvFile) fileName() string  { return c.x.f.name }
func (c *csvFile) numRows() int64    { return c.x.rows }
func (c *csvFile) sum() uint32       { return c.x.crc }
func (c *csvFile) columns() []string { return c.names }
func (c *csvFile) close() error      { return c.x.f.close() }

func (c *csvFile) locate(e *Error, row int64) { e.Line = c.x.lineOf(row) }

// sampleRows is how many rows are looked at to see whether a column holds text.
const sampleRows = 100

// textVotes counts the values of each column that are text, less those that are numbers.
type textVotes []int

func (v textVotes) add(column int, field []byte) {
	field = trim(field)
	if isMissing(field) {
		return
	}
	if _, number := parseNumber(field); number {
		v[column]--
	} else {
		v[column]++
	}
}

// text reports which columns hold more text than numbers: a few words among numbers are mistakes.
func (v textVotes) text() []bool {
	out := make([]bool, len(v))
	for i, n := range v {
		out[i] = n > 0
	}
	return out
}

func (c *csvFile) textColumns() ([]bool, error) {
	votes := make(textVotes, len(c.names))
	var buf csvBuffer
	r, err := c.x.read(nil, 0, min(c.x.rows, sampleRows))
	if err != nil {
		return nil, err
	}
	for range min(c.x.rows, sampleRows) {
		line, ok := r.row()
		if !ok {
			break
		}
		for i, done := 0, false; !done; i++ {
			var field []byte
			field, line, done, _ = c.next(&buf, line) // what is wrong with a row is said when it is decoded, with what is wrong with others
			if i < len(votes) {
				votes.add(i, field)
			}
		}
	}
	return votes.text(), nil
}

func (c *csvFile) decode(p *plan, dst *rawRows, from, to int64, bad func(*Error) error) error {
	buf, ok := c.buffers.Get().(*csvBuffer)
	if !ok {
		buf = new(csvBuffer)
	}
	defer c.buffers.Put(buf)
	r, err := c.x.read(buf.bytes, from, to)
	if err != nil {
		return err
	}
	defer func() { buf.bytes = r.buf }()
	for row := range int(to - from) {
		line, ok := r.row()
		if !ok {
			return r.failure()
		}
		if err := c.decodeRow(buf, p, dst, row, line, func(e *Error) error {
			e.File, e.Line = c.x.f.name, r.line
			if from+int64(row) == 0 && c.number != "" {
				e.Msg += "; " + c.rowNote()
			}
			return bad(e)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (c *csvFile) decodeRow(buf *csvBuffer, p *plan, dst *rawRows, row int, line []byte, bad func(*Error) error) error {
	column := 0
	for done := false; !done; column++ {
		var field []byte
		var e *Error
		field, line, done, e = c.next(buf, line)
		if e == nil && column < len(c.names) {
			e = p.putText(dst, row, column, field)
		} else if column < len(c.names) {
			p.store(dst, row, p.roles[column], nan) // else it would have what lay there
		}
		if e != nil {
			if err := bad(e); err != nil {
				return err
			}
		}
	}
	if column != len(c.names) {
		if err := bad(fault("", "want %d fields, as in the first line, found %d", len(c.names), column)); err != nil {
			return err
		}
		for ; column < len(c.names); column++ {
			p.store(dst, row, p.roles[column], nan)
		}
	}
	return nil
}
