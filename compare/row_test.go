package compare

import "testing"

// TestPlacesLookedAt: a row that did not reach the target says up to where it was looked for, which is before the epochs end within which it
// would count.
func TestPlacesLookedAt(t *testing.T) {
	table := &Table{Target: Target{"train", "loss", 0.2, false}, Cap: 25, Rows: []*Row{{System: "server-ssp3", Mode: Stale(3)}}}
	for repeat, last := range []int64{205, 206, 203} {
		table.add(0, repeat+1, Result{SamplesPerSec: 10, Updates: 210, Best: 0.3, Curve: []Point{{Update: 36, Value: 0.4}, {Update: last, Value: 0.3}}})
	}
	table.add(0, 4, Result{SamplesPerSec: 10, Updates: 210, Best: 0.2, Reached: true, Curve: []Point{{Update: 209, Value: 0.2}}})
	if x := table.Rows[0]; x.Ranked || x.Why != "not reached where it was looked for, up to update 206 (best 0.2)" {
		t.Errorf("not ranked: %q", x.Why)
	}
}
