package processes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/trivium-ml/trivium/transport"
)

// A Folder holds the sockets of one job's processes on this host. Its maker has it locked as long as it lives, so that what one leaves
// that is killed can be told from what is in use: the next maker removes it.
type Folder struct {
	Path   string
	unlock func() error
}

const (
	folderPrefix = "trivium-net-" // of no other temporary folders: they may hold what a user wants to keep
	folderTries  = 100            // one fails only where a sweep comes between its making and its lock
)

// NewFolder makes a folder of its own among the temporary ones, and removes those of this user's that killed makers left there.
// transport.ErrTooLong: sockets in it would have too long names.
func NewFolder() (*Folder, error) {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, path := range left {
		if unlock, err := lockFolder(path); err == nil {
			_ = errors.Join(os.RemoveAll(path), unlock()) // the next maker tries again
		}
	}
	for range folderTries {
		path, err := os.MkdirTemp("", folderPrefix)
		if err != nil {
			return nil, err
		}
		if err := (transport.Unix{Dir: path}).Check(); err != nil { // now, and not in each worker
			return nil, fmt.Errorf("processes: %w", errors.Join(err, os.Remove(path)))
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
	return nil, errors.New("processes: others remove the folders for sockets as soon as they are made")
}

// Close removes the folder.
func (f *Folder) Close() error { return errors.Join(os.RemoveAll(f.Path), f.unlock()) }

// errHeld: another process has the folder locked, or has removed it.
var errHeld = errors.New("processes: it is another's")
