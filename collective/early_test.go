package collective

import (
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
