package meta

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire/control"
)

// A Client is a store that another process serves. While the link to that process is lost, all its methods return
// protocol.ErrUnavailable at once, as do the requests and watches that were under way; when the link is back, they work again.
type Client struct {
	stream transport.Stream
	server transport.Name
	stop   context.CancelFunc
	ended  chan struct{} // closed when the reading goroutine has ended

	lock  sync.Mutex
	last  uint64 // number of a request
	down  error  // why nothing can be asked; nil: it can
	under map[uint64]chan result
}

// result is an answer with its value.
type result struct {
	kv  cluster.KV
	err error
}

var _ cluster.Meta = (*Client)(nil)

// NewClient returns the store that server serves on the stream of the same name as s, which is the client's from now on. Close ends
// both.
func NewClient(s transport.Stream, server transport.Name) *Client {
	ctx, stop := context.WithCancel(context.Background())
	c := &Client{stream: s, server: server, stop: stop, ended: make(chan struct{}), under: map[uint64]chan result{}}
	go c.read(ctx)
	return c
}

// Close ends all that is under way, closes the stream, and waits for the client's goroutine. Leases run out by themselves.
func (c *Client) Close() error {
	c.stop()
	err := c.stream.Close()
	<-c.ended
	return err
}

// read takes the answers in. It never waits for who asked: a request has room for its answer, a watch for what may be under way.
func (c *Client) read(ctx context.Context) {
	defer close(c.ended)
	for {
		ev, err := c.stream.Recv(ctx)
		if err != nil {
			if ctx.Err() != nil {
				err = transport.ErrClosed
			}
			c.fail(err, true)
			return
		}
		if ev.From != c.server {
			ev.Release()
			continue
		}
		switch ev.What {
		case transport.LinkLost:
			c.fail(ev.Err, true)
		case transport.LinkBack:
			// What the server still does for requests from before has no reader.
			_ = c.send(ctx, request{Op: opReset}, nil)
			c.lock.Lock()
			c.down = nil
			c.lock.Unlock()
		case transport.Received:
			var a answer
			err := a.parse(ev.Head)
			switch {
			case ev.Kind != kindAnswer:
				err = fmt.Errorf("want an answer, found a frame of kind %d", ev.Kind)
			case err == nil && a.ID == 0:
				if err = a.err(c.server); err == nil {
					err = errors.New("the link was lost for a moment")
				}
			}
			if err != nil {
				c.fail(err, false)
				break
			}
			c.deliver(a, append([]byte{}, ev.Payload...))
		}
		ev.Release()
	}
}

func (c *Client) deliver(a answer, value []byte) {
	c.lock.Lock()
	defer c.lock.Unlock()
	to := c.under[a.ID]
	if to == nil {
		return // nobody waits any more
	}
	r := result{kv: cluster.KV{Key: string(a.Key), Rev: a.Rev, Lease: a.Lease}, err: a.err(c.server)}
	if a.HasValue {
		r.kv.Value = value
	}
	select {
	case to <- r:
	default:
		// The server sends more than the watch has room for: it breaks the protocol. What came so far is in order.
		delete(c.under, a.ID)
		close(to)
	}
}

// fail ends all that is under way, and, if the client is down, what is asked from now on.
func (c *Client) fail(err error, down bool) {
	err = c.unavailable(err)
	c.lock.Lock()
	defer c.lock.Unlock()
	if down {
		c.down = err
	}
	for id, to := range c.under {
		delete(c.under, id)
		close(to)
	}
}

func (c *Client) unavailable(err error) error {
	return fmt.Errorf("meta: %w: the link to %s, which serves it: %w", protocol.ErrUnavailable, c.server, err)
}

// begin numbers a request and makes room for its answers, before it is sent.
func (c *Client) begin(room int) (uint64, chan result, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.down != nil {
		return 0, nil, c.down
	}
	c.last++
	to := make(chan result, room)
	c.under[c.last] = to
	return c.last, to, nil
}

func (c *Client) drop(id uint64) {
	c.lock.Lock()
	defer c.lock.Unlock()
	delete(c.under, id)
}

func (c *Client) send(ctx context.Context, q request, value []byte) error {
	head, err := control.Append(nil, q)
	if err != nil {
		return err
	}
	return c.stream.Send(ctx, c.server, transport.Frame{
		Kind: kindRequest, Priority: transport.Control, Head: head, Payload: value, Done: func(err error) {
			if err == nil || q.ID == 0 {
				return
			}
			c.lock.Lock()
			defer c.lock.Unlock()
			if to := c.under[q.ID]; to != nil {
				delete(c.under, q.ID)
				close(to)
			}
		},
	})
}

