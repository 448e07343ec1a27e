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

// TestThreatOfNoDefaults: of a system that has a row with untouched defaults, the threats say where that was not measured, and of one that has
// none that there is none.
func TestThreatOfNoDefaults(t *testing.T) {
	r := &Report{Tables: []*Table{{}}}
	for _, name := range []string{"mxnet-sync", "mxnet-async", "horovod", "horovod-default", "tensorflow-mirrored", "pmls-ssp3-clock10"} {
		r.Tables[0].Rows = append(r.Tables[0].Rows, &Row{System: name, Peer: true, Trials: []Repeat{{Repeat: 1}}})
	}
	r.threats()
	const want = "Untouched defaults were not measured: mxnet-sync, pmls-ssp3-clock10. There is no row with untouched defaults of mxnet-async, or of tensorflow-mirrored: what its settings do is not shown. What was tried"
	if n := strings.Count(strings.Join(r.Threats, "\n"), want); n != 1 {
		t.Errorf("said %d times among %q", n, r.Threats)
	}
}
