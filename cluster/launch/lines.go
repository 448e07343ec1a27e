package launch

import (
	"bytes"
	"sync"
)

const (
	maxLine   = 16 << 10 // bytes; a longer line is passed on in pieces
	keepLines = 20       // the last lines of an Exit
	keepBytes = 8 << 10  // that they have together
)

// lines cuts what is written into lines, without their ends.
type lines struct {
	emit func([]byte) error

	lock sync.Mutex
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.rest = append(l.rest, p...)
	from := 0
	for {
		end := bytes.IndexByte(l.rest[from:], '\n')
		next := from + end + 1
		if end < 0 || end > maxLine {
			if len(l.rest)-from <= maxLine {
				break
			}
			end, next = maxLine, from+maxLine
		}
		line := bytes.TrimSuffix(l.rest[from:from+end], []byte{'\r'})
		from = next
		if err := l.emit(line); err != nil {
			l.rest = l.rest[:copy(l.rest, l.rest[from:])]
			return len(p), err
		}
	}
	l.rest = l.rest[:copy(l.rest, l.rest[from:])]
	return len(p), nil
}

// flush emits what follows the last end of line.
func (l *lines) flush() {
	l.lock.Lock()
	defer l.lock.Unlock()
	if len(l.rest) > 0 {
		_ = l.emit(l.rest)
		l.rest = nil
	}
}

// last keeps the last lines.
type last struct {
	lock  sync.Mutex
	lines []string
	bytes int
}

func (l *last) add(line []byte) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if len(line) > keepBytes {
		line = line[len(line)-keepBytes:]
	}
	l.lines = append(l.lines, string(line))
	l.bytes += len(line)
	for len(l.lines) > keepLines || l.bytes > keepBytes {
		l.bytes -= len(l.lines[0])
		l.lines = l.lines[1:]
	}
}

func (l *last) get() []string {
	l.lock.Lock()
	defer l.lock.Unlock()
	return append([]string(nil), l.lines...)
}
