// Package meta holds the metadata stores that need nothing from outside: [Memory], and a store that is [Serve]d to other processes,
// which reach it as a [Client]. Package cluster/meta/etcd has the one that is etcd.
//
// A process that starts others keeps a Memory and serves it on their streams, so that a job on one machine needs no etcd:
//
//	store := meta.NewMemory(meta.Options{})
//	go meta.Serve(ctx, store, stream)
//
// and each child has
//
//	client := meta.NewClient(stream, parent)
//	defer client.Close()
//	rev, err := client.PutIf(ctx, "view", record, 0, 0)
//
// What all stores must keep to is tested by package cluster/meta/metatest.
package meta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/protocol"
)

// MaxKey is the largest length of a key, in bytes.
const MaxKey = 1024

// A Memory is a store in this process. It ends with the process. Its methods may be called from any goroutine. Its clock is package
// time's, so that in a bubble of testing/synctest its leases run in virtual time.
type Memory struct {
	options Options

	lock    sync.Mutex
	closed  bool
	rev     int64 // of the last change
	lease   cluster.Lease
	keys    map[string]cluster.KV
	leases  map[cluster.Lease]*lease
	history []cluster.KV  // the last changes, one a revision, without gaps
	bytes   int           // what they hold
	changed chan struct{} // closed at the next change
}

// Options of a Memory. The zero value works.
type Options struct {
	History      int           // changes that are kept for watches that fall behind; 0: 4,096
	HistoryBytes int           // bytes of keys and values that they hold at most; 0: 16 MiB
	TermTTL      time.Duration // time to live of the lease behind a Campaign; 0: 5 s
}

// A lease is alive until its deadline. The timer may fire early, just as somebody moves the deadline.
type lease struct {
	ttl      time.Duration
	deadline time.Time
	timer    *time.Timer
	keys     map[string]struct{}
}

var _ cluster.Meta = (*Memory)(nil)

// NewMemory returns an empty store. Close ends it.
func NewMemory(o Options) *Memory {
	if o.History <= 0 {
		o.History = 4096
	}
	if o.HistoryBytes <= 0 {
		o.HistoryBytes = 16 << 20
	}
	return &Memory{
		options: o, keys: map[string]cluster.KV{}, leases: map[cluster.Lease]*lease{}, changed: make(chan struct{}),
	}
}

var errClosed = fmt.Errorf("meta: the store was closed: %w", protocol.ErrUnavailable)

