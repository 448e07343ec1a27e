package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// check fails if the file at path has other contents, or something lies beside it.
func check(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("the file has %q, want %q: %v", got, want, err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("in its folder are %v, want it alone: %v", left, err)
	}
}

// TestWrite: a file is made and replaced, and under its name there is the old one until all of the new is written.
func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.txt")
	if err := WriteBytes(path, []byte("old"), Options{}); err != nil {
		t.Fatal(err)
	}
	check(t, path, "old")
	for _, o := range []Options{{}, {Unsynced: true}} {
		err := Write(path, func(f *os.File) error {
			_, err := f.WriteString("n")
			if got, e := os.ReadFile(path); e != nil || string(got) != "old" {
				t.Errorf("halfway the file has %q: %v", got, e)
			}
			_, e := f.WriteString("ew")
			return errors.Join(err, e)
		}, o)
		if err != nil {
			t.Fatal(err)
		}
		check(t, path, "new")
		if err := WriteBytes(path, []byte("old"), o); err != nil {
			t.Fatal(err)
		}
		check(t, path, "old")
	}
}

// TestWriteFails: where the contents cannot be written, what was there stays, the error is theirs, and nothing is left behind.
func TestWriteFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.txt")
	if err := WriteBytes(path, []byte("old"), Options{}); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for _, o := range []Options{{}, {New: true}, {Unsynced: true}} {
		err := Write(path, func(f *os.File) error {
			_, err := f.WriteString("new")
			return errors.Join(err, broken)
		}, o)
		if !errors.Is(err, broken) {
			t.Errorf("%+v: error %v", o, err)
		}
		check(t, path, "old")
	}
	if err := WriteBytes(filepath.Join(path+".d", "y.txt"), nil, Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a folder that is not there: error %v", err)
	}
	folder := filepath.Join(t.TempDir(), "folder")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(filepath.Join(folder, "y.txt"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := WriteBytes(folder, []byte("new"), Options{}); err == nil {
		t.Error("a folder with a file in it was replaced")
	}
	if left, err := os.ReadDir(filepath.Dir(folder)); err != nil || len(left) != 1 || !left[0].IsDir() {
		t.Errorf("beside the folder are %v: %v", left, err)
	}
}

// TestNew: of two files of one name the first stays.
func TestNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.txt")
	if err := WriteBytes(path, []byte("first"), Options{New: true}); err != nil {
		t.Fatal(err)
	}
	check(t, path, "first")
	if err := WriteBytes(path, []byte("second"), Options{New: true}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("error %v, want that it is there", err)
	}
	check(t, path, "first")
}

// TestMode: a file is its owner's alone, unless it is said to be others' too.
func TestMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows has no such permissions")
	}
	dir := t.TempDir()
	was := filepath.Join(dir, "was") // what the umask leaves of it
	if err := os.WriteFile(was, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(was)
	if err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[fs.FileMode]fs.FileMode{0: 0o600, 0o600: 0o600, 0o666: st.Mode().Perm()} {
		path := filepath.Join(dir, "x.txt")
		for range 2 { // made, then replaced
			if err := WriteBytes(path, nil, Options{Mode: mode}); err != nil {
				t.Fatal(err)
			}
			if st, err := os.Stat(path); err != nil {
				t.Error(err)
			} else if st.Mode().Perm() != want {
				t.Errorf("mode %v: it has %v, want %v", mode, st.Mode().Perm(), want)
			}
		}
	}
}
