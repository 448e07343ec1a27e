package fleet

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFullLog: what a job prints is kept up to a bound, and the log says so once. The job does not notice.
func TestFullLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), logName)
	l, err := newJobLog(path)
	if err != nil {
		t.Fatal(err)
	}
	line := append(bytes.Repeat([]byte{'x'}, 1<<20-1), '\n')
	for range maxLog>>20 + 3 {
		if n, err := l.Write(line); n != len(line) || err != nil {
			t.Fatalf("%d bytes are written, %v", n, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if end := string(text[maxLog:]); !strings.HasPrefix(end, "this log is full: of what the job prints, 64 MiB are kept") || strings.Count(end, "\n") != 1 {
		t.Errorf("it ends with %q", end)
	}
}
