// Package atomicfile writes files that are there whole or not at all: under a hidden name beside their own first, which they get once all
// is written. A crash leaves what was there before or all of the new, and at most a hidden file that nobody reads.
package atomicfile

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Options are how a file is written.
type Options struct {
	Mode     fs.FileMode // permissions before the umask; 0: 0600, its owner's alone
	New      bool        // a file that is there stays, and the error is fs.ErrExist; else it is replaced, and so is a link
	Unsynced bool        // the disk may have it later than its name: a loss of power may then leave a part under that
}

// Write gives the file at path what write writes to f, which write does not close. Where write or something else fails, path is as before,
// and nothing is left beside it. Its folder must be there.
func Write(path string, write func(f *os.File) error, o Options) error {
	folder, name := filepath.Dir(path), filepath.Base(path)
	temp := filepath.Join(folder, "."+name+".partial-"+rand.Text()[:8]) // another process may write to the same name
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, cmp.Or(o.Mode, 0o600))
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil && !o.Unsynced {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = commit(temp, path, o)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	if !o.Unsynced {
		syncFolder(folder)
	}
	return nil
}

// WriteBytes gives the file at path the contents p, as Write does.
func WriteBytes(path string, p []byte, o Options) error {
	return Write(path, func(f *os.File) error {
		_, err := f.Write(p)
		return err
	}, o)
}

// commit gives the file its name. Where that fails, it still has the other.
func commit(temp, path string, o Options) error {
	if !o.New {
		return os.Rename(temp, path)
	}
	if err := os.Link(temp, path); err != nil { // unlike a rename, it replaces nothing
		return err
	}
	_ = os.Remove(temp) // the file is there: a second name of it, which nobody reads, is no failure
	return nil
}

// syncFolder makes the name last. Not every system can sync a folder, and what is in the file is safe already: no error is one here.
func syncFolder(folder string) {
	if f, err := os.Open(folder); err == nil {
		_ = f.Sync()
		_ = f.Close()
	}
}
