package allreduce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/traintest"
	"github.com/trivium-ml/trivium/transport"
)

// TestFailedVote: where a vote on several updates fails, the error still counts them from the first of those; where it does not, the next are
// counted anew.
func TestFailedVote(t *testing.T) {
	network := transport.NewMemory()
	v := collective.View{Epoch: 1}
	var groups [2]*collective.Group
	for r := range groups {
		v.Peers = append(v.Peers, transport.Name{Role: "worker", ID: fmt.Sprint(r)})
	}
	var ports [2]transport.Port
	for r := range ports {
		var err error
		if ports[r], err = network.Open(t.Context(), v.Peers[r], transport.Options{}); err != nil {
			t.Fatal(err)
		}
		defer ports[r].Close()
	}
	for r, port := range ports {
		s, err := port.Stream("test", transport.StreamOptions{})
		if err == nil {
			err = s.Know(v.Peers[1-r], ports[1-r].Addr())
		}
		if err != nil {
			t.Fatal(err)
		}
		v.Self = r
		if groups[r], err = collective.New(s, v, collective.Options{}); err != nil {
			t.Fatal(err)
		}
		defer groups[r].Close()
	}
	x := &exchange{g: groups[0], run: new(train.Run), base: 3 * updateTags}
	var others sync.WaitGroup
	others.Go(func() {
		if err := groups[1].Commit(t.Context(), 0); err != nil {
			t.Error(err)
		}
	})
	if err := x.commit(t.Context()); err != nil || x.base != 0 {
		t.Errorf("base %d, %v", x.base, err)
	}
	others.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x.base = 3 * updateTags
	var blame *collective.Blame
	err := x.commit(ctx)
	if !errors.As(err, &blame) {
		t.Fatal(err)
	}
	if got := x.where(&collective.Blame{Op: "allreduce", Tag: 1*updateTags + 2}); got != "update -1" { // of updates -2 to 0, since the run has made none
		t.Errorf("it was %s", got)
	}
}

// TestLast: a vote follows the update after which the model may be looked at, after which training ends, or by which the vote's tags are used up.
func TestLast(t *testing.T) {
	env := traintest.Env(t, 1, false)
	env.AtEnd = true // so that none is due
	run, err := train.Open(t.Context(), env, traintest.Job(), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	for _, c := range []struct {
		base uint32
		sums [numFacts]float64
		want bool
	}{
		{sums: [numFacts]float64{factLoss: 2, factWeight: 3, factSeen: 4}},
		{base: (together - 2) * updateTags},
		{base: (together - 1) * updateTags, want: true},
		{sums: [numFacts]float64{factStop: 1}, want: true},
		{sums: [numFacts]float64{factFail: 1}, want: true},
		{sums: [numFacts]float64{factLoss: math.NaN()}, want: true},
		{sums: [numFacts]float64{factWeight: math.Inf(1)}, want: true},
	} {
		if x := (&exchange{run: run, base: c.base, sums: c.sums}); x.last() != c.want {
			t.Errorf("facts %v, %d updates since the last vote: %v, want %v", c.sums, c.base/updateTags, !c.want, c.want)
		}
	}
	if last := together*updateTags - 1; last != 1<<20-1 {
		t.Errorf("the highest tag is %d, and collective has %d", last, 1<<20-1)
	}
}

// TestLeaverIsNotLost: of workers that were all told of a loss, the first that closes its group is not what the others say is lost.
func TestLeaverIsNotLost(t *testing.T) {
	first, gone := transport.Name{Role: "worker", ID: "0"}, transport.Name{Role: "worker", ID: "2"}
	blame := &collective.Blame{Rank: 0, Name: first, Cause: collective.Lost, Evidence: "it has left the group"}
	for _, c := range []struct {
		told *train.LostError
		want transport.Name
	}{
		{&train.LostError{Peer: gone, Why: "it is not in view 2 any more"}, gone},
		{&train.LostError{Peer: first, Why: "it is not in view 2 any more"}, first},
		{nil, first},
	} {
		x := &exchange{run: new(train.Run), lost: func() *train.LostError { return c.told }}
		err := x.failed(t.Context(), blame)
		if lost, ok := errors.AsType[*train.LostError](err); !ok || lost.Peer != c.want {
			t.Errorf("told %v: %v, want the loss of %v", c.told, err, c.want)
		}
	}
}
