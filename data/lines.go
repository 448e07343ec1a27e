package data

import (
	"bytes"
	"hash/crc32"
	"io"
)

// maxLine bounds a line, so that a file that is not text does not end up in memory whole. A row of a million numbers of 20 characters
// fits.
const maxLine = 64 << 20

// A lineIndex knows where every block of blockRows rows of a text file starts, so that any range of rows can be read. A row is a line
// that is neither blank nor a comment.
type lineIndex struct {
	f      *file
	syntax lineSyntax
	rows   int64
	starts []lineMark // of each block
	end    lineMark
	crc    uint32
}

// A lineMark is the start of a row.
type lineMark struct {
	offset int64
	line   int64 // from 1
	marks  int64 // how often syntax.count occurred before
}

type lineSyntax struct {
	comment   byte // starts a line to pass over; 0: none
	quotes    bool // a newline in a quoted field does not end a line
	delimiter byte // of a line's fields, some of which are quoted; 0: any that a table may have
	count     byte // a byte to count, such as the colons of libsvm; 0: none
}

// blank reports whether a line holds nothing. Between tabs there are fields, if empty ones: the line is a row of a table, and those behind it
// would have other numbers.
func (s lineSyntax) blank(line []byte) bool {
	return len(trim(line)) == 0 && (s.delimiter != '\t' || bytes.IndexByte(line, '\t') < 0)
}

// A quoteState is where a reader of fields stands that may be quoted. A double quote opens a field only where that begins, as for other
// programs: within one that is not quoted, such as 6" pipe, it is a character like others.
type quoteState uint8

const (
	fieldStart  quoteState = iota
	fieldPlain             // or behind the closing quote
	fieldQuoted            // between the quotes
	fieldQuote             // after a quote between them: another makes it one of the field's, else it was the closing one
)

// after returns where a reader stands behind p.
func (s quoteState) after(p []byte, delimiter byte) quoteState {
	for len(p) > 0 {
		next := 0 // how much of p this state takes
		switch s {
		case fieldStart:
			switch p[0] {
			case ' ':
				next = 1
			case '"':
				s, next = fieldQuoted, 1
			default:
				s = fieldPlain
			}
		case fieldPlain:
			at := bytes.IndexByte(p, delimiter)
			if delimiter == 0 {
				at = bytes.IndexAny(p, delimiters)
			}
			if at < 0 {
				return s
			}
			s, next = fieldStart, at+1
		case fieldQuoted:
			at := bytes.IndexByte(p, '"')
			if at < 0 {
				return s
			}
			s, next = fieldQuote, at+1
		case fieldQuote:
			if s = fieldPlain; p[0] == '"' {
				s, next = fieldQuoted, 1
			}
		}
		p = p[next:]
	}
	return s
}

// delimiters are those that a table may have, the likelier first.
const delimiters = ",\t;"

// textHead is how much of a file tells what kind of text it is.
const textHead = 64 << 10

// textStart is where the text of a file begins: after UTF-8's byte order mark, if there is one.
func textStart(f *file) (int64, error) {
	p, err := f.read(nil, 0, min(textHead, f.size))
	switch {
	case err != nil:
		return 0, err
	case bytes.HasPrefix(p, utf8Mark):
		return int64(len(utf8Mark)), nil
	case bytes.HasPrefix(p, []byte("\xff\xfe")) || bytes.HasPrefix(p, []byte("\xfe\xff")) || len(p) > 1 && (p[0] == 0) != (p[1] == 0):
		return 0, fault(f.name, "its text is in UTF-16, as the first two bytes say; save it as UTF-8")
	case bytes.IndexByte(p, '\n') < 0 && bytes.IndexByte(bytes.TrimRight(p, "\r"), '\r') >= 0: // else it would be one long row
		return 0, fault(f.name, "its lines end in carriage returns alone, as old programs wrote them; save it with newlines")
	}
	return 0, nil
}

// indexLines reads the file once, from offset on, where line number line starts.
func indexLines(f *file, syntax lineSyntax, offset, line int64) (*lineIndex, error) {
	x := &lineIndex{f: f, syntax: syntax}
	buf := make([]byte, 1<<20)
	crc := crc32.New(crcTable)
	if offset > 0 {
		if _, err := io.CopyN(crc, io.NewSectionReader(f, 0, offset), offset); err != nil {
			return nil, fault(f.name, "%s", reason(err))
		}
	}
	at := lineMark{offset: offset, line: line} // start of the current line
	started, isRow, field := false, false, fieldStart
	lines, marks := int64(0), int64(0) // newlines, and counted bytes, of the current line so far
	finish := func(end int64) {
		if isRow {
			if x.rows%blockRows == 0 {
				x.starts = append(x.starts, at)
			}
			x.rows++
			at.marks += marks
		}
		at.offset, at.line = end, at.line+lines
		started, isRow, field, lines, marks = false, false, fieldStart, 0, 0
	}
	for pos := offset; pos < f.size; {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), f.size-pos)], pos)
		if n == 0 && err != nil {
			return nil, faultAt(f.name, pos, "%s", reason(err))
		}
		p := buf[:n]
		crc.Write(p)
		for len(p) > 0 {
			nl := bytes.IndexByte(p, '\n')
			piece := p
			if nl >= 0 {
				piece = p[:nl]
			}
			if !started {
				if t := trim(piece); !syntax.blank(piece) {
					started = true
					isRow = syntax.comment == 0 || t[0] != syntax.comment
				}
			}
			if syntax.quotes && isRow && (nl < 0 || bytes.IndexByte(piece, '"') >= 0) { // a whole piece without quotes leaves them as they are
				field = field.after(piece, syntax.delimiter)
			}
			if syntax.count != 0 && isRow {
				marks += int64(bytes.Count(piece, []byte{syntax.count}))
			}
			pos += int64(len(piece))
			p = p[len(piece):]
			if nl < 0 {
				if pos-at.offset > maxLine {
					return nil, tooLong(f, at)
				}
				break
			}
			pos++
			p = p[1:]
			lines++
			if pos-at.offset > maxLine {
				return nil, tooLong(f, at)
			}
			if field != fieldQuoted {
				finish(pos)
			}
		}
	}
	if field == fieldQuoted {
		e := fault(f.name, "a double quote is opened and never closed")
		e.Line = at.line
		return nil, e
	}
	finish(f.size)
	x.end, x.crc = at, crc.Sum32()
	return x, nil
}

