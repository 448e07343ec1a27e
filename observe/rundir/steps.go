package rundir

import (
	"errors"
	"fmt"
	"os"

	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/coding"
)

// A stepsFile holds the steps of one source within a bound: where it would grow beyond, every second step is taken out and from then
// on one in twice as many is kept. Each step carries the k it was kept under, so that the file still says how many it stands for.
type stepsFile struct {
	name  string
	file  *os.File
	size  int64
	limit int64
	every uint32 // of the steps that come in, one in so many is kept
	skip  uint32

	incarnation uint64
	waiting     []observe.Step
	buffer      []byte
}

func (s *stepsFile) open() error {
	file, err := openAppend(s.name)
	if err != nil {
		return fmt.Errorf("rundir: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("rundir: %w", err), file.Close())
	}
	s.file, s.size = file, info.Size()
	return nil
}

func (s *stepsFile) add(incarnation uint64, step observe.Step) error {
	if s.skip > 0 {
		s.skip--
		return nil
	}
	s.skip = s.every - 1
	step.Every = max(step.Every, 1) * s.every
	if len(s.waiting) == blockSteps || len(s.waiting) > 0 && incarnation != s.incarnation {
		if err := s.flush(); err != nil {
			return err
		}
	}
	s.incarnation = incarnation
	s.waiting = append(s.waiting, step)
	return nil
}

func (s *stepsFile) flush() error {
	if len(s.waiting) == 0 {
		return nil
	}
	s.buffer = appendBlock(s.buffer[:0], coding.EncodeSteps(s.incarnation, s.waiting))
	if s.size+int64(len(s.buffer)) > s.limit && s.size > 0 {
		return s.halve()
	}
	n, err := s.file.Write(s.buffer)
	s.size += int64(n)
	s.waiting = s.waiting[:0]
	if err != nil {
		return fmt.Errorf("rundir: %w", err)
	}
	return nil
}

// halve rewrites the file with every second step, and then writes the steps that wait, likewise halved. The new file takes the place
// of the old by rename: a crash leaves one of the two.
func (s *stepsFile) halve() error {
	out := &stepsFile{name: s.name + ".half", limit: s.limit, every: 1}
	os.Remove(out.name) // of an earlier crash
	if err := out.open(); err != nil {
		return err
	}
	odd := false
	keep := func(incarnation uint64, step observe.Step) error {
		if odd = !odd; !odd {
			return nil
		}
		step.Every *= 2
		return out.add(incarnation, step)
	}
	err := s.eachStep(keep)
	for _, step := range s.waiting {
		err = errors.Join(err, keep(s.incarnation, step))
	}
	err = errors.Join(err, out.flush(), out.file.Close(), s.file.Close())
	if err == nil {
		err = os.Rename(out.name, s.name)
	}
	if err != nil {
		os.Remove(out.name)
		return fmt.Errorf("rundir: halving %s: %w", s.name, err)
	}
	s.waiting = s.waiting[:0]
	s.every *= 2
	s.skip = 0
	return s.open()
}

func (s *stepsFile) eachStep(f func(incarnation uint64, step observe.Step) error) error {
	in, err := os.Open(s.name)
	if err != nil {
		return err
	}
	defer in.Close()
	var steps []observe.Step
	var failed error
	_, err = scan(s.name, in, s.size, func(payload []byte) (bool, error) {
		var incarnation uint64
		var err error
		if steps, incarnation, err = coding.DecodeSteps(steps[:0], payload); err != nil {
			return true, err
		}
		for _, step := range steps {
			failed = errors.Join(failed, f(incarnation, step))
		}
		return failed == nil, nil
	})
	return errors.Join(err, failed)
}
