package ps

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/sim"
)

// waitsOf lets three clients make rounds, each of which takes its time by cost, and returns whom each has waited for, to the millisecond.
func waitsOf(t *testing.T, s Spec, rounds int, read bool, cost func(p, c int) time.Duration) (waited [3]map[Name]time.Duration) {
	t.Helper()
	s.Name, s.Rows, s.Cols = "t", 1, 12
	o := simOptions{clients: 3, servers: 2, lanes: 2, min: 3, tables: []Spec{s}} // each lane has a part of the row
	j := newSimJob(sim.New(8, sim.Options{Link: sim.Link{Delay: time.Nanosecond}}), o)
	for p := range 3 {
		j.start(p, 0, func(w *Worker, sleep func(time.Duration)) error {
			tab, row := tableOf[float32](w, "t"), make([]float32, 12)
			for c := range rounds {
				if read {
					if _, err := tab.Get(bg, 0, row); err != nil {
						return err
					}
				}
				sleep(cost(p, c))
				if err := tab.Inc(0, int64(p), 1); err != nil {
					return err
				}
				if _, err := w.Clock(bg); err != nil {
					return err
				}
			}
			waited[p] = w.Waited()
			return w.Finish(bg)
		})
	}
	j.run(t, time.Hour)
	for p, by := range waited {
		if d := by[clientName(p)]; d > 0 {
			t.Errorf("%s: client %d waited %v for itself", modeName(s), p, d)
		}
		for n, d := range by {
			if by[n] = d.Round(time.Millisecond); by[n] == 0 { // the way of a message
				delete(by, n)
			}
		}
	}
	return waited
}

// waitsBy is what waitsOf is to return, by the recursion of TestCase8Stragglers: a round begins once all have ended the one so many before it,
// and who begins later than it could has waited for the last of them.
func waitsBy(rounds, before int, cost func(p, c int) time.Duration) (waited [3]map[Name]time.Duration) {
	var end [][3]time.Duration
	waited = [3]map[Name]time.Duration{{}, {}, {}}
	for c := range rounds {
		var now [3]time.Duration
		if c > 0 {
			now = end[c-1]
		}
		if c >= before {
			last, done := 0, end[c-before]
			for q := range 3 {
				if done[q] > done[last] {
					last = q
				}
			}
			for p := range 3 {
				if d := done[last] - now[p]; d > 0 {
					waited[p][clientName(last)] += d
					now[p] = done[last]
				}
			}
		}
		for p := range 3 {
			now[p] += cost(p, c)
		}
		end = append(end, now)
	}
	return waited
}

// TestWaited: what a worker waits in reads, or in Clock where it reads nothing, is told by the client that was the last to end the round that
// it waited for. One that is always slow has all of it; of those that are slow in their turns each has its own.
func TestWaited(t *testing.T) {
	const rounds = 12
	base := func(p int) time.Duration { return time.Second + time.Duration(p)*10*time.Millisecond } // no two end at once
	always := func(p, _ int) time.Duration {
		if p == 2 {
			return 3 * base(p)
		}
		return base(p)
	}
	rotating := func(p, c int) time.Duration {
		if c%3 == p {
			return 4 * base(p)
		}
		return base(p)
	}
	for _, mode := range modes() {
		for who, cost := range []func(p, c int) time.Duration{always, rotating} {
			for _, read := range []bool{true, false} {
				before, last := mode.Staleness+1, rounds
				if !read { // Clock lets a worker be one round more ahead, and the last one waits for what a next round would
					before, last = before+1, last+1
				}
				got, want := waitsOf(t, mode, rounds, read, cost), waitsBy(last, before, cost)
				waits := 0
				for p := range 3 {
					waits += len(want[p])
					if !maps.Equal(got[p], want[p]) {
						t.Errorf("%s, rotating %v, reads %v: client %d waited %v, want %v", modeName(mode), who == 1, read, p, got[p], want[p])
					}
				}
				if who == 0 && waits != 2 || who == 1 && before == 1 && waits != 6 { // staleness hides who is slow in turn
					t.Errorf("%s, rotating %v, reads %v: %d waits are wanted: %v", modeName(mode), who == 1, read, waits, want)
				}
			}
		}
	}
	for p, by := range waitsOf(t, Spec{Mode: ASP}, rounds, true, always) {
		if len(by) > 0 {
			t.Errorf("asp: client %d waited %v", p, by)
		}
	}
}

