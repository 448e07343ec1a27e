package collective_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/protocol"
)

// A slowWorld is ranks whose frames take 50 µs, of which one has no processor from sleeps until wakes: what comes to it waits.
type slowWorld struct {
	t        *testing.T
	machines []*collective.Machine
	names    []protocol.Name
	slow     int
	sleeps   time.Duration
	wakes    time.Duration
	limit    time.Duration                             // nothing is due later
	drop     func(at time.Duration, from, to int) bool // a frame is lost; nil: none is
	queue    []slowEvent                               // by time
	failed   []error
	at       []time.Duration // when each failed
}

type slowEvent struct {
	at   time.Duration
	rank int
	in   protocol.Event
}

const slowLink = 50 * time.Microsecond

func (w *slowWorld) add(at time.Duration, rank int, in protocol.Event) {
	if rank == w.slow && at >= w.sleeps {
		at = max(at, w.wakes)
	}
	i := len(w.queue)
	for i > 0 && w.queue[i-1].at > at {
		i--
	}
	w.queue = append(w.queue[:i:i], append([]slowEvent{{at, rank, in}}, w.queue[i:]...)...)
}

func (w *slowWorld) run() {
	for len(w.queue) > 0 {
		e := w.queue[0]
		w.queue = w.queue[1:]
		if e.at > w.limit {
			w.t.Fatalf("something is due after %v", e.at)
		}
		for _, cmd := range w.machines[e.rank].Step(e.at, e.in) {
			switch cmd := cmd.(type) {
			case protocol.Send:
				for r, n := range w.names {
					if n == cmd.To && w.machines[r] != nil && (w.drop == nil || !w.drop(e.at, e.rank, r)) {
						w.add(e.at+slowLink, r, protocol.Message{From: w.names[e.rank], Body: cmd.Body})
					}
				}
			case protocol.SetTimer:
				w.add(e.at+cmd.After, e.rank, protocol.Timer{})
			case protocol.Answer:
				w.failed[e.rank], w.at[e.rank] = cmd.Err, e.at
			}
		}
	}
}

// TestLostWhileAnotherIsSlow: of four ranks the last one dies in an operation, and one of the others has no processor for a while. Those that
// run wait for it a little, and get the error all the same. It is the slow one's operation, the first that was hit, where it has begun one and
// says so in time. Rank 0 judges: where it is the slow one, the others wait longer. A slow one that is not the judge takes the verdict as it is.
func TestLostWhileAnotherIsSlow(t *testing.T) {
	const size, dies, ms = 4, time.Millisecond, time.Millisecond
	for _, c := range []struct {
		slow         int
		begun        bool
		after, limit time.Duration // from the death until the slow one runs, and until the others know
		tag          uint32        // that they blame: 0 is the slow one's
	}{
		{0, true, 45 * ms, 46 * ms, 0},
		{0, true, 200 * ms, 60 * ms, 1},
		{1, true, 4 * ms, 5 * ms, 0},
		{1, true, 200 * ms, 10 * ms, 1},
		{1, false, 200 * ms, 10 * ms, 1},
		{2, true, 4 * ms, 5 * ms, 0},
		{2, true, 200 * ms, 10 * ms, 1},
		{2, false, 200 * ms, 10 * ms, 1},
	} {
		t.Run(fmt.Sprintf("rank %d, begun %v, %v", c.slow, c.begun, c.after), func(t *testing.T) {
			w := &slowWorld{t: t, slow: c.slow, wakes: dies + c.after, limit: time.Second, failed: make([]error, size), at: make([]time.Duration, size)}
			v := collective.View{Epoch: 1}
			for r := range size {
				v.Peers = append(v.Peers, protocol.Name{Role: "worker", ID: strconv.Itoa(r)})
			}
			w.names = v.Peers
			for v.Self = range size - 1 {
				m, err := collective.NewMachine(v, collective.Options{})
				if err != nil {
					t.Fatal(err)
				}
				w.machines = append(w.machines, m)
			}
			w.machines = append(w.machines, nil) // it has died
			x := make([]float32, 100)
			for r := range size - 1 {
				call := collective.StartCall{Op: collective.Op{Label: "w", Plan: collective.Ring}, Tag: 1, Dst: collective.Of(make([]float32, 100)), Src: collective.Of(x)}
				at := time.Duration(0)
				if r == c.slow {
					call.Tag = 0
					if !c.begun {
						at = w.wakes + time.Microsecond
					}
				}
				w.add(at, r, protocol.Call{ID: 1, Arg: call})
				w.add(dies, r, protocol.LinkLost{Peer: w.names[size-1], Err: errors.New("reset")})
			}
			w.run()
			running := (c.slow + 1) % (size - 1)
			for r, err := range w.failed[:size-1] {
				tag := c.tag
				alone := r == 0 && c.slow == 0 && tag != 0 // a judge that comes too late says what it knows, which nobody hears
				if alone {
					tag = 0
				}
				b, ok := errors.AsType[*collective.Blame](err)
				if !ok || b.Rank != size-1 || b.Cause != collective.Lost || b.Op != "allreduce of w" || b.Tag != tag {
					t.Fatalf("rank %d: %v, want tag %d", r, err, tag)
				}
				if other := w.failed[running]; !alone && fmt.Sprint(err) != fmt.Sprint(other) {
					t.Errorf("rank %d: %v\nrank %d: %v", r, err, running, other)
				}
				if took := w.at[r] - dies; r != c.slow && took > c.limit {
					t.Errorf("rank %d knew after %v, want at most %v", r, took, c.limit)
				}
			}
		})
	}
}

