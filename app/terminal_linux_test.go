package app

import (
	"bytes"
	"os"
	"testing"
)

// TestTerminal: only on a terminal that can be drawn on is anything drawn, whichever verb it is that would.
func TestTerminal(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("not run here: %v", err)
	}
	defer master.Close()
	screen := &output{w: master} // as Run hands it to verbs
	follow := statusVerb{Follow: true}
	for _, c := range []struct {
		term string
		want bool
	}{{"xterm", true}, {"dumb", false}} {
		t.Setenv("TERM", c.term)
		if got := newProgress(screen, false, false, os.Getenv).style == bar; got != c.want {
			t.Errorf("%s: train draws: %v", c.term, got)
		}
		if got := newComparing(screen, false).live; got != c.want {
			t.Errorf("%s: compare draws: %v", c.term, got)
		}
		if got := follow.redraws(screen); got != c.want {
			t.Errorf("%s: status draws: %v", c.term, got)
		}
	}
	t.Setenv("TERM", "xterm")
	if (&statusVerb{}).redraws(screen) || (&statusVerb{Follow: true, JSON: true}).redraws(screen) || follow.redraws(new(bytes.Buffer)) {
		t.Error("status draws what is not followed, is JSON or goes elsewhere")
	}
}
