package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// TestDoors: of many newcomers each knocks at the oldest alone, which knock at all, and at more as soon as those are silent.
func TestDoors(t *testing.T) {
	const many = 40
	knocks := func(self int, heard ...int) int {
		m, err := NewMachine(Member{Name: name(self)}, Policy{StartWorkers: many, MaxWorkers: many, LeaseTTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		m.Step(0, protocol.Start{})
		for i := range many {
			m.setPresence(presence{Member{Name: name(i)}, 1}, int64(1+i))
		}
		if m.now = time.Hour; heard == nil {
			m.now = time.Second // all have come of late
		}
		for _, i := range heard {
			m.knocked(name(i), &knock{})
		}
		m.out = nil
		m.knock()
		return len(m.out)
	}
	for _, c := range []struct {
		what  string
		got   int
		wants int
	}{
		{"the oldest", knocks(0), many - 1},
		{"a decider", knocks(3), many - 1},
		{"another", knocks(20), deciders},
		{"one that hears the deciders", knocks(20, 0, 1, 2, 3), deciders},
		{"one for which two of them are silent", knocks(20, 0, 3, 7, 8, 9), 9},
		{"one that hears nobody older", knocks(20, 21, 22), many - 1},
	} {
		if c.got != c.wants {
			t.Errorf("%s knocks at %d doors, want %d", c.what, c.got, c.wants)
		}
	}
}

// TestMemberKnocks: the knock of a member that has not heard yet that it is let in makes no newcomer of it again, which each message would
// have to look at.
func TestMemberKnocks(t *testing.T) {
	m := restful(t, 3)
	m.Step(m.now, protocol.Message{From: name(1), Body: &knock{}})
	if slices.ContainsFunc(m.present, func(p presentState) bool { return p.knock }) {
		t.Errorf("newcomers are %+v", m.present)
	}
	if len(m.out) == 0 {
		t.Error("it is not told of the view")
	}
}

// TestAwayIsSpared: the longer the store does not answer, the less it is asked, and yet once in a second.
func TestAwayIsSpared(t *testing.T) {
	m := restful(t, 1)
	asked := func(from, until time.Duration) (n int) {
		for now := from; now < until; now += m.policy.Heartbeat {
			for _, c := range m.Step(now, protocol.Timer{ID: tickTimer}) {
				if call, ok := c.(protocol.MetaCall); ok && call.Op == protocol.MetaGet && call.Key == m.keys.view() {
					n++
				}
			}
		}
		return n
	}
	m.failed(storeCall{})
	if n := asked(m.now, m.now+time.Second); n < 7 || n > 10 {
		t.Errorf("%d questions in the first second, want some 9", n)
	}
	if n := asked(m.now+20*time.Second, m.now+30*time.Second); n < 9 || n > 11 {
		t.Errorf("%d questions in ten seconds after 20 s, want some 10", n)
	}
}
