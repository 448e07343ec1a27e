package transport

import (
	"context"
	"sync/atomic"
	"testing"
)

// A watchedContext counts who waits for its end.
type watchedContext struct {
	context.Context
	watchers atomic.Int64
}

func (c *watchedContext) Value(any) any { return nil } // else package context asks the one beneath

func (c *watchedContext) AfterFunc(f func()) func() bool {
	c.watchers.Add(1)
	stop := context.AfterFunc(c.Context, f)
	return func() bool {
		stopped := stop()
		if stopped {
			c.watchers.Add(-1)
		}
		return stopped
	}
}

// TestCloseLetsContextGo: a stream that is closed, and not received from again, does not hang from the context of its last Recv, which may
// last as long as the process.
func TestCloseLetsContextGo(t *testing.T) {
	n := Unix{Dir: t.TempDir()}
	var ends [2]Stream
	for i, id := range []string{"a", "b"} {
		p, err := n.Open(t.Context(), Name{ID: id}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if ends[i], err = p.Stream("s", StreamOptions{}); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if err := ends[0].Know(p.Name(), p.Addr()); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &watchedContext{Context: ctx}
	next, received := make(chan struct{}), make(chan Event)
	defer close(next)
	go func() {
		for range next {
			ev, err := ends[1].Recv(c)
			if err != nil {
				t.Error(err)
			}
			received <- ev
		}
	}()
	for i := 0; c.watchers.Load() == 0; i++ { // until a Recv has read the connection itself; none runs after
		if i == 10_000 {
			t.Fatal("Recv never reads a connection itself")
		}
		next <- struct{}{}
		if err := ends[0].Send(ctx, ends[1].Self(), Frame{Key: Key{Chunk: uint32(i)}}); err != nil {
			t.Fatal(err)
		}
		ev := <-received
		ev.Release()
	}
	if err := ends[1].Close(); err != nil {
		t.Fatal(err)
	}
	if n := c.watchers.Load(); n != 0 {
		t.Errorf("%d watch the context of a stream that is closed", n)
	}
}
