package fleet

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// maxFile bounds one file of an archive.
const maxFile = 1 << 40

// Pack writes the files below dir as a tar archive, with names relative to it. What is no plain file is left out.
func Pack(w io.Writer, dir string) error {
	t := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return addFile(t, path, filepath.ToSlash(name))
	})
	return errors.Join(err, t.Close())
}

// addFile adds as many bytes as the file had when it was opened: a log may grow meanwhile.
func addFile(t *tar.Writer, path, name string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: info.Size(), ModTime: info.ModTime(), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err = io.CopyN(t, f, info.Size())
	return err
}

// Unpack writes the files of an archive that Pack made below dir, which is made. A name that leads out of dir is refused.
func Unpack(r io.Reader, dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := extract(root, h, t); err != nil {
			return fmt.Errorf("the file %s: %w", h.Name, err)
		}
	}
}

func extract(root *os.Root, h *tar.Header, r io.Reader) error {
	if h.Typeflag != tar.TypeReg || h.Size > maxFile {
		return fmt.Errorf("it is no plain file of at most %d bytes", int64(maxFile))
	}
	if err := root.MkdirAll(filepath.Dir(filepath.FromSlash(h.Name)), 0o777); err != nil {
		return err
	}
	f, err := root.Create(filepath.FromSlash(h.Name))
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
