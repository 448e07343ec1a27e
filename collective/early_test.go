package collective

import (
	"errors"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// TestEarlyThatDoesNotFit: where the first of the frames that came before their operation ends it, each is released once, and those of other operations
// stay. It ends it at once where nobody is left to ask.
func TestEarlyThatDoesNotFit(t *testing.T) {
	o, err := Options{}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	c := newCore(0, View{Epoch: 1, Peers: []transport.Name{{ID: "0"}, {ID: "1"}}}, &o)
	frame := func(kind uint8, tag, chunk uint32) *transport.Event {
		return &transport.Event{From: c.names[1], Kind: kind, Key: transport.Key{Epoch: 1, Op: wire.MakeOp(0, tag), Chunk: chunk}}
	}
	for _, ev := range []*transport.Event{frame(kindData, 0, 0), frame(kindData, 1, 0), frame(kindData, 0, 1)} {
		ev.Fingerprint, ev.Payload = 1, make([]byte, 40) // no operation's
		c.received(1, ev)
	}
	bye := frame(kindBye, 0, noData)
	bye.Head = wire.AppendUvarint(nil, 3)
	c.received(1, bye)
	if op := c.start(Op{}, 0, Of(make([]float32, 10)), Of(make([]float32, 10)), nil); op.err == nil {
		t.Fatal("it has taken another operation's frame")
	}
	if len(c.early) != 1 || c.early[0].Op != wire.MakeOp(0, 1) || c.copied != weight(&c.early[0]) {
		t.Errorf("of the other operation %d frames are left: %v", len(c.early), c.early)
	}
	seen := map[*byte]bool{}
	for _, m := range c.memories {
		if p := &m[:1][0]; seen[p] {
			t.Error("memory is free twice")
		} else {
			seen[p] = true
		}
	}
}

// TestGoodbyeOvertakesTheCause: a rank whose commit is given up closes its group at the same time, and another of its goroutines sends the goodbye
// before the report says why. The others wait for that, and all blame it.
func TestGoodbyeOvertakesTheCause(t *testing.T) {
	g := newTrio(t)
	votes := make([]*tally, len(g.cores))
	for _, r := range []int{1, 2} { // rank 0 does not commit
		votes[r] = g.cores[r].commit(0, nil)
	}
	g.cores[2].abandonCommit(votes[2], errors.New("given up"))
	g.cores[2].leave()
	report := g.takeOut(2, kindReport)
	g.deliver(2, g.takeOut(2, kindVote))
	g.deliver(2, report[:1]) // to rank 0
	g.deliver(0, g.takeOut(0, kindReport))
	g.deliver(2, g.takeOut(2, kindBye))
	if votes[1].over {
		t.Fatalf("rank 1 does not wait for what rank 2 has said: %v", votes[1].err)
	}
	g.deliver(2, report[1:])
	g.deliver(1, g.takeOut(1, kindReport))
	for r, c := range g.cores[:2] {
		if b, ok := errors.AsType[*Blame](c.failed); !ok || b.Rank != 2 || b.Cause != Canceled {
			t.Errorf("rank %d has failed with %v", r, c.failed)
		}
	}
}

// A trio is three ranks whose frames a test delivers.
type trio struct{ cores []*core }

func newTrio(t *testing.T) *trio {
	t.Helper()
	o, err := Options{}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	g := &trio{make([]*core, 3)}
	for r := range g.cores {
		g.cores[r] = newCore(0, View{Epoch: 1, Peers: []transport.Name{{ID: "0"}, {ID: "1"}, {ID: "2"}}, Self: r}, &o)
	}
	return g
}

func (g *trio) deliver(from int, list []outFrame) {
	for _, out := range list {
		g.cores[out.to].received(from, &transport.Event{From: g.cores[from].names[from], Kind: out.f.Kind, Key: out.f.Key, Head: out.f.Head})
	}
}

// takeOut are the frames of those kinds that a rank has to send, or has sent.
func (g *trio) takeOut(r int, kinds ...uint8) (list []outFrame) {
	for _, out := range g.cores[r].out {
		if slices.Contains(kinds, out.f.Kind) {
			list = append(list, out)
		}
	}
	return list
}
