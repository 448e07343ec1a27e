package data

import (
	"errors"
	"fmt"
	"os"
)

// spoolBytes is how much of what is unpacked from a file is held in memory before it goes to a temporary file: compressed files cannot
// be entered in the middle, and shuffling needs that. The rows that are made of it are beside it in memory meanwhile. Where no temporary file
// can be had it is spoolMost.
const (
	spoolBytes = 16 << 20
	spoolMost  = 64 << 20
)

// A spool keeps bytes in memory, and from spoolBytes on in a temporary file.
type spool struct {
	name string
	head []byte
	tmp  *os.File
	none error // why there is no temporary file; nil: there is one, or none was wanted yet
	n    int64
}

func newSpool(name string) *spool { return &spool{name: name} }

func (s *spool) Write(p []byte) (int, error) {
	need := len(s.head) + len(p)
	if s.tmp == nil && s.none == nil && need > spoolBytes {
		s.spill()
	}
	switch {
	case s.tmp != nil:
		if _, err := s.tmp.Write(p); err != nil {
			return 0, fmt.Errorf("data: %s: unpacking into a temporary file: %w", s.name, err)
		}
	case need > spoolMost:
		return 0, fmt.Errorf("data: %s: no temporary file to unpack into: %w", s.name, s.none)
	default:
		s.makeRoom(need)
		s.head = append(s.head, p...)
	}
	s.n += int64(len(p))
	return len(p), nil
}

// spill moves what there is into a temporary file, or notes why it cannot.
func (s *spool) spill() {
	tmp, err := os.CreateTemp("", "trivium-spool-*")
	if err != nil {
		s.none = err
		return
	}
	_ = os.Remove(tmp.Name()) // where the system allows it, the name goes now and the bytes with the last close
	if _, err := tmp.Write(s.head); err != nil {
		s.none = errors.Join(err, tmp.Close(), removeIfThere(tmp.Name()))
		return
	}
	s.tmp, s.head = tmp, nil
}

// makeRoom has head hold that many bytes without growing again and again, which would leave as much behind: what is not written yet takes no
// memory.
func (s *spool) makeRoom(need int) {
	for _, size := range []int{1 << 20, spoolBytes, spoolMost} {
		if need <= cap(s.head) {
			return
		}
		if need <= size {
			s.head = append(make([]byte, 0, size), s.head...)
		}
	}
}

// file returns what was written, to be read. It owns the spool's memory.
func (s *spool) file() *file {
	if s.tmp == nil {
		return bytesFile(s.name, s.head)
	}
	return &file{ReaderAt: s.tmp, name: s.name, size: s.n, close: s.discard}
}

func (s *spool) discard() error {
	if s.tmp == nil {
		return nil
	}
	return errors.Join(s.tmp.Close(), removeIfThere(s.tmp.Name()))
}

func removeIfThere(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
