package rundir

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/trivium-ml/trivium/observe"
)

// TestDiskFullForAWhile: where there is room for half an event, that one is lost, and none that comes when there is room again.
func TestDiskFullForAWhile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r1")
	w, err := Create(dir, someHead())
	if err != nil {
		t.Fatal(err)
	}
	event := func(text string) error {
		return w.Event(observe.Event{Level: observe.Info, Kind: "k", Step: -1, Text: text})
	}
	if err := event("before"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, eventsFile))
	if err != nil {
		t.Fatal(err)
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(info.Size()) + 20, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	torn, none := event("torn"), event("no room at all")
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if torn == nil || none == nil {
		t.Errorf("beyond the end of the disk: %v, %v", torn, none)
	}
	for _, text := range []string{"again", "and again"} {
		if err := event(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, e := range r.Events {
		texts = append(texts, e.Text)
	}
	if want := []string{"before", "again", "and again"}; !slices.Equal(texts, want) || len(r.Damage) != 1 || r.Damage[0].Bytes != 21 {
		t.Errorf("events %q, want %q; damage %v, want the 20 bytes that there was room for and their line's end", texts, want, r.Damage)
	}
}
