//go:build unix

package compare

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFilesAreReadable: a report can be read by others than who made it, such as the web server that shows it.
func TestFilesAreReadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.html")
	if err := writeFile(path, func(f *os.File) error { _, err := f.WriteString("page"); return err }); err != nil {
		t.Fatal(err)
	}
	s, err := os.Stat(path)
	if err != nil || s.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", s.Mode().Perm(), err)
	}
}
