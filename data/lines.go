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
	f       *file
	syntax  lineSyntax
	rows    int64
	starts  []lineMark // of each block
	end     lineMark
	crc     uint32
	longest int64 // bytes of the longest line
}

// A lineMark is the start of a row.
type lineMark struct {
	offset int64
	line   int64 // from 1
	marks  int64 // how often syntax.count occurred before
}

type lineSyntax struct {
	comment byte // starts a line to pass over; 0: none
	quotes  bool // a newline between double quotes does not end a line
	count   byte // a byte to count, such as the colons of libsvm; 0: none
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
	started, isRow, quoted := false, false, false
	lines, marks := int64(0), int64(0) // newlines, and counted bytes, of the current line so far
	finish := func(end int64) {
		if isRow {
			if x.rows%blockRows == 0 {
				x.starts = append(x.starts, at)
			}
			x.rows++
			at.marks += marks
			x.longest = max(x.longest, end-at.offset)
		}
		at.offset, at.line = end, at.line+lines
		started, isRow, lines, marks = false, false, 0, 0
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
				if t := trim(piece); len(t) > 0 {
					started = true
					isRow = syntax.comment == 0 || t[0] != syntax.comment
				}
			}
			if syntax.quotes && isRow && bytes.Count(piece, quote)%2 == 1 {
				quoted = !quoted
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
			if !quoted {
				finish(pos)
			}
		}
	}
	if quoted {
		e := fault(f.name, "a double quote is opened and never closed")
		e.Line = at.line
		return nil, e
	}
	finish(f.size)
	x.end, x.crc = at, crc.Sum32()
	return x, nil
}

var quote = []byte{'"'}

func tooLong(f *file, at lineMark) error {
	e := fault(f.name, "a line of more than %d MiB: is this a text file?", maxLine>>20)
	e.Line = at.line
	return e
}

// lineReader gives the rows of a range in turn.
type lineReader struct {
	x    *lineIndex
	rest []byte
	line int64 // of the row that next returned
	next int64 // line number of rest
}

// read returns a reader of the rows [from, to), which loads whole blocks into buf's memory.
func (x *lineIndex) read(buf []byte, from, to int64) (*lineReader, []byte, error) {
	first, last := from/blockRows, (to+blockRows-1)/blockRows
	start, end := x.starts[first], x.end
	if last < int64(len(x.starts)) {
		end = x.starts[last]
	}
	buf, err := x.f.read(buf, start.offset, end.offset)
	if err != nil {
		return nil, buf, err
	}
	r := &lineReader{x: x, rest: buf, next: start.line}
	for range from - first*blockRows {
		if _, ok := r.row(); !ok {
			return nil, buf, fault(x.f.name, "the file changed while it was read")
		}
	}
	return r, buf, nil
}

// row returns the next row without its line end.
func (r *lineReader) row() ([]byte, bool) {
	for len(r.rest) > 0 {
		r.line = r.next
		end := r.lineEnd()
		p := r.rest[:end]
		if end < len(r.rest) {
			r.rest = r.rest[end+1:]
			r.next++
		} else {
			r.rest = nil
		}
		if t := trim(p); len(t) == 0 || r.x.syntax.comment != 0 && t[0] == r.x.syntax.comment {
			continue
		}
		if n := len(p); p[n-1] == '\r' {
			p = p[:n-1]
		}
		return p, true
	}
	return nil, false
}

// lineEnd returns the length of the first line of rest, which may hold quoted newlines.
func (r *lineReader) lineEnd() int {
	end := bytes.IndexByte(r.rest, '\n')
	if end < 0 {
		return len(r.rest)
	}
	if !r.x.syntax.quotes || bytes.Count(r.rest[:end], quote)%2 == 0 {
		return end
	}
	for quoted := true; ; {
		more := bytes.IndexByte(r.rest[end+1:], '\n')
		if more < 0 {
			return len(r.rest)
		}
		piece := r.rest[end+1 : end+1+more]
		r.next++
		end += 1 + more
		if bytes.Count(piece, quote)%2 == 1 {
			quoted = !quoted
		}
		if !quoted {
			return end
		}
	}
}

// lineOf returns the line of a row, for messages; 0 if it cannot be found any more.
func (x *lineIndex) lineOf(row int64) int64 {
	r, _, err := x.read(nil, row, row+1)
	if err != nil {
		return 0
	}
	if _, ok := r.row(); !ok {
		return 0
	}
	return r.line
}
