package collective

import (
	"testing"

	"github.com/trivium-ml/trivium/transport"
)

// TestFrameAfterClose: a frame whose sender was held up until after Close counts among those that Close did not wait for. A goodbye, which does
// not count itself, is none of them.
func TestFrameAfterClose(t *testing.T) {
	h := newHub(nil, View{Peers: []transport.Name{{ID: "0"}, {ID: "1"}}}, Options{})
	h.cancel()
	h.over = true
	p := h.peers[1]
	for _, kind := range []uint8{kindData, kindBye} {
		p.send(transport.Frame{Kind: kind, Priority: transport.Data, Key: transport.Key{Chunk: 7 << 16}, Payload: make([]byte, asideFrom)}, true)
	}
	if len(p.unsent) != 1 || p.unsent[7] != 1 || p.undone.Load() != 0 {
		t.Errorf("not sent, by group: %v; under way: %d", p.unsent, p.undone.Load())
	}
}

// TestFormerSubGroups: a sub-group that is closed is kept while frames wait to be sent to one of its members, and no longer: Close of the whole
// group may have to say goodbye there anew.
func TestFormerSubGroups(t *testing.T) {
	g := pair(t)[0]
	h := g.h
	closed := func(busy bool) int {
		t.Helper()
		sub, err := g.Sub([]int{1, 0})
		if err != nil {
			t.Fatal(err)
		}
		p := h.peers[1]
		p.mu.Lock()
		p.data.busy = busy // no goroutine sends: what comes waits for ever
		p.mu.Unlock()
		_ = sub.Close()
		p.mu.Lock()
		p.data.busy = false
		p.mu.Unlock()
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.former)
	}
	if n := closed(true); n != 1 {
		t.Errorf("one was closed with frames on their way: %d are kept", n)
	}
	if n := closed(true); n != 2 {
		t.Errorf("two were: %d are kept", n)
	}
	if n := closed(false); n != 0 {
		t.Errorf("all has been sent: %d are kept", n)
	}
}
