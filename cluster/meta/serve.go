package meta

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire/control"
)

const (
	// maxUnderWay is how many requests, watches included, one client may have under way; beyond, they are refused.
	maxUnderWay = 256
	// watchAhead is how many changes of a watch travel before the client has taken them: 1 MiB of the largest values.
	watchAhead = 16
	// maxWait ends a request that came without a limit, apart from watches.
	maxWait = time.Minute
)

// Serve answers the clients on s from m until ctx or s ends, and returns nil if it was ctx. A client that is lost loses its requests and
// watches; its leases run out by themselves. Serve is the one that calls s.Recv. When it returns, its goroutines have ended.
func Serve(ctx context.Context, m cluster.Meta, s transport.Stream) error {
	serving, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	clients := map[transport.Name]*served{}
	for {
		ev, err := s.Recv(serving)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("meta: serve: %w", err)
		}
		c := clients[ev.From]
		switch ev.What {
		case transport.LinkLost:
			if c != nil {
				c.forget()
				delete(clients, ev.From)
			}
		case transport.LinkBack:
			// What was on its way to the client is lost: it must not wait for it.
			running.Go(func() { _ = reply(serving, s, ev.From, answer{}, nil) })
		case transport.Received:
			if c == nil {
				c = &served{
					ctx: serving, name: ev.From, store: m, stream: s, running: &running, under: map[uint64]*underWay{},
					refusals: make(chan struct{}, maxUnderWay),
				}
				clients[ev.From] = c
			}
			var q request
			if ev.Kind != kindRequest {
				err = fmt.Errorf("meta: want a request, found a frame of kind %d", ev.Kind)
			} else if err = q.parse(ev.Head); err == nil {
				c.take(q, append([]byte{}, ev.Payload...))
			}
			if err != nil {
				// No number to answer under. The client is of this build, or a stranger.
				a := answer{}
				a.fail(err)
				c.refuse(a)
			}
		}
		ev.Release()
	}
}

// served is a client, as the server sees it. Its methods are called by Serve's loop, except finish.
type served struct {
	ctx     context.Context
	name    transport.Name
	store   cluster.Meta
	stream  transport.Stream
	running *sync.WaitGroup

	refusals chan struct{} // one entry for each that is on its way

	lock  sync.Mutex
	under map[uint64]*underWay
}

type underWay struct {
	stop  context.CancelFunc
	ahead chan struct{} // a watch's room, one entry for each change that may be sent
}

// forget ends all that the client asked for.
func (c *served) forget() {
	c.lock.Lock()
	defer c.lock.Unlock()
	for id, u := range c.under {
		u.stop()
		delete(c.under, id)
	}
}

func (c *served) take(q request, value []byte) {
	c.lock.Lock()
	defer c.lock.Unlock()
	u := c.under[q.ID]
	switch {
	case q.Op == opReset:
		for id, u := range c.under {
			u.stop()
			delete(c.under, id)
		}
		return
	case q.Op == opCancel:
		if u != nil {
			u.stop()
		}
		return
	case q.Op == opMore:
		for ; u != nil && q.Rev > 0; q.Rev-- {
			select {
			case u.ahead <- struct{}{}:
				continue
			default: // more than it was sent: what does not fit is not owed
			}
			break
		}
		return
	case u != nil || len(c.under) >= maxUnderWay:
		a := answer{ID: q.ID}
		a.fail(fmt.Errorf("meta: %d requests of %s are under way, and at most %d may be: %w", len(c.under), c.name, maxUnderWay,
			protocol.ErrUnavailable))
		c.refuse(a)
		return
	}
	if !q.HasValue {
		value = nil
	}
	var ctx context.Context
	u = &underWay{}
	switch {
	case q.Op == opWatch:
		ctx, u.stop = context.WithCancel(c.ctx)
		u.ahead = make(chan struct{}, watchAhead)
		for range watchAhead {
			u.ahead <- struct{}{}
		}
	case q.Limit <= 0 || q.Limit > maxWait:
		ctx, u.stop = context.WithTimeout(c.ctx, maxWait)
	default:
		ctx, u.stop = context.WithTimeout(c.ctx, q.Limit)
	}
	c.under[q.ID] = u
	c.running.Go(func() {
		defer c.finish(q.ID, u)
		if q.Op == opWatch {
			c.watch(ctx, q, u.ahead)
			return
		}
		kv, err := c.ask(ctx, q, value)
		a := answer{ID: q.ID, Key: control.Bytes(kv.Key), Rev: kv.Rev, Lease: kv.Lease, HasValue: kv.Value != nil}
		if err != nil {
			a.fail(err)
			kv.Value = nil
		}
		_ = reply(c.ctx, c.stream, c.name, a, kv.Value)
	})
}

// refuse answers what is not done. Who asks faster than it takes in what it is told is told no more: what waits here is bounded.
func (c *served) refuse(a answer) {
	select {
	case c.refusals <- struct{}{}:
		c.running.Go(func() {
			_ = reply(c.ctx, c.stream, c.name, a, nil)
			<-c.refusals
		})
	default:
	}
}

func (c *served) finish(id uint64, u *underWay) {
	u.stop()
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.under[id] == u {
		delete(c.under, id)
	}
}

// ask puts a request to the store.
func (c *served) ask(ctx context.Context, q request, value []byte) (kv cluster.KV, err error) {
	switch q.Op {
	case opGet:
		return c.store.Get(ctx, string(q.Key))
	case opPutIf:
		kv.Rev, err = c.store.PutIf(ctx, string(q.Key), value, q.Rev, q.Lease)
	case opGrant:
		var l cluster.Lease
		l, err = c.store.Grant(ctx, q.TTL)
		kv.Lease = int64(l)
	case opKeep:
		err = c.store.Keep(ctx, q.Lease)
	case opRevoke:
		err = c.store.Revoke(ctx, q.Lease)
	}
	return kv, err
}

// watch sends the changes as the client takes them.
func (c *served) watch(ctx context.Context, q request, ahead <-chan struct{}) {
	for kv, err := range c.store.Watch(ctx, string(q.Key), q.Rev) {
		a := answer{ID: q.ID, Key: control.Bytes(kv.Key), Rev: kv.Rev, Lease: kv.Lease, HasValue: kv.Value != nil}
		if err != nil {
			a.fail(err) // the last one: it needs no room
			_ = reply(c.ctx, c.stream, c.name, a, nil)
			return
		}
		select {
		case <-ahead:
		case <-ctx.Done():
			return
		}
		if err := reply(ctx, c.stream, c.name, a, kv.Value); err != nil {
			return // the link is lost: the client knows, or is told when it is back
		}
	}
}

// reply sends an answer. An error means that the link is lost, and then the client learns it from its own end of it.
func reply(ctx context.Context, s transport.Stream, to transport.Name, a answer, value []byte) error {
	head, err := control.Append(nil, a)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	return s.Send(ctx, to, transport.Frame{
		Kind: kindAnswer, Priority: transport.Control, Head: head, Payload: value, Done: func(error) {},
	})
}
