package data

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
)

// TestUnknownCategories: what no training row had counts as none, and the splits say so, whether rows are in memory or streamed.
func TestUnknownCategories(t *testing.T) {
	dir := t.TempDir()
	train := write(t, dir, "a.csv", []byte("label,city,job\n0,Oslo,x\n1,Rome,y\n0,Oslo,y\n"))
	tr := open(t, trivium.Data{Source: train, Train: ":", Categorical: []string{"city", "job"}}, Options{}).Transform
	type row struct {
		Label int32  `parquet:"label"`
		City  string `parquet:"city"`
		Job   string `parquet:"job"`
	}
	csv := write(t, dir, "b.csv", []byte("label,city,job\n0,Oslo,x\n1,ROME,y\n"+strings.Repeat("1,OSLO,y\n", 2*blockRows)))
	rows := append([]row{{0, "Oslo", "x"}}, slices.Repeat([]row{{1, "OSLO", "y"}}, 10)...)
	for path, want := range map[string]string{
		csv: csv + `: column "city" has categories that no training row had, in 1025 of 1026 rows, first in line 3: they count as none`,
		write(t, dir, "b.parquet", parquetBytes(t, rows)): filepath.Join(dir, "b.parquet") + `: column "city" has categories that no training row had, in 10 of 11 rows, ` +
			`first in row 1: they count as none`,
		train: "",
	} {
		for _, budget := range []int64{0, 64} {
			s := open(t, trivium.Data{Source: path, Train: ":"}, Options{Transform: tr, Budget: budget})
			if got := strings.Join(s.Cautions, "\n"); got != want || want != "" && !slices.Contains(s.Notes, want) {
				t.Errorf("budget %d: %q and %q, want %q", budget, got, s.Notes, want)
			}
		}
	}
}
