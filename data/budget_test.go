package data

import "testing"

// TestBudgetOf: half of what there is, at most 4 GiB; of what is not known nothing is said.
func TestBudgetOf(t *testing.T) {
	for memory, want := range map[int64]int64{0: 0, 64 << 20: 32 << 20, 2 << 30: 1 << 30, 64 << 30: 4 << 30} {
		if got := BudgetOf(memory); got != want {
			t.Errorf("of %d bytes: %d, want %d", memory, got, want)
		}
	}
}
