// Package blob is where large bytes rest: checkpoints, run records, data.
//
// A [Store] maps keys to immutable-looking objects: a write is seen whole or not at all. [Dir] keeps them as files of a directory;
// package blobtest holds what every Store must do.
//
//	store := blob.Dir("checkpoints")
//	err := store.Put(ctx, "step-100/params.safetensors", r)
//	r, err := store.Get(ctx, "step-100/params.safetensors", 0, -1)
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// A Store keeps objects by key. It may be used by several goroutines, and by several processes, at once.
type Store interface {
	// Put writes all that r gives under key, replacing what was there. Readers see the old object or the new one, whole; after an
	// error, the old one.
	Put(ctx context.Context, key string, r io.Reader) error

	// PutIfAbsent is Put, but where key exists the error wraps fs.ErrExist. Of several callers at once, one succeeds.
	PutIfAbsent(ctx context.Context, key string, r io.Reader) error

	// Get reads length bytes of the object from offset from, and all that follow if length is negative. Less is read where the object
	// ends. Where there is no such key, the error wraps fs.ErrNotExist. The caller closes the reader.
	Get(ctx context.Context, key string, from, length int64) (io.ReadCloser, error)

	// List returns the objects whose keys begin with prefix, sorted by key.
	List(ctx context.Context, prefix string) ([]Object, error)

	// Delete removes key. It is no error if there is none.
	Delete(ctx context.Context, key string) error
}

// An Object is what List tells about a key.
type Object struct {
	Key  string
	Size int64
}

// Read returns the whole object at key, which may hold at most limit bytes.
func Read(ctx context.Context, s Store, key string, limit int64) ([]byte, error) {
	r, err := s.Get(ctx, key, 0, limit+1)
	if err != nil {
		return nil, err
	}
	p, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("blob: %s: %w", key, err)
	}
	if int64(len(p)) > limit {
		return nil, fmt.Errorf("blob: %s: is larger than %d bytes", key, limit)
	}
	return p, nil
}

// CheckKey refuses keys that not every Store can hold: a key is names of letters, digits, "-", "_" and "." that do not begin with a
// dot, joined by "/", at most 512 bytes.
func CheckKey(key string) error {
	if len(key) > 512 {
		return fmt.Errorf("blob: key of %d bytes: want at most 512", len(key))
	}
	for name := range strings.SplitSeq(key, "/") {
		if name == "" || name[0] == '.' || name[len(name)-1] == '.' || strings.ContainsFunc(name, foreign) {
			return fmt.Errorf(`blob: key %q: %w: want names of letters, digits, "-", "_" and ".", without a dot at an end, joined by "/"`, key, fs.ErrInvalid)
		}
	}
	return nil
}

func foreign(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
}
