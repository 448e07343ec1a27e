package compare

import (
	"strings"
	"testing"
	"time"
)

// TestFaults: a process that is killed ends the others, and the row says which it was. One that stands still is taken for dead by the
// others, who say so rather than that they were interrupted: by two, or by the half that has the lowest rank, which is worker 0's.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out of -short")
	}
	p := small(t, byProcess(), digits(), "server-bsp", "allreduce")
	p.Workers, p.Faults = []int{2}, true
	p.fault = faultTimes{after: 200 * time.Millisecond, stop: 1500 * time.Millisecond, hang: 20 * time.Second}
	r := run(t, p)
	if len(r.Faults) != 6 {
		t.Fatalf("%d faults; want a kill and a stop of a worker in both rows, and of the server", len(r.Faults))
	}
	if f := r.Faults[0]; strings.Contains(f.Error, "not permitted") || strings.Contains(f.Error, "this system has no") {
		t.Logf("not run here: %s", f.Error)
		return
	}
	for _, f := range r.Faults {
		if f.Error != "" {
			t.Errorf("%+v", f)
			continue
		}
		switch f.Signal {
		case "kill":
			// Whose end is heard first is a race: that of the process, or of a link to it. Either names it.
			if !f.Ended || f.Outcome != "the others end" || !strings.Contains(f.Said, "was killed") && !strings.Contains(f.Said, "lost") {
				t.Errorf("%+v", f)
			}
		default:
			if f.Outcome != "ends with an error" || f.Others != "gave it up" || strings.Contains(f.Said, "interrupted") || strings.Contains(f.Said, "did not end") {
				t.Errorf("%+v", f)
			}
		}
		t.Logf("%s %s %s: %s; the others %s; %s", f.System, f.Signal, f.Role, f.Outcome, f.Others, f.Said)
	}
}
