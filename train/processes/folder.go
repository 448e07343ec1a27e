package processes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/trivium-ml/trivium/transport"
)

// A Folder is one process's own among those of others, such as that of the sockets of one job's processes on this host. Its maker has it locked as
// long as it lives, so that what one leaves that is killed can be told from what is in use: the next maker removes it.
type Folder struct {
	Path   string
	unlock func() error
}

const (
	folderPrefix = "trivium-net-" // of no other temporary folders: they may hold what a user wants to keep
	folderTries  = 100            // one fails only where a sweep comes between its making and its lock
)

// NewFolder makes a Folder for sockets among the temporary ones. transport.ErrTooLong: sockets in it would have too long names.
func NewFolder() (*Folder, error) {
	f, err := NewFolderIn(os.TempDir(), folderPrefix)
	if err != nil {
		return nil, fmt.Errorf("processes: there is no place for sockets: %w; TMPDIR says where temporary files go", err)
	}
	if err := (transport.Unix{Dir: f.Path}).Check(); err != nil { // now, and not in each worker
		return nil, fmt.Errorf("processes: %w", errors.Join(err, f.Close()))
	}
	return f, nil
}

// NewFolderIn makes a Folder in dir, and removes those of this user's with that prefix that killed makers left there.
func NewFolderIn(dir, prefix string) (*Folder, error) {
	left, err := fs.Glob(os.DirFS(dir), prefix+"*") // the path of dir may have what a pattern takes for its own, such as [
	if err != nil {
		return nil, err
	}
	for _, name := range left {
		path := filepath.Join(dir, name)
		if unlock, err := lockFolder(path); err == nil {
			_ = errors.Join(os.RemoveAll(path), unlock()) // the next maker tries again
		}
	}
	for range folderTries {
		path, err := os.MkdirTemp(dir, prefix)
		if err != nil {
			return nil, err
		}
		unlock, err := lockFolder(path)
		if errors.Is(err, errHeld) {
			continue
		}
		if err != nil { // there are no locks here, and so nobody removes what others made
			unlock = func() error { return nil }
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return &Folder{path, unlock}, nil
		}
		_ = unlock() // of what was removed meanwhile
	}
	return nil, fmt.Errorf("others remove the folders %s* in %s as soon as they are made", prefix, dir)
}

// Close removes the folder.
func (f *Folder) Close() error { return errors.Join(os.RemoveAll(f.Path), f.unlock()) }

// errHeld: another process has the folder locked, or has removed it.
var errHeld = errors.New("processes: it is another's")
