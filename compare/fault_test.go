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
	for name, faults := range map[string]int{"server-bsp": 4, "allreduce": 2} { // a kill and a stop of a worker, and of the server
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			testFaults(t, name, faults)
		})
	}
}

func testFaults(t *testing.T, name string, faults int) {
	p := small(t, byProcess(), digits(), name)
	p.Workers, p.Faults = []int{2}, true
	// A quarter of a second is enough to be taken for dead, and 5 s on a machine whose noise has made them patient; see cluster.Policy.
	p.fault = faultTimes{after: 200 * time.Millisecond, stop: 6 * time.Second, hang: time.Minute}
	r := run(t, p)
	if len(r.Faults) != faults {
		t.Fatalf("%d faults, want %d", len(r.Faults), faults)
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
