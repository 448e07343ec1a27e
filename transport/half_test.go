package transport

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A gated connection reads a step of the handshake, which takes three reads, and no more until the gate is open.
type gated struct {
	net.Conn
	reads int
	gate  chan struct{}
}

func (g *gated) Read(p []byte) (int, error) {
	if g.reads++; g.reads > 3 {
		<-g.gate
	}
	return g.Conn.Read(p)
}

// TestHalfALink: who says who he is, and has no link yet, keeps his place among a port's peers as long as a handshake may last, and no longer.
func TestHalfALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := newPipes()
		victim := openPort(Name{ID: "victim"}, Options{MaxPeers: 1}, at.carrier(nil, at.dial))
		defer victim.Close()
		come := func(h *hello, role uint8, gate chan struct{}) error {
			nc, err := at.dial(t.Context(), "")
			if err != nil {
				return err
			}
			defer nc.Close()
			if gate != nil {
				nc = &gated{nc, 0, gate}
			}
			p := &port{self: h.name, carrier: at.carrier(nil, at.dial)}
			return p.introduce(t.Context(), h, role, &[2]net.Conn{nc, nc})
		}
		from := func(id string) *hello { return &hello{name: Name{ID: id}, target: victim.self, attempt: 1} }
		refused := func(id, while string) {
			t.Helper()
			if err := come(from(id), control, nil); err == nil {
				t.Errorf("%s takes the place of one who has %s", id, while)
			}
		}
		a, gate, linked := from("a"), make(chan struct{}), make(chan error, 1)
		if err := come(a, control, nil); err != nil {
			t.Fatal(err)
		}
		refused("b", "one connection of two")
		go func() { linked <- come(a, data, gate) }()
		synctest.Wait()
		refused("b", "both, and is being told")
		close(gate)
		if err := <-linked; err != nil {
			t.Error(err)
		}
		synctest.Wait() // it is gone
		if err := come(from("b"), control, nil); err != nil {
			t.Error(err)
		}
		time.Sleep(victim.o.Handshake)
		synctest.Wait()
		if err := come(from("c"), control, nil); err != nil {
			t.Error(err)
		}
	})
}
