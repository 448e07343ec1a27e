//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package app

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/trivium-ml/trivium/cluster/fleet"
)

// TestFetchAfterAKilledOne: what a fetch has left that was killed goes with the next one, and what one has that is under way stays.
func TestFetchAfterAKilledOne(t *testing.T) {
	out, empty := t.TempDir(), t.TempDir()
	nothing := func(w http.ResponseWriter, _ *http.Request) {
		if err := fleet.Pack(w, empty); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	killed := filepath.Join(out, ".fetch-1")
	if err := os.MkdirAll(filepath.Join(killed, jobRuns, "half"), 0o755); err != nil {
		t.Fatal(err)
	}
	client := ended(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := os.Lstat(killed); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("what a killed one left: %v", err)
		}
		if _, err := fetchFiles(t.Context(), ended(t, nothing), out, "job-1"); err != nil { // beside this one
			t.Error(err)
		}
		if left, err := os.ReadDir(out); err != nil || len(left) != 1 {
			t.Errorf("while one fetches there are %v, want its folder: %v", left, err)
		}
		nothing(w, r)
	})
	if _, err := fetchFiles(t.Context(), client, out, "job-1"); err != nil {
		t.Error(err)
	}
}
