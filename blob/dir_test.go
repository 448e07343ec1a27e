package blob_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/blob/blobtest"
)

func TestDir(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store { return blob.Dir(filepath.Join(t.TempDir(), "not", "made", "yet")) })
}

// TestDirDeleteBesidePut: the folder that a Delete empties, and takes away, is there again for a Put.
func TestDirDeleteBesidePut(t *testing.T) {
	store := blob.Dir(t.TempDir())
	var deleting sync.WaitGroup
	over := make(chan struct{})
	deleting.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				if err := store.Delete(t.Context(), "a/b/none"); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for range 200 {
		if err := store.Put(t.Context(), "a/b/c", strings.NewReader("x")); err != nil {
			t.Error(err)
		}
		if err := store.Delete(t.Context(), "a/b/c"); err != nil {
			t.Error(err)
		}
	}
	close(over)
	deleting.Wait()
}

// A sweeper gives an object, and removes the hidden files beside it: then neither a link nor a rename of the one that was written succeeds.
type sweeper struct {
	io.Reader
	folder string
}

func (s sweeper) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == io.EOF {
		hidden, _ := filepath.Glob(filepath.Join(s.folder, ".tmp-*")) // fails for a bad pattern only
		for _, path := range hidden {
			if err := os.Remove(path); err != nil {
				return n, err
			}
		}
	}
	return n, err
}

// TestDirFailedClaim: where an object that must not replace another cannot be put in its place, its name is not left claimed.
func TestDirFailedClaim(t *testing.T) {
	path := t.TempDir()
	s := blob.Dir(path)
	if err := s.PutIfAbsent(t.Context(), "a", sweeper{strings.NewReader("1"), path}); err == nil || errors.Is(err, fs.ErrExist) {
		t.Fatalf("a write whose file was removed: error %v, want another than ErrExist", err)
	}
	if left, err := os.ReadDir(path); err != nil || len(left) != 0 {
		t.Errorf("%v, %v; want nothing", left, err)
	}
	if err := s.PutIfAbsent(t.Context(), "a", strings.NewReader("2")); err != nil {
		t.Errorf("the next write of it: %v", err)
	}
}

func TestDirLeavesNothingBehind(t *testing.T) {
	ctx, path := context.Background(), t.TempDir()
	s := blob.Dir(path)
	for _, key := range []string{"a/b/c", "d"} {
		if err := s.Put(ctx, key, strings.NewReader("1")); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(path); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestDirRefusesLinksOut(t *testing.T) {
	outside, path := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(path, "out")); err != nil {
		t.Logf("this system makes no symbolic links (%v): nothing to refuse", err)
		return
	}
	if err := blob.Dir(path).Put(context.Background(), "out/x", strings.NewReader("1")); err == nil {
		t.Error("wrote through a link that leads out of the directory")
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside: %v, %v", left, err)
	}
}

func TestDirThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := blob.Dir(filepath.Join(file, "below")).Put(context.Background(), "a", strings.NewReader("1"))
	if err == nil || !strings.Contains(err.Error(), filepath.Join(file, "below", "a")) {
		t.Errorf("error %v does not name the file", err)
	}
}

// TestDirFileForFolder: a file where a folder should be is no object of that name, and the error must not say that there is one.
func TestDirFileForFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "folder"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := blob.Dir(dir).PutIfAbsent(context.Background(), "folder/a", strings.NewReader("1"))
	if err == nil || errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "folder is no folder") {
		t.Errorf("error %v", err)
	}
}

// TestDirThroughLink: the store's own directory may be a link to where there is room, as of checkpoints it often is.
func TestDirThroughLink(t *testing.T) {
	ctx, link := context.Background(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Logf("this system makes no symbolic links (%v): there is nothing to follow", err)
		return
	}
	s := blob.Dir(link)
	if err := s.Put(ctx, "step-1/params", strings.NewReader("1")); err != nil {
		t.Fatal(err)
	}
	want := []blob.Object{{Key: "step-1/params", Size: 1}}
	for _, prefix := range []string{"", "step", "step-1/"} {
		if objects, err := s.List(ctx, prefix); err != nil || !slices.Equal(objects, want) {
			t.Errorf("%q: listed %v, %v; want %v", prefix, objects, err, want)
		}
	}
}

// TestDirListsNothingOutside: what Get refuses to read is not listed.
func TestDirListsNothingOutside(t *testing.T) {
	ctx, outside, path := context.Background(), t.TempDir(), t.TempDir()
	if err := blob.Dir(outside).Put(ctx, "below/secret", strings.NewReader("1")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(path, "out")); err != nil {
		t.Logf("this system makes no symbolic links (%v): nothing to refuse", err)
		return
	}
	for _, prefix := range []string{"", "out/", "out/below/"} {
		if objects, _ := blob.Dir(path).List(ctx, prefix); len(objects) > 0 { // an error is as good
			t.Errorf("%q: listed %v", prefix, objects)
		}
	}
}
