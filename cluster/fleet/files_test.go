package fleet

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPack: what is packed comes out again, whatever is no plain file is left out.
func TestPack(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "made")
	want := map[string]string{"a": "1", "b/c/d": strings.Repeat("x", 1<<17), "empty": ""}
	for name, content := range want {
		if err := os.MkdirAll(filepath.Join(from, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a", filepath.Join(from, "link")); err != nil {
		t.Logf("no link here: %v", err)
	}
	var b bytes.Buffer
	if err := Pack(&b, from); err != nil {
		t.Fatal(err)
	}
	if err := Unpack(&b, to); err != nil {
		t.Fatal(err)
	}
	found := 0
	err := filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		found++
		name, _ := filepath.Rel(to, path)
		got, err := os.ReadFile(path)
		if string(got) != want[filepath.ToSlash(name)] {
			t.Errorf("%s holds %d bytes", name, len(got))
		}
		return err
	})
	if err != nil || found != len(want) {
		t.Errorf("%d files, want %d: %v", found, len(want), err)
	}
}

// archive is a tar file of one entry.
func archive(h tar.Header, content string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	h.Size = int64(len(content))
	_ = w.WriteHeader(&h)
	_, _ = w.Write([]byte(content))
	_ = w.Close()
	return b.Bytes()
}

func TestUnpackRefuses(t *testing.T) {
	for name, p := range map[string][]byte{
		"above":    archive(tar.Header{Name: "../x", Typeflag: tar.TypeReg}, "x"),
		"absolute": archive(tar.Header{Name: "/x", Typeflag: tar.TypeReg}, "x"),
		"link":     archive(tar.Header{Name: "x", Typeflag: tar.TypeSymlink, Linkname: "/"}, ""),
		"short":    archive(tar.Header{Name: "x", Typeflag: tar.TypeReg}, strings.Repeat("x", 2000))[:1024],
		"garbage":  bytes.Repeat([]byte("x"), 1024),
	} {
		above := t.TempDir()
		if err := Unpack(bytes.NewReader(p), filepath.Join(above, "made")); err == nil {
			t.Errorf("%s: unpacked", name)
		}
		if _, err := os.Lstat(filepath.Join(above, "x")); err == nil {
			t.Errorf("%s: a file lies beside the folder", name)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(archive(tar.Header{Name: "a/b", Typeflag: tar.TypeReg}, "x"))
	f.Add(archive(tar.Header{Name: "../b", Typeflag: tar.TypeReg}, "x"))
	f.Fuzz(func(t *testing.T, p []byte) {
		above := t.TempDir()
		_ = Unpack(bytes.NewReader(p), filepath.Join(above, "made"))
		if beside, err := os.ReadDir(above); err != nil || len(beside) != 1 {
			t.Errorf("beside the folder: %v, %v", beside, err)
		}
	})
}
