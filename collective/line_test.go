package collective

import (
	"testing"

	"github.com/trivium-ml/trivium/transport"
)

// TestLine: frames come out of a line in their order, and one that is never empty does not grow.
func TestLine(t *testing.T) {
	var l line
	in, out := uint32(0), uint32(0)
	push := func() {
		l.push(transport.Frame{Fingerprint: in})
		in++
	}
	pop := func() {
		if f, ok := l.pop(); !ok || f.Fingerprint != out {
			t.Fatalf("frame %d of %d: %v, %v", out, in, f.Fingerprint, ok)
		}
		out++
	}
	for range 10 {
		push()
	}
	for range 10_000 {
		push()
		pop()
	}
	if n := cap(l.frames); n > 100 {
		t.Errorf("10 frames that wait have the room of %d", n)
	}
	for in > out {
		pop()
	}
	if _, ok := l.pop(); ok {
		t.Error("a frame that nobody sends")
	}
	for i, f := range l.frames[:cap(l.frames)] {
		if f.Fingerprint != 0 {
			t.Errorf("frame %d is kept", i)
		}
	}
}
