package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLearns: with nothing but a model and data, the command learns what can be expected of it. Where the sample data is not beside the
// project, the same commands run on generated data of its shape, and say so.
func TestLearns(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for seconds: left out of -short")
	}
	samples, err := filepath.Abs("../../shared/data")
	if err != nil {
		t.Fatal(err)
	}
	_, there := os.Stat(samples) // nil where the samples are
	for _, c := range []struct {
		model, data string
		want        map[string]float64
	}{
		{"softmax", "mnist10k", map[string]float64{"test.accuracy": 0.90}},
		{"mlp:100", "mnist10k", map[string]float64{"test.accuracy": 0.94}},
		{"cnn", "mnist10k", map[string]float64{"test.accuracy": 0.97}},
		{"logistic", "a9a", map[string]float64{"test.accuracy": 0.845, "test.auc": 0.89}},
	} {
		for _, folder := range []string{samples, "nowhere"} {
			if folder == "nowhere" && (there == nil || c.model != "softmax" && c.model != "mlp:100") {
				continue // without the samples all of them are generated already; with them, two show that such data stands in
			}
			got := runIn(t, t.TempDir(), "train", c.model, "--data", filepath.Join(folder, c.data), "--json")
			if got.code != Done {
				t.Errorf("%s on %s: exits with %d: %s", c.model, c.data, got.code, got.err)
				continue
			}
			if folder == "nowhere" && !strings.Contains(got.out, "is not on this machine: generated data") {
				t.Errorf("%s on %s: does not say that the data is generated:\n%s", c.model, c.data, got.out)
			}
			lines := strings.Split(strings.TrimSpace(got.out), "\n")
			var result map[string]any
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &result); err != nil {
				t.Fatal(err)
			}
			for name, want := range c.want {
				if have, ok := result[name].(float64); !ok || have < want {
					t.Errorf("%s on %s: %s is %v, want %v", c.model, filepath.Join(folder, c.data), name, result[name], want)
				}
			}
		}
	}
}
