package app

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
)

// TestMemoryForRows: a file that does not fit the memory that there is for rows is streamed.
func TestMemoryForRows(t *testing.T) {
	dir := t.TempDir()
	var rows strings.Builder
	rows.WriteString("x,label\n")
	for i := range 2000 {
		fmt.Fprintf(&rows, "%d,%d\n", i, i%2)
	}
	write(t, dir, "a.csv", rows.String())
	s := newSession(io.Discard, io.Discard, Options{})
	for _, c := range []struct {
		budget   int64
		streamed bool
	}{{0, false}, {4096, true}} {
		s.budget = c.budget
		splits, err := s.open(t.Context(), trivium.Data{Source: filepath.Join(dir, "a.csv")}, data.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(splits.Notes, "\n"); strings.Contains(notes, "is streamed") != c.streamed {
			t.Errorf("budget %d: streamed: want %v: %q", c.budget, c.streamed, notes)
		}
		if err := splits.Close(); err != nil {
			t.Error(err)
		}
	}
}
