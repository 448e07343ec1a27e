package report_test

import (
	"testing"

	"github.com/trivium-ml/trivium/observe/report"
)

// TestCount: one is not a plural, and large numbers are in groups.
func TestCount(t *testing.T) {
	for got, want := range map[string]string{
		report.Count(0, "row"):               "0 rows",
		report.Count(1, "class"):             "1 class",
		report.Count(uint64(2), "row"):       "2 rows",
		report.Count(int64(1234), "class"):   "1,234 classes",
		report.Count(1234567, "lost update"): "1,234,567 lost updates",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
