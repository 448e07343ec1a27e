package ps

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
)

// A Client is this process's access to tables: one session, one cache, one entry in every vector clock, one or more workers.
type Client struct {
	h     *Host
	owns  bool // h is its own
	part  *part
	state *ClientState
}

// Open joins a job's parameter server with the tables that this process uses, and returns once it takes part. The stream is one that
// was opened with StreamOptions; it stays open. Its port knows where the directory and the servers are, who hear of a client from itself.
// They may start later: Open asks until ctx ends. Of one that the port does not know it is an error at once.
func Open(ctx context.Context, s transport.Stream, p Placement, tables []Spec, o Options) (*Client, error) {
	h := Share(s, o.Log)
	c, err := h.Open(ctx, p, tables, o)
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	c.owns = true
	return c, nil
}

// Open is the function Open, on a shared stream. One that gave up by its context may be repeated with the same tables: it is the same session,
// which the directory may have let in meanwhile.
func (h *Host) Open(ctx context.Context, p Placement, tables []Spec, o Options) (*Client, error) {
	if o.Session == 0 {
		h.mu.Lock()
		o.Session, h.gaveUp = h.gaveUp, 0
		h.mu.Unlock()
	}
	if o.Session == 0 {
		o.Session = drawSession()
	}
	s, err := NewClientState(p, h.s.Self(), tables, o)
	if err != nil {
		return nil, err
	}
	c := &Client{h: h, state: s, part: h.newPart(s)}
	c.part.lands = true
	if err := h.add(forClient, 0, c.part); err != nil {
		return nil, err
	}
	c.part.step(protocol.Start{})
	if _, err := c.Call(ctx, openCall{}); err != nil {
		c.part.close()
		if ctx.Err() != nil {
			h.mu.Lock()
			h.gaveUp = o.Session
			h.mu.Unlock()
		}
		return nil, err
	}
	return c, nil
}

func drawSession() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.LittleEndian.Uint64(b[:]) | 1
}

// Lock and Unlock are for workers, which a Client drives.
func (c *Client) Lock() { c.part.mu.Lock() }

// Unlock is Lock's other half.
func (c *Client) Unlock() { c.part.mu.Unlock() }

// Call makes Client a Driver.
func (c *Client) Call(ctx context.Context, arg any) (any, error) {
	ch, _ := c.h.replies.Get().(chan reply)
	if ch == nil {
		ch = make(chan reply, 1)
	}
	r, err := c.part.call(ctx, ch, arg)
	if err == nil {
		c.h.replies.Put(ch)
	}
	return r, err
}

// CreateTable defines a table, at any time: once it returns, servers and workers have it. One definition wins: the same again is no error,
// another under that name is one, which says in what they differ.
func (c *Client) CreateTable(ctx context.Context, s Spec) error {
	_, err := c.Call(ctx, createCall{s})
	return err
}

// Worker returns a new worker. The first Options.Workers begin at the client's first round, later ones at its clock.
func (c *Client) Worker(ctx context.Context) (*Worker, error) { return NewWorker(ctx, c) }

// Counters returns the client's.
func (c *Client) Counters() Counters {
	c.Lock()
	defer c.Unlock()
	return c.state.Counters
}

// Start is the client's first round.
func (c *Client) Start() Clock {
	c.Lock()
	defer c.Unlock()
	return c.state.start
}

// Close ends the client and waits for its goroutines. Who has not finished is waited for by others until it is counted as lost. It is an
// error if rounds were never sent because fewer workers were made than Options.Workers.
func (c *Client) Close() error {
	c.Lock()
	err := c.state.unmade()
	c.Unlock()
	c.part.step(protocol.Stop{})
	c.part.close()
	if c.owns {
		return errors.Join(err, c.h.Close())
	}
	return err
}

// Serve holds this process's shards until ctx ends.
func Serve(ctx context.Context, s transport.Stream, p Placement, o ServerOptions) error {
	h := Share(s, o.Log)
	return errors.Join(h.Serve(ctx, p, o), h.Close())
}

