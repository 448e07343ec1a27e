package sim

import (
	"context"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/protocol"
)

// A RemoteMeta is a metadata store as one node of a Network reaches it: over a link, which faults cut or slow down. While it is away, a
// call ends with protocol.ErrUnavailable after Options.MetaWait, or at once where it restarts; what was asked before may have been done.
// A watch that is cut ends with that error, and its last revision.
type RemoteMeta struct {
	n    *Network
	node Node
	of   cluster.Meta
	// Hold, if set, does Campaign over this store's other methods, so that faults reach it: meta.Campaign does. If nil, the
	// store's own does it, which faults then reach only at its beginning.
	Hold func(ctx context.Context, m cluster.Meta, key string, val []byte) (cluster.Term, error)
}

var _ cluster.Meta = (*RemoteMeta)(nil)

// Meta returns the store as the node reaches it.
func (n *Network) Meta(node Node, of cluster.Meta) *RemoteMeta {
	return &RemoteMeta{n: n, node: node, of: of}
}

// path says whether the store is reached, how long one way takes, whether who is not reached is told at once, and what is closed when
// any of that changes.
func (m *RemoteMeta) path() (reached bool, trip int64, refused bool, changed <-chan struct{}) {
	n := m.n
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.w
	me := w.nodes[m.node]
	me.asks++
	return !w.store.away && !me.metaCut && !n.down[m.node], w.store.trip(w, me, drawMeta, me.asks), w.store.refuses, n.changed
}

// unavailable waits until the caller has waited long enough for an answer, and returns its error.
func (m *RemoteMeta) unavailable(ctx context.Context, what string, since time.Time, refused bool) error {
	if !refused {
		if err := sleep(ctx, int64(m.n.w.o.MetaWait-time.Since(since))); err != nil {
			return fmt.Errorf("sim: %s: %w", what, err)
		}
	}
	return fmt.Errorf("sim: %s: %w", what, protocol.ErrUnavailable)
}

// travel is one way to the store, or back.
func (m *RemoteMeta) travel(ctx context.Context, what string, begun time.Time) error {
	reached, trip, refused, _ := m.path()
	if reached {
		if err := sleep(ctx, trip); err != nil {
			return fmt.Errorf("sim: %s: %w", what, err)
		}
		reached, _, refused, _ = m.path()
	}
	if !reached {
		return m.unavailable(ctx, what, begun, refused)
	}
	return nil
}

// ask does f at the store, with a trip there and one back.
func ask[T any](ctx context.Context, m *RemoteMeta, what string, f func() (T, error)) (T, error) {
	var none T
	begun := time.Now()
	if err := m.travel(ctx, what, begun); err != nil {
		return none, err
	}
	answer, err := f()
	if lost := m.travel(ctx, what, begun); lost != nil {
		return none, lost
	}
	return answer, err
}

// Get is cluster.Meta's.
func (m *RemoteMeta) Get(ctx context.Context, key string) (cluster.KV, error) {
	return ask(ctx, m, "get "+key, func() (cluster.KV, error) { return m.of.Get(ctx, key) })
}

// PutIf is cluster.Meta's.
func (m *RemoteMeta) PutIf(ctx context.Context, key string, val []byte, rev int64, l cluster.Lease) (int64, error) {
	return ask(ctx, m, "put "+key, func() (int64, error) { return m.of.PutIf(ctx, key, val, rev, l) })
}

// Grant is cluster.Meta's.
func (m *RemoteMeta) Grant(ctx context.Context, ttl time.Duration) (cluster.Lease, error) {
	return ask(ctx, m, "grant a lease", func() (cluster.Lease, error) { return m.of.Grant(ctx, ttl) })
}

// Keep is cluster.Meta's.
func (m *RemoteMeta) Keep(ctx context.Context, l cluster.Lease) error {
	_, err := ask(ctx, m, fmt.Sprintf("keep lease %d", l), func() (struct{}, error) { return struct{}{}, m.of.Keep(ctx, l) })
	return err
}

// Revoke is cluster.Meta's.
func (m *RemoteMeta) Revoke(ctx context.Context, l cluster.Lease) error {
	_, err := ask(ctx, m, fmt.Sprintf("revoke lease %d", l), func() (struct{}, error) { return struct{}{}, m.of.Revoke(ctx, l) })
	return err
}

