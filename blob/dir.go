package blob

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Directory is a Store of the files below a directory. A write goes to a hidden file beside the key, is synced to the disk and then
// renamed (or linked, if it must not replace), so that a crash leaves the old object or the new one, and at most a hidden file that
// nobody reads.
type Directory struct{ path string }

// Dir returns the Store in the directory at path, which is made by the first write.
func Dir(path string) *Directory { return &Directory{path} }

// Put writes the object at key.
func (d *Directory) Put(ctx context.Context, key string, r io.Reader) error {
	return d.write(ctx, key, r, func(root *os.Root, from, to string) error { return root.Rename(from, to) })
}

// PutIfAbsent writes the object at key, unless there is one.
func (d *Directory) PutIfAbsent(ctx context.Context, key string, r io.Reader) error {
	return d.write(ctx, key, r, func(root *os.Root, from, to string) error {
		err := root.Link(from, to)
		if err == nil || errors.Is(err, fs.ErrExist) {
			return errors.Join(err, root.Remove(from))
		}
		// A file system without hard links: the name is claimed by an empty file, which the rename replaces. A crash in between leaves
		// the empty one.
		f, err := root.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		claim, err := f.Stat()
		if err = errors.Join(err, f.Close()); err == nil {
			err = root.Rename(from, to)
		}
		if err != nil {
			if found, e := root.Lstat(to); e == nil && os.SameFile(claim, found) { // else a Put has replaced it
				err = errors.Join(err, root.Remove(to))
			}
		}
		return err
	})
}

func (d *Directory) write(ctx context.Context, key string, r io.Reader, commit func(root *os.Root, from, to string) error) (err error) {
	if err := CheckKey(key); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("blob: write %s: %w", filepath.Join(d.path, filepath.FromSlash(key)), err)
		}
	}()
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(d.path) // a link that leads out of the directory is refused
	if err != nil {
		return err
	}
	defer root.Close()
	folder := path.Dir(key)
	temp := path.Join(folder, ".tmp-"+rand.Text())
	var f *os.File
	for range 100 { // deletes may remove the folder, which is empty, before the file is in it
		if err = root.MkdirAll(folder, 0o755); err == nil {
			f, err = root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if errors.Is(err, fs.ErrExist) { // a file lies where a folder should: that is not the object
		return errors.New(folder + " is no folder: " + err.Error())
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(f, reader{ctx, r})
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = commit(root, temp, key)
	}
	if err != nil {
		if errors.Is(err, fs.ErrExist) && isFolder(root, key) { // that is not the object either
			err = errors.New(key + " is a folder: " + err.Error())
		}
		if e := root.Remove(temp); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
		return err
	}
	syncFolder(root, folder)
	return nil
}

// reader stops a copy when its context ends.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// missing reports whether err says that there is no such file, or that its folder is none: then it is not there either.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// isFolder reports whether there are keys that begin with key and a slash, or were: a folder is no object.
func isFolder(root *os.Root, key string) bool {
	info, err := root.Stat(key)
	return err == nil && info.IsDir()
}

// syncFolder makes a rename last. Not every system can sync a directory, and the data itself is already safe: no error is one here.
func syncFolder(root *os.Root, folder string) {
	if f, err := root.Open(folder); err == nil {
		_ = f.Sync()
		_ = f.Close()
	}
}

// Get reads a range of the object at key.
func (d *Directory) Get(ctx context.Context, key string, from, length int64) (io.ReadCloser, error) {
	if err := errors.Join(CheckKey(key), ctx.Err()); err != nil {
		return nil, err
	}
	if from < 0 {
		return nil, fmt.Errorf("blob: read %s from %d: want an offset of 0 or more", key, from)
	}
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return nil, fmt.Errorf("blob: read %s: %w", key, err)
	}
	defer root.Close()
	f, err := root.Open(key)
	if err == nil && isFolder(root, key) {
		err = errors.Join(fmt.Errorf("%w: it is a folder", fs.ErrNotExist), f.Close())
	} else if missing(err) && !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	if err != nil {
		return nil, fmt.Errorf("blob: read %s: %w", filepath.Join(d.path, filepath.FromSlash(key)), err)
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return nil, errors.Join(fmt.Errorf("blob: read %s: %w", f.Name(), err), f.Close())
	}
	if length < 0 {
		return f, nil
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, length), f}, nil
}

// List returns the objects below prefix.
func (d *Directory) List(ctx context.Context, prefix string) ([]Object, error) {
	var objects []Object
	folder := path.Dir(prefix + "x") // a prefix need not end at a name
	if folder != "." {
		if err := CheckKey(folder); err != nil {
			return nil, err
		}
	}
	root, err := os.OpenRoot(d.path) // as Get and Put: d.path may be a link itself, and what leads out of it is refused
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("blob: list %s: %w", d.path, err)
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), folder, func(key string, e fs.DirEntry, err error) error {
		if err != nil {
			if missing(err) { // not made yet, or removed as we look
				return nil
			}
			return err
		}
		if strings.HasPrefix(e.Name(), ".") && key != folder {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err := ctx.Err(); err != nil || !e.Type().IsRegular() {
			return err
		}
		if named := CheckKey(key) == nil; !named || !strings.HasPrefix(key, prefix) {
			return nil
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		objects = append(objects, Object{key, info.Size()})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("blob: list %s: %w", d.path, err)
	}
	slices.SortFunc(objects, func(a, b Object) int { return cmp.Compare(a.Key, b.Key) })
	return objects, nil
}

// Delete removes the object at key, and the folders that this leaves empty.
func (d *Directory) Delete(ctx context.Context, key string) error {
	if err := errors.Join(CheckKey(key), ctx.Err()); err != nil {
		return err
	}
	root, err := os.OpenRoot(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("blob: delete %s: %w", key, err)
	}
	defer root.Close()
	if err := root.Remove(key); err != nil && !missing(err) && !isFolder(root, key) {
		return fmt.Errorf("blob: delete %s: %w", filepath.Join(d.path, filepath.FromSlash(key)), err)
	}
	for folder := path.Dir(key); folder != "."; folder = path.Dir(folder) {
		if !isFolder(root, folder) || root.Remove(folder) != nil {
			break // it is an object, or others are in it
		}
	}
	return nil
}