// Get implements cluster.Meta.
func (m *Memory) Get(ctx context.Context, key string) (cluster.KV, error) {
	if err := check(ctx, key, nil); err != nil {
		return cluster.KV{Key: key}, err
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.closed {
		return cluster.KV{Key: key}, errClosed
	}
	kv := m.keys[key]
	kv.Key, kv.Value = key, bytes.Clone(kv.Value)
	return kv, nil
}

// PutIf implements cluster.Meta. To delete a key that is absent changes nothing and returns 0.
func (m *Memory) PutIf(ctx context.Context, key string, val []byte, rev int64, l cluster.Lease) (int64, error) {
	if err := check(ctx, key, val); err != nil {
		return 0, err
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.closed {
		return 0, errClosed
	}
	if found := m.keys[key].Rev; found != rev {
		return 0, Conflict(key, rev, found)
	}
	if val == nil {
		if rev == 0 {
			return 0, nil
		}
		return m.change(key, nil, 0), nil
	}
	if l != 0 && m.leases[l] == nil {
		return 0, fmt.Errorf("meta: put %q under lease %d: %w", key, l, cluster.ErrLeaseLost)
	}
	return m.change(key, append(make([]byte, 0, len(val)), val...), l), nil // not Clone: an empty value is not nil
}

// Conflict is the error of a PutIf that wants a key at revision want and finds it at another.
func Conflict(key string, want, found int64) error {
	say := func(rev int64) string {
		if rev == 0 {
			return "absent"
		}
		return fmt.Sprintf("at revision %d", rev)
	}
	return fmt.Errorf("meta: put %q: want it %s, found it %s: %w", key, say(want), say(found), protocol.ErrConflict)
}

// change writes a key, or deletes it where val is nil, and wakes the watches.
func (m *Memory) change(key string, val []byte, l cluster.Lease) int64 {
	m.rev++
	if old := m.leases[cluster.Lease(m.keys[key].Lease)]; old != nil {
		delete(old.keys, key)
	}
	kv := cluster.KV{Key: key, Value: val, Rev: m.rev, Lease: int64(l)}
	if val == nil {
		delete(m.keys, key)
	} else {
		m.keys[key] = kv
		if l != 0 {
			m.leases[l].keys[key] = struct{}{}
		}
	}
	m.history = append(m.history, kv)
	m.bytes += len(key) + len(val)
	drop := 0
	for len(m.history)-drop > m.options.History || m.bytes > m.options.HistoryBytes && drop < len(m.history)-1 {
		m.bytes -= len(m.history[drop].Key) + len(m.history[drop].Value)
		drop++
	}
	clear(m.history[:drop])
	m.history = m.history[drop:]
	close(m.changed)
	m.changed = make(chan struct{})
	return m.rev
}

// Watch implements cluster.Meta. A walk that is slower than the changes falls out of the history that is kept, and ends with
// cluster.ErrCompacted; it holds nobody up.
func (m *Memory) Watch(ctx context.Context, prefix string, rev int64) iter.Seq2[cluster.KV, error] {
	return func(yield func(cluster.KV, error) bool) {
		fromStart := rev == 0
		last := rev // the revision that the consumer may watch from again
		for at := rev; ; {
			if err := ctx.Err(); err != nil {
				yield(cluster.KV{Rev: last}, fmt.Errorf("meta: watch %q: %w", prefix, err))
				return
			}
			found, now, changed, err := m.since(prefix, at, fromStart)
			if err != nil {
				if errors.Is(err, cluster.ErrCompacted) {
					last = 0
				}
				yield(cluster.KV{Rev: last}, fmt.Errorf("meta: watch %q after revision %d: %w", prefix, at, err))
				return
			}
			for _, kv := range found {
				kv.Value = bytes.Clone(kv.Value)
				if last = kv.Rev; !yield(kv, nil) {
					return
				}
				if ctx.Err() != nil {
					break
				}
			}
			at, fromStart = now, false
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}
}

// since returns what changed after rev, the revision up to which that is so, and a channel that is closed at the next change.
func (m *Memory) since(prefix string, rev int64, fromStart bool) ([]cluster.KV, int64, <-chan struct{}, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	var found []cluster.KV
	switch first := m.rev - int64(len(m.history)) + 1; {
	case m.closed:
		return nil, 0, nil, errClosed
	case fromStart:
		for key, kv := range m.keys {
			if strings.HasPrefix(key, prefix) {
				found = append(found, kv)
			}
		}
		slices.SortFunc(found, func(a, b cluster.KV) int { return int(a.Rev - b.Rev) })
	case rev+1 < first:
		return nil, 0, nil, fmt.Errorf("the oldest that is kept is %d: %w", first, cluster.ErrCompacted)
	case rev > m.rev:
		return nil, 0, nil, fmt.Errorf("the store is at %d, so this revision is from another: %w", m.rev, cluster.ErrCompacted)
	default:
		for _, kv := range m.history[rev+1-first:] {
			if strings.HasPrefix(kv.Key, prefix) {
				found = append(found, kv)
			}
		}
	}
	return found, m.rev, m.changed, nil
}

// Grant implements cluster.Meta.
func (m *Memory) Grant(ctx context.Context, ttl time.Duration) (cluster.Lease, error) {
	if ttl <= 0 {
		return 0, fmt.Errorf("meta: grant: a lease must live longer than 0, got %v", ttl)
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("meta: grant: %w", err)
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.closed {
		return 0, errClosed
	}
	m.lease++
	id := m.lease
	m.leases[id] = &lease{
		ttl: ttl, deadline: time.Now().Add(ttl), keys: map[string]struct{}{}, timer: time.AfterFunc(ttl, func() { m.expire(id) }),
	}
	return id, nil
}

// Keep implements cluster.Meta.
func (m *Memory) Keep(ctx context.Context, l cluster.Lease) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("meta: keep lease %d: %w", l, err)
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.closed {
		return errClosed
	}
	held := m.leases[l]
	if held != nil && !time.Now().Before(held.deadline) {
		m.end(l) // its timer is about to
		held = nil
	}
	if held == nil {
		return fmt.Errorf("meta: keep lease %d: %w", l, cluster.ErrLeaseLost)
	}
	held.deadline = time.Now().Add(held.ttl)
	held.timer.Reset(held.ttl)
	return nil
}

// Revoke implements cluster.Meta. To revoke a lease that has ended changes nothing.
func (m *Memory) Revoke(ctx context.Context, l cluster.Lease) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("meta: revoke lease %d: %w", l, err)
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.closed {
		return errClosed
	}
	m.end(l)
	return nil
}

func (m *Memory) expire(l cluster.Lease) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if held := m.leases[l]; held != nil && !m.closed && !time.Now().Before(held.deadline) {
		m.end(l)
	}
}

// end deletes a lease and its keys, in their order, each in a revision of its own.
func (m *Memory) end(l cluster.Lease) {
	held := m.leases[l]
	if held == nil {
		return
	}
	held.timer.Stop()
	keys := make([]string, 0, len(held.keys))
	for key := range held.keys {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		m.change(key, nil, 0)
	}
	delete(m.leases, l)
}

// Campaign implements cluster.Meta.
func (m *Memory) Campaign(ctx context.Context, key string, val []byte) (cluster.Term, error) {
	return Campaign(ctx, m, key, val, m.options.TermTTL)
}

// Close ends the store: all its methods, watches that run included, return protocol.ErrUnavailable.
func (m *Memory) Close() error {
	m.lock.Lock()
	defer m.lock.Unlock()
	if !m.closed {
		m.closed = true
		for _, l := range m.leases {
			l.timer.Stop()
		}
		close(m.changed)
	}
	return nil
}

// check says what is wrong with a key and its value.
func check(ctx context.Context, key string, val []byte) error {
	if err := Valid(key, val); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("meta: %q: %w", key, err)
	}
	return nil
}

// Valid says what is wrong with a key and its value, on every store.
func Valid(key string, val []byte) error {
	switch {
	case key == "":
		return errors.New("meta: a key must not be empty")
	case len(key) > MaxKey:
		return fmt.Errorf("meta: a key has at most %d bytes, got %d: %.40q...", MaxKey, len(key), key)
	case len(val) > cluster.MaxValue:
		return fmt.Errorf("meta: put %q: a value has at most %d bytes, got %d", key, cluster.MaxValue, len(val))
	}
	return nil
}
