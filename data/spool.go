package data

import (
	"errors"
	"fmt"
	"os"
)

// spoolBytes is how much of what is unpacked from a file is held in memory before it goes to a temporary file: compressed files cannot
// be entered in the middle, and shuffling needs that.
const spoolBytes = 64 << 20

// A spool keeps bytes in memory, and from spoolBytes on in a temporary file.
type spool struct {
	name string
	head []byte
	tmp  *os.File
	n    int64
}

func newSpool(name string) *spool { return &spool{name: name} }

func (s *spool) Write(p []byte) (int, error) {
	if s.tmp == nil && len(s.head)+len(p) <= spoolBytes {
		s.head = append(s.head, p...)
		s.n += int64(len(p))
		return len(p), nil
	}
	if s.tmp == nil {
		tmp, err := os.CreateTemp("", "trivium-spool-*")
		if err != nil {
			return 0, fmt.Errorf("data: %s: no temporary file to unpack into: %w", s.name, err)
		}
		s.tmp = tmp
		_ = os.Remove(tmp.Name()) // where the system allows it, the name goes now and the bytes with the last close
		if _, err := tmp.Write(s.head); err != nil {
			return 0, fmt.Errorf("data: %s: unpacking into a temporary file: %w", s.name, err)
		}
		s.head = nil
	}
	if _, err := s.tmp.Write(p); err != nil {
		return 0, fmt.Errorf("data: %s: unpacking into a temporary file: %w", s.name, err)
	}
	s.n += int64(len(p))
	return len(p), nil
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
