package app

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDeleteNoRun: what is no run is neither listed nor deleted, though it holds a run.json.
func TestDeleteNoRun(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "runs", "other")
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, other, "run.json", "{}")
	write(t, other, "thesis.txt", "years")
	for _, name := range []string{"other", filepath.Join("runs", "other"), "last"} {
		if got := runIn(t, dir, "runs", "delete", name); got.code != Misused {
			t.Errorf("%s: exits with %d: %s%s", name, got.code, got.out, got.err)
		}
	}
	if got := runIn(t, dir, "runs"); got.code != Done || got.out != "no runs in runs\n" || got.err != "" {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}
	if text, err := os.ReadFile(filepath.Join(other, "thesis.txt")); string(text) != "years" {
		t.Errorf("%q, %v", text, err)
	}
}
