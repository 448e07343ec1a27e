package compare

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium/internal/flock"
)

// lock refuses a directory that another process works in. One process at a time looks at the file and writes it: none takes what is half
// written for what an earlier one left, and of two that find what is left by one that is gone, one gets it.
func (d *directory) lock() error {
	for {
		f, err := os.OpenFile(filepath.Join(d.path, lockFile), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		taken, err := d.take(f)
		flock.Release(f)
		if err = errors.Join(err, f.Close()); err != nil || taken {
			return err
		}
	}
}

// take writes this process into the lock, unless one is in it that lives. false: meanwhile another process put the file away.
func (d *directory) take(f *os.File) (bool, error) {
	if !flock.Take(f) {
		return false, fmt.Errorf("compare: %s: another process takes its lock", d.path)
	}
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	switch now, err := os.Stat(f.Name()); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !os.SameFile(mine, now):
		return false, nil
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return false, err
	}
	number, start, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	pid, err := strconv.Atoi(number)
	same := start == "" || start == processStart(pid) // else that number is another process's by now
	if err == nil && pid != os.Getpid() && alive(pid) && same {
		return false, fmt.Errorf("compare: %s: process %d is at work in it", d.path, pid)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "%d %s\n", os.Getpid(), processStart(os.Getpid())), 0)
	}
	if err != nil {
		return false, errors.Join(err, os.Remove(f.Name()))
	}
	return true, nil
}

// unlock gives up a directory in which nothing was done.
func (d *directory) unlock() error {
	err := os.Remove(filepath.Join(d.path, lockFile))
	if d.made {
		err = errors.Join(err, os.Remove(d.path))
		d.leave()
	}
	return err
}
