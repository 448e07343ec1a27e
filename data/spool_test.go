package data

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/trivium-ml/trivium"
)

// TestResidentRowsNeedNoFile: once the rows of a file are in memory it is closed, with what was unpacked of it; one whose rows are streamed
// stays open until the splits are closed.
func TestResidentRowsNeedNoFile(t *testing.T) {
	dir := t.TempDir()
	var rows bytes.Buffer
	rows.WriteString("x,label\n")
	for i := range 40 {
		fmt.Fprintf(&rows, "%d,%d\n", i, i%2)
	}
	train, test := write(t, dir, "a.csv.gz", rows.Bytes()), write(t, dir, "b.csv", rows.Bytes())
	for _, c := range []struct {
		budget int64
		held   int
	}{{0, 0}, {100, 2}} {
		s := open(t, trivium.Data{Source: train, Test: test}, Options{Budget: c.budget})
		if len(s.files) != c.held {
			t.Errorf("budget %d: %d files are held, want %d", c.budget, len(s.files), c.held)
		}
		for _, ds := range []Dataset{s.Train, s.Test} {
			var b trivium.Batch
			if err := ds.Read(t.Context(), &b, 30, 34); err != nil || b.Rows != 4 || b.Inputs[0].Values[1] == b.Inputs[0].Values[0] {
				t.Errorf("budget %d: %d rows, %v, %v", c.budget, b.Rows, b.Inputs, err)
			}
		}
	}
}

// TestSpool: what is unpacked goes to a temporary file beyond spoolBytes, and, where there is none to be had, from spoolMost on nowhere; until
// it does, it is in memory once.
func TestSpool(t *testing.T) {
	piece := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	fill := func(s *spool, pieces int) (err error) {
		for i := 0; i < pieces && err == nil; i++ {
			_, err = s.Write(piece)
		}
		return err
	}
	check := func(s *spool, spilled bool, pieces int64) {
		t.Helper()
		if (s.tmp != nil) != spilled || s.n != pieces<<20 || cap(s.head) > spoolMost {
			t.Fatalf("in a file: %v; %d bytes of %d, room for %d", s.tmp != nil, s.n, pieces<<20, cap(s.head))
		}
		f := s.file()
		if p, err := f.read(nil, pieces<<20-8, pieces<<20); err != nil || string(p) != "89abcdef" {
			t.Errorf("ends with %q, %v", p, err)
		}
		if err := f.close(); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		pieces  int
		spilled bool
	}{{1, false}, {spoolBytes >> 20, false}, {spoolBytes>>20 + 1, true}} {
		s := newSpool("a")
		if err := fill(s, c.pieces); err != nil {
			t.Fatal(err)
		}
		check(s, c.spilled, int64(c.pieces))
	}
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} { // of Unix, of Windows
		t.Setenv(name, filepath.Join(t.TempDir(), "none"))
	}
	s := newSpool("a")
	if err := fill(s, 64); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(piece[:1]); err == nil {
		t.Error("more than spoolMost is in memory")
	}
	check(s, false, 64)
}