// ask sends a request and waits for its answer.
func (c *Client) ask(ctx context.Context, what string, q request, value []byte) (cluster.KV, error) {
	if err := ctx.Err(); err != nil {
		return cluster.KV{}, fmt.Errorf("meta: %s: %w", what, err)
	}
	if end, ok := ctx.Deadline(); ok {
		q.Limit = max(time.Until(end), 1)
	}
	id, answers, err := c.begin(1)
	if err != nil {
		return cluster.KV{}, err
	}
	defer c.drop(id)
	q.ID, q.HasValue = id, value != nil
	if err := c.send(ctx, q, append([]byte{}, value...)); err != nil {
		return cluster.KV{}, fmt.Errorf("meta: %s: %w", what, c.gaveUp(ctx, err))
	}
	select {
	case r, ok := <-answers:
		if !ok {
			return cluster.KV{}, fmt.Errorf("meta: %s: %w", what, c.unavailable(transport.ErrLinkLost))
		}
		return r.kv, r.err
	case <-ctx.Done():
		c.cancel(id)
		return cluster.KV{}, fmt.Errorf("meta: %s: %w", what, c.gaveUp(ctx, ctx.Err()))
	}
}

// gaveUp is the error of a request that was not answered. Who cancels it knows why; else the store was too slow, or is out of reach.
func (c *Client) gaveUp(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return c.unavailable(err)
}

// cancel tells the server that nobody waits for a request any more. It must not keep the caller, whose time is over.
func (c *Client) cancel(id uint64) {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer stop()
	_ = c.send(ctx, request{Op: opCancel, ID: id}, nil)
}

// Get implements cluster.Meta.
func (c *Client) Get(ctx context.Context, key string) (cluster.KV, error) {
	if err := check(ctx, key, nil); err != nil {
		return cluster.KV{Key: key}, err
	}
	kv, err := c.ask(ctx, fmt.Sprintf("get %q", key), request{Op: opGet, Key: control.Bytes(key)}, nil)
	kv.Key = key
	return kv, err
}

// PutIf implements cluster.Meta.
func (c *Client) PutIf(ctx context.Context, key string, val []byte, rev int64, l cluster.Lease) (int64, error) {
	if err := check(ctx, key, val); err != nil {
		return 0, err
	}
	kv, err := c.ask(ctx, fmt.Sprintf("put %q", key), request{Op: opPutIf, Key: control.Bytes(key), Rev: rev, Lease: l}, val)
	return kv.Rev, err
}

// Grant implements cluster.Meta.
func (c *Client) Grant(ctx context.Context, ttl time.Duration) (cluster.Lease, error) {
	kv, err := c.ask(ctx, "grant", request{Op: opGrant, TTL: ttl}, nil)
	return cluster.Lease(kv.Lease), err
}

// Keep implements cluster.Meta.
func (c *Client) Keep(ctx context.Context, l cluster.Lease) error {
	_, err := c.ask(ctx, fmt.Sprintf("keep lease %d", l), request{Op: opKeep, Lease: l}, nil)
	return err
}

// Revoke implements cluster.Meta.
func (c *Client) Revoke(ctx context.Context, l cluster.Lease) error {
	_, err := c.ask(ctx, fmt.Sprintf("revoke lease %d", l), request{Op: opRevoke, Lease: l}, nil)
	return err
}

// Campaign implements cluster.Meta. The lease behind the term is kept by this process, so that the term ends with it.
func (c *Client) Campaign(ctx context.Context, key string, val []byte) (cluster.Term, error) {
	return Campaign(ctx, c, key, val, 0)
}

// Watch implements cluster.Meta.
func (c *Client) Watch(ctx context.Context, prefix string, rev int64) iter.Seq2[cluster.KV, error] {
	return func(yield func(cluster.KV, error) bool) {
		last := rev
		fail := func(err error) { yield(cluster.KV{Rev: last}, fmt.Errorf("meta: watch %q: %w", prefix, err)) }
		if len(prefix) > MaxKey {
			fail(fmt.Errorf("a prefix has at most %d bytes, got %d", MaxKey, len(prefix)))
			return
		}
		if err := ctx.Err(); err != nil {
			fail(err)
			return
		}
		id, answers, err := c.begin(watchAhead + 1) // the last one, with the error, comes without room being given
		if err != nil {
			fail(err)
			return
		}
		defer c.drop(id)
		if err := c.send(ctx, request{Op: opWatch, ID: id, Key: control.Bytes(prefix), Rev: rev}, nil); err != nil {
			fail(c.gaveUp(ctx, err))
			return
		}
		for taken := 0; ; {
			select {
			case r, ok := <-answers:
				if !ok {
					fail(c.unavailable(transport.ErrLinkLost))
					return
				}
				if last = r.kv.Rev; r.err != nil {
					yield(cluster.KV{Rev: last}, r.err)
					return
				}
				if !yield(r.kv, nil) {
					c.cancel(id)
					return
				}
				if taken++; taken == watchAhead/2 {
					// If it does not get through, the link is lost, and that ends the watch.
					_ = c.send(ctx, request{Op: opMore, ID: id, Rev: int64(taken)}, nil)
					taken = 0
				}
			case <-ctx.Done():
				c.cancel(id)
				fail(ctx.Err())
				return
			}
		}
	}
}
