package collective

import (
	"errors"
	"fmt"
	"testing"

	"github.com/trivium-ml/trivium/transport"
)

// TestAdopts: of three ranks the last dies when it has voted, and rank 0, which has all votes, has committed. Rank 1, whose link to the dead one breaks
// before rank 0's vote comes, commits too, by whatever it hears first: what rank 0 reports, or its verdict.
func TestAdopts(t *testing.T) {
	names := []transport.Name{{ID: "0"}, {ID: "1"}, {ID: "2"}}
	for name, kind := range map[string]uint8{"report": kindReport, "verdict": kindOutcome} {
		o, err := Options{}.resolve()
		if err != nil {
			t.Fatal(err)
		}
		zero := newCore(0, View{Epoch: 1, Peers: names, Self: 0}, &o)
		one := newCore(0, View{Epoch: 1, Peers: names, Self: 1}, &o)
		first, second := zero.commit(0, nil), one.commit(0, nil)
		first.have = 1<<1 | 1<<2
		if zero.advance(); !first.over || first.err != nil {
			t.Fatalf("%s: rank 0 has all votes: %+v", name, first)
		}
		zero.out = nil // its own are still on their way
		gone := errors.New("reset")
		zero.lost(2, gone)
		one.lost(2, gone)
		if second.over {
			t.Fatalf("%s: rank 1 does not wait for what rank 0 knows: %+v", name, second)
		}
		zero.now = lostWait
		zero.tick() // it has not heard rank 1
		for _, out := range zero.out {
			if out.to == 1 && out.f.Kind == kind {
				one.received(0, &transport.Event{From: names[0], Kind: kind, Key: out.f.Key, Head: out.f.Head})
			}
		}
		if !second.over || second.err != nil || one.step != 1 {
			t.Errorf("%s: rank 1: %+v", name, second)
		}
		if b, ok := errors.AsType[*Blame](zero.failed); !ok || b.Rank != 2 || b.Cause != Lost {
			t.Errorf("%s: rank 0 has failed with %v", name, zero.failed)
		}
		if kind == kindOutcome && fmt.Sprint(one.failed) != fmt.Sprint(zero.failed) {
			t.Errorf("%s: rank 1 has failed with %v, rank 0 with %v", name, one.failed, zero.failed)
		}
	}
}
