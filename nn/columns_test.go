package nn

import (
	"slices"
	"testing"

	"github.com/trivium-ml/trivium/draw"
)

// TestColumnParts: the parts of the columns are all of them, and have about as many entries, also where half of the entries are of one column.
func TestColumnParts(t *testing.T) {
	const columns, entries, parts = 1 << 20, 10_000, 4
	for name, column := range map[string]func(u float64) int32{
		"even":    func(u float64) int32 { return int32(u * columns) },
		"crowded": func(u float64) int32 { return int32(u * u * u * u * columns) },
		"heavy":   func(u float64) int32 { return int32(max(0, u-0.5) * columns) },
		"one":     func(float64) int32 { return columns - 1 },
	} {
		p := newColumnParts(columns, false)
		all := make([]int32, entries)
		for e := range all {
			all[e] = column(float64(draw.Unit(1, 2, uint64(e)))/2 + 0.5)
		}
		p.cut(all, parts)
		cuts := p.cuts
		if len(cuts) != parts+1 || cuts[0] != 0 || cuts[parts] != columns || !slices.IsSorted(cuts) {
			t.Errorf("%s: cut at %v of %d columns", name, cuts, columns)
			continue
		}
		if name == "heavy" || name == "one" {
			continue
		}
		for i := range parts {
			n := 0
			for _, c := range all {
				if cuts[i] <= int(c) && int(c) < cuts[i+1] {
					n++
				}
			}
			if n < entries/parts*8/10 || n > entries/parts*12/10 {
				t.Errorf("%s: part %d has %d of %d entries", name, i, n, entries)
			}
		}
	}
}
