package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPathOfTheMachines: a path that is not shipped is the machines' to open. That this one has no set of that name means nothing.
func TestPathOfTheMachines(t *testing.T) {
	dir := t.TempDir()
	var at struct{ Addr, Token string }
	up, _, down := background(t, dir, "up", "--listen", "127.0.0.1:0", "--json")
	defer down()
	if err := json.Unmarshal([]byte(up.await(t, "}\n")), &at); err != nil {
		t.Fatal(err)
	}
	words, _, leave := background(t, dir, "train", "softmax", "--data", "/mnt/elsewhere/mnist", "--on", at.Addr, "--token", at.Token)
	words.await(t, "job-1 is queued")
	leave()
	jobs, err := os.ReadFile(filepath.Join(dir, "cluster", "jobs.json"))
	if err != nil || !strings.Contains(string(jobs), "/mnt/elsewhere/mnist") {
		t.Errorf("the job is to read other data than was asked for: %s, %v", jobs, err)
	}
}