func tooLong(f *file, at lineMark) error {
	e := fault(f.name, "a line of more than %d MiB: is this a text file?", maxLine>>20)
	e.Line = at.line
	return e
}

// lineReader gives the rows of a range in turn, reading a piece of the file at a time: a block of wide rows may be large.
type lineReader struct {
	x        *lineIndex
	buf      []byte // whose memory rest lies in
	rest     []byte // what was read and not yet returned
	pos, end int64  // what is still to be read of the file
	line     int64  // of the row that row returned
	next     int64  // line number of rest
	err      error  // of reading
}

// linePiece is how much of a file is read at a time.
const linePiece = 1 << 20

// read returns a reader of the rows [from, to), which works in buf's memory. Its buf field is the memory to hand in next time.
func (x *lineIndex) read(buf []byte, from, to int64) (*lineReader, error) {
	first, last := from/blockRows, (to+blockRows-1)/blockRows
	start, end := x.starts[first], x.end
	if last < int64(len(x.starts)) {
		end = x.starts[last]
	}
	r := &lineReader{x: x, buf: buf, pos: start.offset, end: end.offset, next: start.line}
	for range from - first*blockRows {
		if _, ok := r.row(); !ok {
			return nil, r.failure()
		}
	}
	return r, nil
}

// failure is why row returned false before the range ended.
func (r *lineReader) failure() error {
	if r.err != nil {
		return r.err
	}
	return fault(r.x.f.name, "the file changed while it was read")
}

// fill reads another piece behind rest; false: there is none.
func (r *lineReader) fill() bool {
	n := min(int64(linePiece), r.end-r.pos)
	if n <= 0 || r.err != nil {
		return false
	}
	if have := len(r.rest); have+int(n) <= cap(r.buf) {
		r.buf = r.buf[:cap(r.buf)]
		copy(r.buf, r.rest)
	} else {
		grown := make([]byte, 2*have+int(n))
		copy(grown, r.rest)
		r.buf = grown
	}
	have := len(r.rest)
	var err error
	if _, err = r.x.f.read(r.buf[have:have:have+int(n)], r.pos, r.pos+n); err != nil {
		r.err = err
		return false
	}
	r.rest = r.buf[:have+int(n)]
	r.pos += n
	return true
}

// row returns the next row without its line end. It is valid until the next call.
func (r *lineReader) row() ([]byte, bool) {
	for len(r.rest) > 0 || r.fill() {
		end, newlines := r.lineEnd()
		if r.err != nil {
			return nil, false
		}
		r.line = r.next
		p := r.rest[:end]
		if end < len(r.rest) {
			r.rest = r.rest[end+1:]
			newlines++
		} else {
			r.rest = nil
		}
		r.next += newlines
		if t := trim(p); r.x.syntax.blank(p) || r.x.syntax.comment != 0 && t[0] == r.x.syntax.comment {
			continue
		}
		if n := len(p); p[n-1] == '\r' {
			p = p[:n-1]
		}
		return p, true
	}
	return nil, false
}

// lineEnd returns the length of the first line of rest, and how many newlines between quotes it holds.
func (r *lineReader) lineEnd() (end int, newlines int64) {
	field := fieldStart
	for {
		n := bytes.IndexByte(r.rest[end:], '\n')
		if n < 0 {
			if r.fill() {
				end, newlines, field = 0, 0, fieldStart // from the start: lines are short beside a piece
				continue
			}
			return len(r.rest), newlines
		}
		if piece := r.rest[end : end+n]; r.x.syntax.quotes && bytes.IndexByte(piece, '"') >= 0 {
			field = field.after(piece, r.x.syntax.delimiter)
		}
		end += n
		if field != fieldQuoted {
			return end, newlines
		}
		newlines++
		end++
	}
}

// lineOf returns the line of a row, for messages; 0 if it cannot be found any more.
func (x *lineIndex) lineOf(row int64) int64 {
	r, err := x.read(nil, row, row+1)
	if err != nil {
		return 0
	}
	if _, ok := r.row(); !ok {
		return 0
	}
	return r.line
}
