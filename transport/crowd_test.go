package transport

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// crowd fills a port with strangers, and returns the one that came first and the port.
func crowd(t *testing.T) (*port, net.Conn) {
	t.Helper()
	p := openPort(Name{ID: "a"}, Options{}, &carrier{})
	t.Cleanup(func() { _ = p.Close() })
	first := stranger(t)
	for i := range maxStrangers {
		nc := first
		if i > 0 {
			nc = stranger(t)
		}
		if !p.pend(nc) {
			t.Fatalf("stranger %d is turned away", i)
		}
		time.Sleep(time.Microsecond)
	}
	return p, first
}

func stranger(t *testing.T) net.Conn {
	t.Helper()
	nc, other := net.Pipe()
	t.Cleanup(func() { _, _ = nc.Close(), other.Close() })
	return nc
}

// pends returns how long one more waits for room.
func pends(t *testing.T, p *port) time.Duration {
	t.Helper()
	since := time.Now()
	if !p.pend(stranger(t)) {
		t.Fatal("it is turned away")
	}
	return time.Since(since)
}

func open(nc net.Conn) bool { return nc.SetDeadline(time.Time{}) == nil }

// TestCrowdWaits: where too many come at once, each has the time to say who it is, and who comes then waits; but those who say nothing do not
// keep it out for longer.
func TestCrowdWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, first := crowd(t)
		time.AfterFunc(50*time.Millisecond, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.strangers, first) // as greet does, when it is through
		})
		if d := pends(t, p); d < 50*time.Millisecond || d > 51*time.Millisecond+crowdTick {
			t.Errorf("waited for %v, want until one left after 50ms", d)
		}
		if d := pends(t, p); d < strangerLeast-60*time.Millisecond || d > strangerLeast {
			t.Errorf("waited for %v, want until the oldest has had %v", d, strangerLeast)
		}
		if n := p.Stats().Refused["crowded"]; n != 1 || len(p.strangers) != maxStrangers {
			t.Errorf("%d made room, and %d are there, want 1 and %d", n, len(p.strangers), maxStrangers)
		}
	})
}

// TestCrowdSparesPeers: who has said who he is makes room for nobody, also while his connection is not a link yet.
func TestCrowdSparesPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, first := crowd(t)
		if !p.recognised(first) || p.recognised(first) {
			t.Error("it is recognised, and once")
		}
		time.Sleep(strangerLeast)
		for range 2 {
			pends(t, p)
		}
		if n := p.Stats().Refused["crowded"]; n != 1 || !open(first) {
			t.Errorf("%d made room, and the one that was recognised is open: %v; want 1, true", n, open(first))
		}
	})
}

// TestCrowdAtClose: a port that closes lets go of who waits for room.
func TestCrowdAtClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := crowd(t)
		time.AfterFunc(time.Millisecond, func() { _ = p.Close() })
		if p.pend(stranger(t)) {
			t.Error("a port that is closed takes it")
		}
	})
}

// TestRecognisedEarly: that is so from the moment of its proof, also where the two ends have still to agree on shared memory.
func TestRecognisedEarly(t *testing.T) {
	n := Unix{Dir: t.TempDir()}
	opened, err := n.Open(t.Context(), Name{ID: "victim"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	victim, self := opened.(*port), Name{ID: "self"}
	c, err := n.carrier(t.Context(), self)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	p, h := &port{self: self, carrier: c}, &hello{name: self, target: victim.self, attempt: 1}
	for _, role := range []uint8{control, data} {
		nc, err := c.dial(t.Context(), victim.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if err := p.introduce(t.Context(), h, role, &[2]net.Conn{nc, nc}); err != nil {
			t.Fatal(err)
		}
	}
	pending, strangers := 2, 0
	for deadline := time.Now().Add(time.Minute); pending > 1 && time.Now().Before(deadline); time.Sleep(time.Millisecond) { // the other is its peer's soon
		victim.mu.Lock()
		pending, strangers = len(victim.pending), len(victim.strangers)
		victim.mu.Unlock()
	}
	if pending != 1 || strangers != 0 {
		t.Errorf("%d connections are under way, of %d strangers; want 1 and 0", pending, strangers)
	}
}

// TestStrangersGo: who leaves, or is refused, is no stranger any more.
func TestStrangersGo(t *testing.T) {
	opened, err := TCP{}.Open(t.Context(), Name{ID: "a"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	nc, err := net.Dial("tcp", opened.Addr()[len(tcpScheme):])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Write([]byte("GET / HTTP/1.1")); err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	p, strangers := opened.(*port), 0
	for pending := 1; pending > 0 || len(p.Stats().Refused) == 0; time.Sleep(time.Millisecond) {
		if t.Context().Err() != nil {
			t.Fatal("it is not refused")
		}
		p.mu.Lock()
		pending, strangers = len(p.pending), len(p.strangers)
		p.mu.Unlock()
	}
	if strangers != 0 {
		t.Errorf("%d strangers are left", strangers)
	}
}

// TestOlderIncarnation: who was started again is not pushed out by what is left of its last life.
func TestOlderIncarnation(t *testing.T) {
	u := openPuppet(t)
	u.name.Incarnation = 2
	u.connect()
	u.gets(u.stream, "lost") // of incarnation 0, which it replaces
	c, err := TCP{}.carrier(u.ctx, Name{})
	u.must(err)
	defer c.close()
	nc, err := c.dial(u.ctx, u.victim.Addr())
	u.must(err)
	defer nc.Close()
	old := Name{ID: u.name.ID, Incarnation: 1}
	h := &hello{name: old, target: u.victim.Name(), instance: [16]byte{2}, attempt: 1}
	err = (&port{self: old, carrier: c}).introduce(u.ctx, h, control, &[2]net.Conn{nc, nc})
	if err == nil || !strings.Contains(err.Error(), "incarnation 1 is over") {
		t.Errorf("an older incarnation is told %v", err)
	}
	u.comes("") // the link stays
}
