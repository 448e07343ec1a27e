package transport

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"time"
)

// Between two ports whose users attend, frames of all sizes come whole and in order, both while something is waited for and while nobody
// waits; a frame that comes after a long silence too; and Close ends all that attending began.
func TestAttend(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	type end struct {
		p Port
		s Stream
	}
	var ends [2]end
	names := [2]Name{{Role: "worker", ID: "0"}, {Role: "worker", ID: "1"}}
	for i := range ends {
		p, err := TCP{}.Open(ctx, names[i], Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.Stream("a", StreamOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = end{p, s}
		defer func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}()
	}
	if err := ends[0].s.Know(names[1], ends[1].p.Addr()); err != nil {
		t.Fatal(err)
	}
	beats := false
	sizes := []int{0, 1, 100, 4 << 10, 40 << 10, 256 << 10, 1 << 20}
	done := make(chan error, 1)
	go func() { // sends back what comes
		s := ends[1].s
		s.(Attender).Attend(1)
		defer s.(Attender).Attend(-1)
		for range 3 * len(sizes) {
			ev, err := s.Recv(ctx)
			if err == nil {
				err = s.Send(ctx, names[0], Frame{Kind: ev.Kind, Payload: ev.Payload})
			}
			ev.Release()
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	s := ends[0].s
	for k := range 3 * len(sizes) {
		n := sizes[k%len(sizes)]
		payload := make([]byte, n)
		for i := range payload {
			payload[i] = byte(i + k)
		}
		if err := s.Send(ctx, names[1], Frame{Kind: uint8(k + 1), Payload: payload}); err != nil {
			t.Fatal(err)
		}
		attend := k%3 < 2
		if attend {
			s.(Attender).Attend(1)
		}
		ev, err := s.Recv(ctx)
		if attend {
			s.(Attender).Attend(-1)
		}
		if err != nil {
			t.Fatal(err)
		}
		beats = beats || ends[0].p.(*port).pulse.running.Load() // at the end it may rest again
		if ev.Kind != uint8(k+1) || len(ev.Payload) != n || string(ev.Payload) != string(payload) {
			t.Fatalf("frame %d of %d bytes: kind %d of %d bytes came", k, n, ev.Kind, len(ev.Payload))
		}
		ev.Release()
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	p := ends[0].p.(*port)
	if newDirect(nil, nil) != nil {
		t.Error("what is no connection can be read directly")
	}
	want := 0
	if runtime.GOOS == "linux" {
		want = 2
	}
	if n := len(p.conns.list()); n != want {
		t.Errorf("%d connections can be looked at, want %d", n, want)
	}
	if n := p.linked.Load(); n != 1 {
		t.Errorf("%d links are up, want 1", n)
	}
	if n := p.clogged.Load(); n != 0 {
		t.Errorf("%d connections take nothing, want 0", n)
	}
	if !beats {
		t.Error("nothing keeps the runtime's watch going")
	}
}

// TestAttendAmong: with one thread of Go, who looks does so for all of a port's connections: frames of two peers come in turns, and each asks
// for the next of the other.
func TestAttendAmong(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var streams [3]Stream
	var names [3]Name
	for i := range streams {
		names[i] = Name{Role: "worker", ID: string(rune('0' + i))}
		p, err := TCP{}.Open(ctx, names[i], Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if n := len(p.(*port).conns.list()); n != 0 {
				t.Errorf("%d connections of a port that is closed", n)
			}
		}()
		if streams[i], err = p.Stream("a", StreamOptions{}); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			if err := streams[0].Know(names[i], p.Addr()); err != nil {
				t.Fatal(err)
			}
			go func() { // sends back what comes
				for {
					ev, err := streams[i].Recv(ctx)
					if err != nil {
						return
					}
					payload := bytes.Clone(ev.Payload)
					ev.Release()
					if streams[i].Send(ctx, names[0], Frame{Kind: 1, Payload: payload}) != nil {
						return
					}
				}
			}()
		}
	}
	hub := streams[0]
	hub.(Attender).Attend(1)
	defer hub.(Attender).Attend(-1)
	for k := range 500 {
		to, payload := names[1+k%2], bytes.Repeat([]byte{byte(k)}, k*k%40_000)
		if err := hub.Send(ctx, to, Frame{Kind: 1, Payload: payload}); err != nil {
			t.Fatal(err)
		}
		ev, err := hub.Recv(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ev.From != to || !bytes.Equal(ev.Payload, payload) {
			t.Fatalf("frame %d: %d bytes of %v, want %d of %v", k, len(ev.Payload), ev.From, len(payload), to)
		}
		ev.Release()
	}
}

// Frames of data alone keep the runtime's watch going, at both ends: nobody has to attend.
func TestPulse(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	names := [2]Name{{Role: "worker", ID: "0"}, {Role: "worker", ID: "1"}}
	var ports [2]*port
	var streams [2]Stream
	for i, name := range names {
		p, err := TCP{}.Open(ctx, name, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}()
		ports[i] = p.(*port)
		if streams[i], err = p.Stream("a", StreamOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := streams[0].Know(names[1], ports[1].Addr()); err != nil {
		t.Fatal(err)
	}
	// The first may be written while the link comes up, by another. Of the others one is enough: on a busy machine the watch may have rested
	// again, after 200 ms, before this looks.
	rests := make([]string, 0, 2)
	for k := 0; k < 2 || k < 10 && len(rests) > 0; k++ {
		if err := streams[0].Send(ctx, names[1], Frame{Kind: 1, Payload: make([]byte, 1<<20)}); err != nil {
			t.Fatal(err)
		}
		ev, err := streams[1].Recv(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Release(); k == 0 {
			continue
		}
		rests = rests[:0]
		for i, p := range ports {
			if !p.pulse.running.Load() {
				rests = append(rests, names[i].ID)
			}
		}
	}
	if len(rests) > 0 {
		t.Errorf("nothing keeps the watch going at %q", rests)
	}
}
