package transport

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/wire"
)

// sends writes frames of 900 bytes for the stream, and returns how many of all so far are there when total are, or the link was lost.
func (u *puppet) sends(frames, total int) (there int) {
	u.Helper()
	s := u.stream.(*stream)
	f := headed(wire.Header{Stream: s.id}, strings.Repeat("x", 900))
	_, _ = io.WriteString(u.conns[data], strings.Repeat(f, frames)) // fails where the link is lost meanwhile
	for u.ctx.Err() == nil {
		s.mu.Lock()
		there = 0
		for i := range s.main.len() {
			if s.main.index(i).ev.What == Received {
				there++
			}
		}
		s.mu.Unlock()
		if there >= total || u.victim.Stats().Peers == 0 {
			return there
		}
		time.Sleep(time.Millisecond)
	}
	u.Fatal("neither all frames nor the loss of the link came")
	return there
}

// again loses the puppet's link and makes another, with events that nobody receives.
func (u *puppet) again() {
	u.Helper()
	for _, nc := range u.conns {
		_ = nc.Close()
	}
	for u.victim.Stats().Peers > 0 && u.ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	u.connect()
}

// TestBacklog: a peer whose link comes and goes fills the memory of a stream that nobody reads no further than some links' credit; what it sent
// before is received all the same, and then it may send again.
func TestBacklog(t *testing.T) {
	u := openPuppet(t)
	got := 0
	for i := range 8 {
		if i == 5 {
			u.name.Incarnation++ // a process that starts again and again is no better
		}
		got = u.sends(maxUnderWay, got+maxUnderWay)
		u.again()
	}
	if most := (backlogLinks + 1) * maxUnderWay; got != most {
		t.Fatalf("%d frames wait for a stream that nobody reads, want %d", got, most)
	}
	if n := u.victim.Stats().Refused["backlog"]; n != 4 {
		t.Errorf("%d links were lost for what waits, want 4", n)
	}
	const sentence = "4096 frames with 3686400 bytes of one stream that came over links that are lost"
	if !strings.Contains(u.log.String(), sentence) {
		t.Errorf("the log says\n%s\nwant %q", &u.log, sentence)
	}
	for got > backlogLinks*maxUnderWay {
		if ev := u.event(); ev.What == Received {
			ev.Release()
			got--
		}
	}
	if there := u.sends(1, got+1); there != got+1 {
		t.Errorf("%d frames wait, want %d: a whole link's were received, and so one more may come", there, got+1)
	}
	for ; got >= 0; got-- {
		for ev := u.event(); ; ev = u.event() {
			if ev.Release(); ev.What == Received {
				break
			}
		}
	}
	b := u.victim.(*port).peer(u.name).backlog
	if b.any.Load() {
		t.Errorf("all is received, and %v wait", b.sides)
	}
}

// TestBacklogOfTurnedAway: frames that were dropped, since too many streams were not open, wait for nobody.
func TestBacklogOfTurnedAway(t *testing.T) {
	u := openPuppet(t)
	u.comes(notOpen(maxUnopened) + headed(wire.Header{Stream: 7}, "1") + headed(wire.Header{Stream: 7}, "2"))
	u.cut()
	u.back() // which drops what came for streams that are not open
	if b := u.victim.(*port).peer(u.name).backlog; b.any.Load() {
		t.Errorf("%v wait", b.sides)
	}
}
