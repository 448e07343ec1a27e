package compare

import (
	"slices"
	"strings"
	"testing"
)

// TestThreatOfLoosePeers: another system's row whose workers go on while the clock stands still is named once; where there is none, nothing is
// said.
func TestThreatOfLoosePeers(t *testing.T) {
	rows := func(good int) []*Row {
		return []*Row{
			{System: "server-asp", Mode: Async, Workers: 3, Good: good}, {System: "mxnet-sync", Peer: true, Mode: Sync, Workers: 3, Good: good},
			{System: "mxnet-async", Peer: true, Mode: Async, Workers: 3, Good: good}, {System: "tensorflow-async", Peer: true, Mode: Async, Workers: 1, Good: good},
		}
	}
	for good, want := range map[int]int{0: 0, 7: 1} {
		r := &Report{Tables: []*Table{{Rows: rows(good)}, {Rows: rows(good)}}}
		r.threats()
		about := slices.DeleteFunc(slices.Clone(r.Threats), func(s string) bool { return !strings.Contains(s, "worker 0 and the clock stand still") })
		if len(about) != want || want > 0 && !strings.Contains(about[0], "for the losses of mxnet-async, worker 0") {
			t.Errorf("%d good trials: %q", good, about)
		}
	}
}