// TestLostAsItVotes: rank 0, which collects the votes, dies when it has told one other rank that all have voted. That one has no processor for a
// while. It commits when it runs, and the others, whoever of them judges, wait for what it knows: they commit too.
func TestLostAsItVotes(t *testing.T) {
	const dies, wakes = time.Millisecond, 200 * time.Millisecond
	for _, size := range []int{3, 4} {
		for told := 1; told < size; told++ {
			t.Run(fmt.Sprintf("rank %d of %d", told, size), func(t *testing.T) {
				w := &slowWorld{
					t: t, slow: told, sleeps: slowLink, wakes: wakes, limit: time.Minute, failed: make([]error, size), at: make([]time.Duration, size),
					drop: func(at time.Duration, from, to int) bool { return from == 0 && (to != told || at >= dies) },
				}
				v := collective.View{Epoch: 1}
				for r := range size {
					v.Peers = append(v.Peers, protocol.Name{Role: "worker", ID: strconv.Itoa(r)})
				}
				w.names = v.Peers
				for v.Self = range size {
					m, err := collective.NewMachine(v, collective.Options{})
					if err != nil {
						t.Fatal(err)
					}
					w.machines = append(w.machines, m)
				}
				for r := range size {
					w.add(0, r, protocol.Call{ID: 1, Arg: collective.CommitCall{}})
					switch {
					case r == told: // behind the vote, which was there before
						w.add(wakes+time.Microsecond, r, protocol.LinkLost{Peer: w.names[0], Err: errors.New("reset")})
					case r > 0:
						w.add(dies, r, protocol.LinkLost{Peer: w.names[0], Err: errors.New("reset")})
					}
				}
				w.run()
				for r := 1; r < size; r++ {
					if w.failed[r] != nil || w.at[r] < wakes || w.at[r] > wakes+time.Millisecond {
						t.Errorf("rank %d: %v after %v, want a commit soon after %v", r, w.failed[r], w.at[r], wakes)
					}
				}
			})
		}
	}
}

// TestVotesAtTheDeadline: the last rank votes just as the others' deadline passes. Whether its vote is in time or not, all have the same outcome:
// none commits by a vote that comes when it has told the others that it still waits for it.
func TestVotesAtTheDeadline(t *testing.T) {
	const deadline = 100 * time.Millisecond
	counted, failed := 0, 0
	for _, size := range []int{2, 3, 4, 9} {
		for late := -4 * slowLink; late <= 4*slowLink; late += slowLink / 5 {
			w := &slowWorld{t: t, slow: -1, limit: time.Minute, failed: make([]error, size), at: make([]time.Duration, size)}
			v := collective.View{Epoch: 1}
			for r := range size {
				v.Peers = append(v.Peers, protocol.Name{Role: "worker", ID: strconv.Itoa(r)})
			}
			w.names = v.Peers
			for v.Self = range size {
				m, err := collective.NewMachine(v, collective.Options{Deadline: deadline})
				if err != nil {
					t.Fatal(err)
				}
				w.machines = append(w.machines, m)
			}
			for r := range size {
				at := time.Duration(r) * slowLink / 10
				if r == size-1 {
					at = deadline + late
				}
				w.add(at, r, protocol.Call{ID: 1, Arg: collective.CommitCall{}})
			}
			w.run()
			for r, err := range w.failed {
				if fmt.Sprint(err) != fmt.Sprint(w.failed[0]) {
					t.Errorf("%d ranks, %v after the deadline: rank 0: %v\nrank %d: %v", size, late, w.failed[0], r, err)
				}
			}
			if w.failed[0] == nil {
				counted++
			} else {
				failed++
			}
		}
	}
	if counted == 0 || failed == 0 {
		t.Errorf("%d steps count, %d do not: the test has lost its sting", counted, failed)
	}
}