// Serve is the function Serve, on a shared stream.
func (h *Host) Serve(ctx context.Context, p Placement, o ServerOptions) error {
	p = p.withDefaults()
	self := p.index(h.s.Self())
	if self < 0 {
		return fmt.Errorf("ps: serve: %s is no server of the placement", h.s.Self())
	}
	var parts []*part
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		for _, x := range parts {
			x.close()
		}
		wg.Wait()
	}()
	if o.Store != nil {
		o.Store = boundStore{ctx, o.Store}
	}
	for l := range p.Lanes {
		s, err := NewServerState(p, self*p.Lanes+l, o)
		if err != nil {
			return err
		}
		x := h.newPart(s)
		if p.Lanes > 1 {
			x.queue = make(chan protocol.Message, 64)
			wg.Go(func() { x.run(ctx) })
		}
		parts = append(parts, x)
	}
	for l := range parts { // from the last on: lanes are addressed by their number
		k := len(parts) - 1 - l
		if err := h.add(forServer, k, parts[k]); err != nil {
			return err
		}
	}
	h.watchRefusals(o.Trace.Refused)
	defer h.watchRefusals(nil)
	for _, x := range parts {
		x.step(protocol.Start{})
	}
	select {
	case <-ctx.Done():
		return nil
	case <-h.ctx.Done():
		return nil
	case <-parts[0].ended:
		return parts[0].exit
	}
}

// run steps a lane of its own.
func (p *part) run(ctx context.Context) {
	defer func() {
		p.fail(nil)
		for len(p.queue) > 0 {
			giveUp((<-p.queue).Body)
		}
	}()
	for {
		select {
		case m := <-p.queue:
			p.step(m)
		case <-ctx.Done():
			return
		case <-p.h.ctx.Done():
			return
		}
	}
}

// A Directory decides who takes part and which tables there are. A job has one.
type Directory struct {
	h    *Host
	owns bool
	part *part
}

// Direct runs the directory of a placement until Close. Servers that have followed another follow no second one: in this version nobody
// succeeds a directory.
func Direct(s transport.Stream, p Placement, o DirectoryOptions) (*Directory, error) {
	h := Share(s, o.Log)
	d, err := h.Direct(p, o)
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	d.owns = true
	return d, nil
}

// Direct is the function Direct, on a shared stream.
func (h *Host) Direct(p Placement, o DirectoryOptions) (*Directory, error) {
	if self := h.s.Self(); p.Directory != self {
		return nil, fmt.Errorf("ps: direct: %s is not the directory of the placement, %s is", self, p.Directory)
	}
	if o.Session == 0 {
		o.Session = drawSession()
	}
	s, err := NewDirectoryState(p, o)
	if err != nil {
		return nil, err
	}
	d := &Directory{h: h, part: h.newPart(s)}
	if err := h.add(forDirectory, 0, d.part); err != nil {
		return nil, err
	}
	d.part.step(protocol.Start{})
	return d, nil
}

func (d *Directory) call(ctx context.Context, arg any) (any, error) {
	return d.part.call(ctx, make(chan reply, 1), arg)
}

// Snapshot writes what all tables are at a round that nobody has begun, while training goes on: servers to their own stores, each lane
// its shards and then an index of them; the manifest, which names the indexes, last, to this one. It returns where the manifest is, and
// the round: the snapshot holds exactly those below. To go on from it, all of these stores are to be one (DirectoryOptions.Restore).
func (d *Directory) Snapshot(ctx context.Context, to Store) (SnapshotResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // Close does not wait for a store that answers no more
	r, err := d.call(ctx, snapshotCall{boundStore{ctx, to}})
	if err != nil {
		return SnapshotResult{}, err
	}
	return r.(SnapshotResult), nil
}

// Lost says that a client is gone: its session ends at the last round that is complete on every server, and the others go on.
// Of one that is lost already, or has finished, it changes nothing. One that has not come yet, whose process may have asked to be let in before
// it was gone, is not let in: of at most MaxClients such names, and of more it is an error.
func (d *Directory) Lost(ctx context.Context, client Name) error {
	_, err := d.call(ctx, lostCall{client})
	return err
}

// Config returns what is decided.
func (d *Directory) Config(ctx context.Context) (*Config, error) {
	r, err := d.call(ctx, configCall{})
	if err != nil {
		return nil, err
	}
	return r.(*Config), nil
}

// Close ends the directory. Servers and clients go on with what is decided; nobody succeeds it in this version, so that no client is let in
// any more, no table defined, no client counted as lost, and no snapshot cut.
func (d *Directory) Close() error {
	d.part.step(protocol.Stop{})
	d.part.close()
	if d.owns {
		return d.h.Close()
	}
	return nil
}
