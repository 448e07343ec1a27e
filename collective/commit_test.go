package collective

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/transport"
)

// pair opens a group of two ranks in this process.
func pair(t *testing.T) [2]*Group {
	t.Helper()
	m := transport.NewMemory()
	var ports [2]transport.Port
	v := View{Epoch: 1}
	for r := range ports {
		p, err := m.Open(t.Context(), transport.Name{Role: "worker", ID: fmt.Sprint(r)}, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ports[r] = p
		v.Peers = append(v.Peers, p.Name())
	}
	var groups [2]*Group
	for r, p := range ports {
		s, err := p.Stream("collective", transport.StreamOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Know(ports[1-r].Name(), ports[1-r].Addr()); err != nil {
			t.Fatal(err)
		}
		v.Self = r
		if groups[r], err = New(s, v, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for r := range ports {
			_ = groups[r].Close()
			_ = ports[r].Close()
		}
	})
	return groups
}

// A Commit whose context has ended returns, also where a frame of an operation that is void has begun to land and never ends: then the
// vote cannot begin. The other rank gets the same blame.
func TestCommitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := pair(t)
		g := groups[0]
		h := g.Start(Op{}, 0, Of(make([]float32, 10)), Of(make([]float32, 10)))
		g.h.do(func() { h.o.err, h.o.landing = errors.New("void"), 1 }) // as abort leaves it
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var wg sync.WaitGroup
		var other error
		wg.Go(func() { other = groups[1].Commit(t.Context(), 0) })
		begin := time.Now()
		err := g.Commit(ctx, 0)
		took := time.Since(begin)
		wg.Wait()
		var b *Blame
		if !errors.As(err, &b) || b.Rank != 0 || b.Cause != Canceled || !errors.Is(err, context.Canceled) {
			t.Errorf("rank 0: %v", err)
		}
		if !errors.As(other, &b) || b.Rank != 0 || b.Cause != Canceled {
			t.Errorf("rank 1: %v", other)
		}
		if took > 2*voidWait+10*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}
