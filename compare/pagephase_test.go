package compare

import "testing"

// TestWaitedIsOne: the same phases are the same share, to the last bit: a page and its CSV are the same bytes whenever they are made.
func TestWaitedIsOne(t *testing.T) {
	phases := map[string]float64{}
	for _, name := range phaseOrder {
		phases[name] = 1
	}
	phases["load"] = 1e16 // beside which a single 1 is lost, and eight together are not
	first := waited(phases)
	for range 1000 {
		if x := waited(phases); x != first {
			t.Fatalf("%v, and %v before", x, first)
		}
	}
}
