package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// A Client is the blob.Store that a server serves. It answers only while Run runs.
type Client struct {
	s      transport.Stream
	server transport.Name
	next   atomic.Uint64

	mu      sync.Mutex
	waiting map[uint64]chan reply
	err     error // Run has ended
}

// A LostError says that the link to the server broke while it was asked. Whether it did what it was asked is not known.
type LostError struct {
	Server transport.Name
	err    error
}

func (e *LostError) Error() string { return e.err.Error() }

// Unwrap returns an error that is transport.ErrLinkLost, and the link's own.
func (e *LostError) Unwrap() error { return e.err }

type reply struct {
	head, payload []byte
	err           error
}

// NewClient returns the store that server serves on s. s is the client's alone.
func NewClient(s transport.Stream, server transport.Name) *Client {
	return &Client{s: s, server: server, waiting: map[uint64]chan reply{}}
}

var _ blob.Store = (*Client)(nil)

// Run hands answers to those who wait, until ctx ends or the stream is closed.
func (c *Client) Run(ctx context.Context) error {
	for {
		ev, err := c.s.Recv(ctx)
		if err != nil {
			c.fail(err, true)
			return err
		}
		if ev.From == c.server {
			c.take(&ev)
		}
		ev.Release()
	}
}

func (c *Client) take(ev *transport.Event) {
	switch {
	case ev.What == transport.LinkLost:
		c.fail(fmt.Errorf("%w: %w", transport.ErrLinkLost, ev.Err), false)
	case ev.What == transport.Received && ev.Kind&answer != 0:
		c.mu.Lock()
		ch := c.waiting[uint64(ev.Op)]
		delete(c.waiting, uint64(ev.Op))
		c.mu.Unlock()
		if ch != nil {
			ch <- reply{head: append([]byte(nil), ev.Head...), payload: append([]byte(nil), ev.Payload...)}
		}
	}
}

// fail ends all requests under way; for good, those to come too.
func (c *Client) fail(err error, forGood bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if forGood && c.err == nil {
		c.err = fmt.Errorf("blob: the store at %v is not reached any more: %w", c.server, err)
	}
	for op, ch := range c.waiting {
		delete(c.waiting, op)
		ch <- reply{err: err}
	}
}

// call sends a request and waits for its answer.
func (c *Client) call(ctx context.Context, q request, payload []byte) (uint64, reply, error) {
	op := c.next.Add(1)
	ch := make(chan reply, 1)
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return op, reply{}, c.err
	}
	c.waiting[op] = ch
	c.mu.Unlock()
	err := c.s.Send(ctx, c.server, transport.Frame{
		Kind: q.kind, Key: transport.Key{Op: wire.Op(op)}, Head: q.append(nil), Payload: payload,
	})
	var r reply
	if err == nil {
		select {
		case r = <-ch:
			err = r.err
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		c.mu.Lock()
		delete(c.waiting, op)
		c.mu.Unlock()
		if err = fmt.Errorf("blob: %q at %v: %w", q.key, c.server, err); errors.Is(err, transport.ErrLinkLost) {
			err = &LostError{c.server, err}
		}
		return op, r, err
	}
	head := wire.NewReader("blob answer", r.head)
	return op, r, readError(head)
}

// Put is that of blob.Store.
func (c *Client) Put(ctx context.Context, key string, r io.Reader) error {
	return c.put(ctx, key, r, false)
}

// PutIfAbsent is that of blob.Store.
func (c *Client) PutIfAbsent(ctx context.Context, key string, r io.Reader) error {
	return c.put(ctx, key, r, true)
}

func (c *Client) put(ctx context.Context, key string, r io.Reader, absent bool) error {
	if err := blob.CheckKey(key); err != nil {
		return err
	}
	write, _, err := c.call(ctx, request{kind: begin, key: key, absent: absent}, nil)
	if err == nil {
		err = c.pieces(ctx, key, write, r)
	}
	if err == nil {
		_, _, err = c.call(ctx, request{kind: commit, key: key, write: write}, nil)
	}
	if err != nil { // the server may have the write open: if it does not, it says nothing of that
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWait)
		defer cancel()
		_, _, _ = c.call(ctx, request{kind: abort, key: key, write: write}, nil) // a server that is lost drops what this client wrote
	}
	return err
}

// abortWait is for how long a server is told that a write was given up: it may be frozen.
const abortWait = time.Second

func (c *Client) pieces(ctx context.Context, key string, write uint64, r io.Reader) error {
	buffer := make([]byte, Piece)
	for {
		n, last, err := readPiece(r, buffer)
		if err != nil {
			return err
		}
		if n > 0 {
			if _, _, err := c.call(ctx, request{kind: piece, key: key, write: write}, buffer[:n]); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

// readPiece fills p, or reads what is left of r. io.ReadFull tells its end no better from an error that speaks of one, such as that of a
// file which was cut off or of a link which broke: what came before would pass for the whole object.
func readPiece(r io.Reader, p []byte) (n int, last bool, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = r.Read(p[n:])
		n += m
	}
	if err == io.EOF {
		return n, true, nil
	}
	return n, false, err
}

// Get is that of blob.Store. The object is read in pieces as the reader is: one that is replaced meanwhile gives an error or pieces of
// both, as its size tells; checkpoints carry checksums.
func (c *Client) Get(ctx context.Context, key string, from, length int64) (io.ReadCloser, error) {
	if err := blob.CheckKey(key); err != nil {
		return nil, err
	}
	g := &getter{ctx: ctx, c: c, key: key, from: from, left: length}
	if length < 0 {
		g.left = 1<<62 - from
	}
	if err := g.fill(); err != nil { // not even the io.EOF of a link that broke, which is no end of an object
		return nil, err
	}
	return g, nil
}

// A getter reads an object piece by piece. It keeps the context of its Get, whose reader it is.
type getter struct {
	ctx        context.Context
	c          *Client
	key        string
	from, left int64
	piece      []byte
	end        bool
}

func (g *getter) fill() error {
	if g.end {
		return io.EOF
	}
	want := min(g.left, Piece)
	_, r, err := g.c.call(g.ctx, request{kind: get, key: g.key, from: g.from, length: want}, nil)
	if err != nil {
		return err
	}
	g.piece = r.payload
	g.from += int64(len(r.payload))
	g.left -= int64(len(r.payload))
	g.end = int64(len(r.payload)) < want || g.left == 0
	return nil
}

func (g *getter) Read(p []byte) (int, error) {
	for len(g.piece) == 0 {
		if err := g.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, g.piece)
	g.piece = g.piece[n:]
	return n, nil
}

func (g *getter) Close() error {
	g.end, g.piece = true, nil
	return nil
}

// List is that of blob.Store.
func (c *Client) List(ctx context.Context, prefix string) ([]blob.Object, error) {
	_, r, err := c.call(ctx, request{kind: list, key: prefix}, nil)
	if err != nil {
		return nil, err
	}
	return decodeObjects(r.payload)
}

// Delete is that of blob.Store.
func (c *Client) Delete(ctx context.Context, key string) error {
	if err := blob.CheckKey(key); err != nil {
		return err
	}
	_, _, err := c.call(ctx, request{kind: remove, key: key}, nil)
	return err
}