// Campaign is cluster.Meta's. See Hold.
func (m *RemoteMeta) Campaign(ctx context.Context, key string, val []byte) (cluster.Term, error) {
	if m.Hold != nil {
		return m.Hold(ctx, m, key, val)
	}
	if reached, _, refused, _ := m.path(); !reached {
		return cluster.Term{}, m.unavailable(ctx, "campaign for "+key, time.Now(), refused)
	}
	return m.of.Campaign(ctx, key, val)
}

// Watch is cluster.Meta's.
func (m *RemoteMeta) Watch(ctx context.Context, prefix string, rev int64) iter.Seq2[cluster.KV, error] {
	return func(yield func(cluster.KV, error) bool) {
		inner, cancel := context.WithCancel(ctx)
		type change struct {
			kv  cluster.KV
			err error
		}
		changes := make(chan change)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for kv, err := range m.of.Watch(inner, prefix, rev) {
				select {
				case changes <- change{kv, err}:
				case <-inner.Done():
					return
				}
			}
			close(changes)
		}()
		defer func() { cancel(); <-ended }()
		last, begun := rev, time.Now()
		cut := func(refused bool) { yield(cluster.KV{Rev: last}, m.unavailable(ctx, "watch "+prefix, begun, refused)) }
		for {
			reached, trip, refused, changed := m.path()
			if !reached {
				cut(refused)
				return
			}
			select {
			case <-changed:
				begun = time.Now()
			case <-ctx.Done():
				yield(cluster.KV{Rev: last}, fmt.Errorf("sim: watch %s: %w", prefix, ctx.Err()))
				return
			case c, ok := <-changes:
				if !ok {
					return
				}
				if c.err == nil {
					if err := sleep(ctx, trip); err != nil {
						yield(cluster.KV{Rev: last}, fmt.Errorf("sim: watch %s: %w", prefix, err))
						return
					}
					if reached, _, refused, _ := m.path(); !reached {
						cut(refused) // with the change; whoever watches again gets it
						return
					}
					last = c.kv.Rev
				}
				if !yield(c.kv, c.err) {
					return
				}
			}
		}
	}
}

// Blob returns the store as the node's disk keeps it: writes fail, run out of space or stop short as the faults in force say. What the
// store promises of a write that fails must hold all the same: the old object stays.
func (n *Network) Blob(node Node, of blob.Store) blob.Store {
	return &disked{Store: of, n: n, node: node}
}

// disked is a blob.Store on a disk that fails.
type disked struct {
	blob.Store
	n    *Network
	node Node
}

func (d *disked) Put(ctx context.Context, key string, r io.Reader) error {
	r, err := d.fail(key, r)
	if err != nil {
		return err
	}
	return d.Store.Put(ctx, key, r)
}

func (d *disked) PutIfAbsent(ctx context.Context, key string, r io.Reader) error {
	r, err := d.fail(key, r)
	if err != nil {
		return err
	}
	return d.Store.PutIfAbsent(ctx, key, r)
}

// fail returns what a write meets: an error, or a reader that ends in one.
func (d *disked) fail(key string, r io.Reader) (io.Reader, error) {
	n := d.n
	n.mu.Lock()
	defer n.mu.Unlock()
	node := n.w.nodes[d.node]
	node.stores++
	switch k := &node.disk; {
	case n.down[d.node]:
		return nil, fmt.Errorf("sim: write %s: %w", key, ErrDown)
	case k.failing:
		return nil, fmt.Errorf("sim: write %s: %w", key, errIO)
	case k.full:
		return nil, fmt.Errorf("sim: write %s: %w", key, errFull)
	case k.short, k.torn:
		return &shortReader{r: r, left: upTo(n.w.bits(node, drawShort, node.stores), 4096), key: key}, nil
	}
	return r, nil
}

// shortReader passes so many bytes on, and then fails.
type shortReader struct {
	r    io.Reader
	left int64
	key  string
}

func (s *shortReader) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, fmt.Errorf("sim: write %s: %w", s.key, io.ErrShortWrite)
	}
	n, err := s.r.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	if err == io.EOF { // shorter than the disk's mood: it fails at the end
		err = fmt.Errorf("sim: write %s: %w", s.key, io.ErrShortWrite)
	}
	return n, err
}
