package server

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
)

// TestCutStoreNewest: the lanes of a server share its store. One that still writes a snapshot that was put off does not end what another
// has written of the next.
func TestCutStoreNewest(t *testing.T) {
	var s cutStore
	has := func(key string) bool {
		t.Helper()
		r, err := s.Get(t.Context(), key, 0, -1)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil && r.Close() == nil
	}
	for _, key := range []string{"ps-5.1/a", "ps-9.2/b", "ps-5.1/c", "ps-9.2/d"} {
		if err := s.Put(t.Context(), key, strings.NewReader(key)); err != nil {
			t.Fatal(err)
		}
	}
	for key, want := range map[string]bool{"ps-5.1/a": false, "ps-9.2/b": true, "ps-5.1/c": false, "ps-9.2/d": true} {
		if has(key) != want {
			t.Errorf("%s is there: %t, want %t", key, !want, want)
		}
	}
	if err := s.Put(t.Context(), "model", strings.NewReader("")); err == nil || !strings.Contains(err.Error(), `"model"`) {
		t.Errorf("an object of no snapshot: %v", err)
	}
}
