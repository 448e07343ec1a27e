//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package processes

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/trivium-ml/trivium/transport"
)

// TestFolder: what a killed process leaves is removed, what one in use or anything else leaves is not.
func TestFolder(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	make := func() *Folder {
		f, err := NewFolder()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(f.Path, "a.sock"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return f
	}
	used, killed := make(), make()
	if err := killed.unlock(); err != nil { // as the system does
		t.Fatal(err)
	}
	model := filepath.Join(temp, "trivium-1")
	link := filepath.Join(temp, folderPrefix+"link")
	if err := errors.Join(os.Mkdir(model, 0o700), os.Symlink(model, link)); err != nil {
		t.Fatal(err)
	}
	next := make()
	for path, there := range map[string]bool{used.Path: true, killed.Path: false, next.Path: true, model: true, link: true} {
		if _, err := os.Lstat(path); there && err != nil || !there && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want it there: %v", filepath.Base(path), err, there)
		}
	}
	if err := errors.Join(used.Close(), next.Close()); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(temp, "*", "a.sock")); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestFolderTooLong: that the sockets would have too long names is said before anything is started, and nothing is left.
func TestFolderTooLong(t *testing.T) {
	temp := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temp)
	if _, err := NewFolder(); !errors.Is(err, transport.ErrTooLong) || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("found %v", err)
	}
	if left, err := os.ReadDir(temp); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestFoldersAtOnce: makers do not remove what others are making.
func TestFoldersAtOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 20 {
				f, err := NewFolder()
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.WriteFile(filepath.Join(f.Path, "a.sock"), nil, 0o600); err != nil {
					t.Error(err)
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
}

// TestFolderNowhere: that there is no folder for temporary files is said with what names it.
func TestFolderNowhere(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("TMPDIR", none)
	if _, err := NewFolder(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), none) || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("found %v", err)
	}
}
