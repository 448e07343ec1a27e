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

// A slowWorld is ranks whose frames take 50 µs, of which one has no processor until wakes: what comes to it waits.
type slowWorld struct {
	t        *testing.T
	machines []*collective.Machine
	names    []protocol.Name
	slow     int
	wakes    time.Duration
	queue    []slowEvent // by time
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
	if rank == w.slow {
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
		if e.at > time.Second {
			w.t.Fatalf("something is due after %v", e.at)
		}
		for _, cmd := range w.machines[e.rank].Step(e.at, e.in) {
			switch cmd := cmd.(type) {
			case protocol.Send:
				for r, n := range w.names {
					if n == cmd.To && w.machines[r] != nil {
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

// TestLostWhileAnotherIsSlow: of four ranks the last one dies in an operation, and one of the others has no processor. Those that run get
// the error within ten milliseconds all the same, and the slow one gets the same when it runs. Rank 0 judges: where it is the slow one,
// the others wait for it a while.
func TestLostWhileAnotherIsSlow(t *testing.T) {
	const size, dies = 4, time.Millisecond
	for slow, limit := range []time.Duration{60 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond} {
		t.Run(fmt.Sprintf("rank %d", slow), func(t *testing.T) {
			w := &slowWorld{t: t, slow: slow, wakes: 200 * time.Millisecond, failed: make([]error, size), at: make([]time.Duration, size)}
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
				call := collective.StartCall{Op: collective.Op{Label: "w", Plan: collective.Ring}, Dst: collective.Of(make([]float32, 100)), Src: collective.Of(x)}
				if r != slow || slow == 0 { // a slow one that has not begun knows least
					w.add(0, r, protocol.Call{ID: 1, Arg: call})
				} else {
					w.add(w.wakes+time.Microsecond, r, protocol.Call{ID: 1, Arg: call})
				}
				w.add(dies, r, protocol.LinkLost{Peer: w.names[size-1], Err: errors.New("reset")})
			}
			w.run()
			for r, err := range w.failed[:size-1] {
				var b *collective.Blame
				if !errors.As(err, &b) || b.Rank != size-1 || b.Cause != collective.Lost || b.Op != "allreduce of w" || b.Tag != 0 {
					t.Errorf("rank %d: %v", r, err)
				}
				if other := w.failed[(slow+1)%3]; slow != 0 && err.Error() != other.Error() { // a judge that comes late has its own witness
					t.Errorf("rank %d: %v\nrank %d: %v", r, err, (slow+1)%3, other)
				}
				if r != slow && w.at[r]-dies > limit {
					t.Errorf("rank %d knew after %v, want at most %v", r, w.at[r]-dies, limit)
				}
			}
		})
	}
}
