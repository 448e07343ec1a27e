package train_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/train"
)

// TestBudgetOfRows: the memory for rows that the environment allows is what the data is opened with.
func TestBudgetOfRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(path, []byte("label,a\n0,1\n1,\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	job := &trivium.Job{Data: trivium.Data{Source: path, Missing: "drop"}}
	for budget, fits := range map[int64]bool{0: true, 1: false} {
		s, err := train.OpenData(t.Context(), train.Env{Budget: budget}, job)
		if (err == nil) != fits || err != nil && !strings.Contains(err.Error(), "needs the table in memory") {
			t.Errorf("budget %d: %v", budget, err)
		}
		if s != nil {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
