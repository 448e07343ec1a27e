package app

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
)

// TestJobFileFromAPipe: a job may come through a pipe, and what comes is bounded, though a pipe has no size.
func TestJobFileFromAPipe(t *testing.T) {
	for text, want := range map[string]string{
		"model: mlp:8\n": "",
		strings.Repeat("# another line of it\n", maxJobBytes/10): "more than 1048576 bytes",
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		written := make(chan struct{})
		go func() {
			defer close(written)
			_, _ = w.WriteString(text) // which is not read to its end
			_ = w.Close()
		}()
		_, err = readJobFile(fmt.Sprintf("/dev/fd/%d", r.Fd()), "trivium", new(trivium.Job), given{})
		_ = r.Close()
		<-written
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("of %d bytes: %v, want %q", len(text), err, want)
		}
	}
}
