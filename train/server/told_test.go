package server

import (
	"testing"

	"github.com/trivium-ml/trivium/ps"
)

// TestTableText: a table's counters in words.
func TestTableText(t *testing.T) {
	few := ps.TableCounters{Table: "a", Reads: 4, Hits: 3, Rounds: 2, BytesSent: 401, BytesReceived: 7}
	few.Stale[0], few.Stale[3] = 2, 2
	far := ps.TableCounters{Table: "b", Reads: 2}
	far.Stale[0], far.Stale[ps.MaxStale] = 1, 1
	for want, n := range map[string]ps.TableCounters{
		`table "a": 4 reads, 75.0 % of them from the cache, lacking 1.50 rounds on average and 3 at most; 2 rounds of 200 bytes; 7 bytes of cells received`:    few,
		`table "b": 2 reads, 0.0 % of them from the cache, lacking 8.00 rounds or more on average and 16 or more at most; 0 rounds; 0 bytes of cells received`: far,
		`table "c": 0 reads; 1 rounds of 8 bytes; 0 bytes of cells received`:                                                                                   {Table: "c", Rounds: 1, BytesSent: 8},
	} {
		if got := tableText(&n); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
