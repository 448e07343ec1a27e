package processes

import (
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/transport"
)

// TestHearsay: who is lost is told by whoever reports it first, then by a worker, and never by one that was itself ended for that.
func TestHearsay(t *testing.T) {
	job := func() *Driver {
		d := &Driver{Workers: 3, Servers: 1, stopped: true}
		for i, n := range []transport.Name{{Role: "worker", ID: "0"}, {Role: "worker", ID: "1"}, {Role: "worker", ID: "2"}, {Role: "server", ID: "0"}} {
			d.workers = append(d.workers, &part{index: i, serves: n.Role == "server", name: n})
		}
		return d
	}
	type report struct {
		by   int
		lost string
	}
	for _, c := range []struct {
		name    string
		reports []report
		want    int
		text    string // the report that is kept
		hearsay bool   // the end of the process that is named may say more
	}{
		{"a server alone", []report{{3, "worker/1"}}, 1, "3: worker/1", true},
		{"a worker knows more than a server", []report{{3, "worker/1"}, {2, "worker/1"}}, 1, "2: worker/1", true},
		{"the first worker is believed", []report{{0, "worker/1"}, {2, "server/0"}}, 1, "0: worker/1", true},
		{"a server after a worker", []report{{0, "worker/1"}, {3, "worker/2"}}, 1, "0: worker/1", true},
		{"a worker that was ended by the driver", []report{{3, "worker/1"}, {2, "driver/0"}}, 1, "3: worker/1", true},
		{"a worker that lost the driver", []report{{2, "driver/0"}}, 2, "2: driver/0", false},
		{"and another after it", []report{{2, "driver/0"}, {0, "worker/2"}}, 2, "2: driver/0", false},
	} {
		d := job()
		for _, r := range c.reports {
			d.finished(t.Context(), d.workers[r.by], &result{Reason: trivium.Failed, Fault: faultUnreachable, Lost: r.lost, Error: string(rune('0'+r.by)) + ": " + r.lost})
		}
		if d.lost == nil || d.lost.Index != c.want || d.lost.Text != c.text || d.hearsay != c.hearsay || !d.lost.Lost {
			t.Errorf("%s: %+v, hearsay %v", c.name, d.lost, d.hearsay)
		}
	}
}
