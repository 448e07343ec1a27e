package compare

import (
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/internal/quantity"
)

// TestCallsOfARole: a role's calls are those of its processes, and not known where one's are not, whichever comes first.
func TestCallsOfARole(t *testing.T) {
	w := &warmUp{first: map[int]Calls{1: {10, 5, 0}, 2: {20, 6, 0}}, last: map[int]Calls{1: {110, 45, 0}, 2: {220, 66, 0}, 3: {7, 7, 0}}, updates: 9}
	for _, c := range []struct {
		pids []int
		want Calls
	}{{[]int{1, 2}, Calls{300, 100, 9}}, {[]int{1, 3, 2}, Calls{}}, {[]int{3, 1}, Calls{}}} {
		var u Use
		for _, pid := range c.pids {
			u.call(w.of(Process{PID: pid}))
		}
		if known := u.Calls != nil; known != (c.want != Calls{}) || known == (u.CallsUnknown != "") || known && *u.Calls != c.want {
			t.Errorf("%v: %+v (%s), want %+v", c.pids, u.Calls, u.CallsUnknown, c.want)
		}
	}
	w.updates = 0
	if n, why := w.of(Process{PID: 1}); why == "" {
		t.Errorf("of no updates there are %+v", n)
	}
	w.why = "not permitted"
	if _, why := w.of(Process{PID: 1}); why != w.why {
		t.Errorf("where counting is not permitted it says %q", why)
	}
}

// TestCallsOfAnUpdate: system time and calls are divided by the updates of the window, and of the warm-up, and shown by role; where they were not counted the columns
// say so, and why. They are the median of the trials in which they were.
func TestCallsOfAnUpdate(t *testing.T) {
	r := &Result{Updates: 100, Samples: 30_000, Window: 2}
	known := Use{Processes: 1, System: 0.5, Calls: &Calls{1000, 350, 50}}.per(r)
	if known.SystemUpdate != 0.005 || known.CallsUpdate != 20 || known.TransfersUpdate != 7 || known.CallsUnknown != "" {
		t.Errorf("%+v", known)
	}
	old := Use{Processes: 1, System: 0.5}.per(r)
	refused := Use{Processes: 1, System: 0.5, CallsUnknown: "not permitted"}.per(r)
	if old.CallsUnknown == "" || refused.CallsUnknown != "not permitted" {
		t.Errorf("not counted: %q, %q", old.CallsUnknown, refused.CallsUnknown)
	}
	if u := medianUse([]PerUse{refused, known, refused}); u.CallsUnknown != "" || u.CallsUpdate != 20 || u.TransfersUpdate != 7 || u.SystemUpdate != 0.005 {
		t.Errorf("counted in one trial: %+v", u)
	}
	if u := medianUse([]PerUse{refused, refused}); u.CallsUnknown == "" || u.SystemUpdate != 0.005 {
		t.Errorf("counted in none: %+v", u)
	}
	cells := func(u PerUse) []string {
		var words []string
		for _, c := range (&Table{Rows: []*Row{{System: "x", Use: map[Role]PerUse{ServerRole: u}}}}).useTable().Rows[0].Cells[11:] {
			if c.Value != nil {
				c.Missing = quantity.Short(*c.Value)
			}
			words = append(words, c.Missing)
		}
		return words
	}
	if got := strings.Join(cells(known), " "); got != "0.005 20 7" {
		t.Errorf("the columns say %q", got)
	}
	if got := strings.Join(cells(refused), ", "); got != "0.005, not measured: not permitted, not measured: not permitted" {
		t.Errorf("the columns say %q", got)
	}
}