// TestWaitedRounds: a read that waits for several rounds is divided among the last clients of each. One that is answered because a client was
// counted as lost has waited for that one.
func TestWaitedRounds(t *testing.T) {
	tables := []Spec{{Name: "loose", Rows: 1, Cols: 4, Staleness: 3}, {Name: "tight", Rows: 1, Cols: 4}}
	j := newSimJob(sim.New(1, sim.Options{Link: sim.Link{Delay: time.Nanosecond}}), simOptions{clients: 3, servers: 1, tables: tables})
	j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
		for range 3 {
			if _, err := w.Clock(bg); err != nil {
				return err
			}
		}
		for _, two := range []time.Duration{5, 15} {
			if _, err := tableOf[float32](w, "tight").Get(bg, 0, make([]float32, 4)); err != nil {
				return err
			}
			got := w.Waited()
			for n, d := range got {
				got[n] = d.Round(time.Second)
			}
			if want := (map[Name]time.Duration{clientName(1): 2 * time.Second, clientName(2): two * time.Second}); !maps.Equal(got, want) {
				t.Errorf("at clock %d: waited %v, want %v", w.Now(), got, want)
			}
			if _, err := w.Clock(bg); err != nil {
				return err
			}
		}
		return w.Finish(bg)
	})
	// Rounds 0 to 2 end after 1, 4 and 5 s at client 1, and after 2, 3 and 7 s at client 2, which then makes no other.
	j.start(1, 0, func(w *Worker, sleep func(time.Duration)) error {
		for _, d := range []time.Duration{1, 3, 1, 0} {
			sleep(d * time.Second)
			if _, err := w.Clock(bg); err != nil {
				return err
			}
		}
		return w.Finish(bg)
	})
	j.start(2, 0, func(w *Worker, sleep func(time.Duration)) error {
		for _, d := range []time.Duration{2, 1, 4} {
			sleep(d * time.Second)
			if _, err := w.Clock(bg); err != nil {
				return err
			}
		}
		return nil
	})
	j.w.Call(j.dir, 17*time.Second, lostCall{clientName(2)}, func(any, error) {})
	j.run(t, time.Hour)
}

// TestWaitedAtLane: a read waits for who is the last at the lanes that it asks, whatever others have told meanwhile.
func TestWaitedAtLane(t *testing.T) {
	near, far := sim.Link{Delay: time.Nanosecond}, sim.Link{Delay: 5 * time.Second}
	tables := []Spec{{Name: "t", Rows: 2, Cols: 4}} // a row at each server
	j := newSimJob(sim.New(1, sim.Options{Link: near}), simOptions{clients: 3, servers: 2, min: 4, tables: tables})
	j.w.Connect(j.clients[2].node, j.servers[0], far, near) // at the other server it is before client 1
	for p, d := range []time.Duration{0, 2 * time.Second, time.Second} {
		j.start(p, 0, func(w *Worker, sleep func(time.Duration)) error {
			sleep(d)
			if _, err := w.Clock(bg); err != nil {
				return err
			}
			if p > 0 {
				return w.Finish(bg)
			}
			if _, err := tableOf[float32](w, "t").Get(bg, 0, make([]float32, 4)); err != nil {
				return err
			}
			got := w.Waited()
			for n, d := range got {
				got[n] = d.Round(time.Millisecond)
			}
			if want := (map[Name]time.Duration{clientName(2): 6 * time.Second}); !maps.Equal(got, want) {
				t.Errorf("waited %v, want %v", got, want)
			}
			return w.Finish(bg)
		})
	}
	j.run(t, time.Hour)
}

// TestWaitedNamesWhoHolds: the status that tells of a new M names who held it back until then; an error of what goes on waiting names who does so now.
func TestWaitedNamesWhoHolds(t *testing.T) {
	tables := []Spec{{Name: "t", Rows: 1, Cols: 4}}
	j := newSimJob(sim.New(1, sim.Options{Link: sim.Link{Delay: time.Nanosecond}}), simOptions{clients: 3, servers: 1, tables: tables})
	var got error
	j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
		for range 2 {
			if _, err := w.Clock(bg); err != nil {
				return err
			}
		}
		_, got = tableOf[float32](w, "t").Get(bg, 0, make([]float32, 4))
		return nil
	})
	for p, rounds := range map[int]int{1: 1, 2: 2} { // client 2 is the last to end round 0, and client 1 never ends round 1
		j.start(p, 0, func(w *Worker, sleep func(time.Duration)) error {
			for range rounds {
				sleep(time.Duration(p) * time.Second)
				if _, err := w.Clock(bg); err != nil {
					return err
				}
			}
			sleep(time.Hour)
			return nil
		})
	}
	j.run(t, 2*time.Hour)
	if got == nil || !strings.Contains(got.Error(), "is at 1, held by "+clientName(1).String()) {
		t.Errorf("the read ends with %v", got)
	}
}
