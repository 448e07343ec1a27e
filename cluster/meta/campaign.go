package meta

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/protocol"
)

// Campaign implements cluster.Meta's method of that name over the store's other methods: the key is put under a lease of the
// campaigner's own, of time to live ttl (0: 5 s), which a goroutine keeps alive until Resign, or until the term is lost. A term is lost
// when its lease ends, when the key is deleted or written by another, or when the store has not answered for so long that the lease may
// have ended.
func Campaign(ctx context.Context, m cluster.Meta, key string, val []byte, ttl time.Duration) (cluster.Term, error) {
	if err := Valid(key, val); err != nil {
		return cluster.Term{}, err
	}
	if val == nil {
		val = []byte{}
	}
	if ttl <= 0 {
		ttl = 5 * time.Second
	}
	for {
		err := absent(ctx, m, key)
		var l cluster.Lease
		var rev int64
		granted := time.Now()
		if err == nil {
			l, err = m.Grant(ctx, ttl)
		}
		if err == nil {
			if rev, err = m.PutIf(ctx, key, val, 0, l); err == nil {
				return hold(ctx, m, key, rev, l, ttl, granted), nil
			}
			// Also where the store did not answer: then the key may have been put, and goes with its lease.
			clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), ttl)
			_ = m.Revoke(clean, l)
			cancel()
		}
		if !errors.Is(err, protocol.ErrConflict) {
			return cluster.Term{}, fmt.Errorf("meta: campaign for %q: %w", key, err)
		}
	}
}

// absent waits until there is no such key.
func absent(ctx context.Context, m cluster.Meta, key string) error {
	kv, err := m.Get(ctx, key)
	if err != nil || kv.Rev == 0 {
		return err
	}
	for kv, err := range m.Watch(ctx, key, kv.Rev) {
		switch {
		case errors.Is(err, cluster.ErrCompacted):
			return nil // it was long ago: see whether the key is still there
		case err != nil:
			return err
		case kv.Key == key && kv.Value == nil:
			return nil
		}
	}
	return ctx.Err()
}

// hold keeps the lease alive and the key in sight.
func hold(ctx context.Context, m cluster.Meta, key string, rev int64, l cluster.Lease, ttl time.Duration, granted time.Time) cluster.Term {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	lost := make(chan struct{})
	var once sync.Once
	lose := func() { once.Do(func() { close(lost); stop() }) }

	var running sync.WaitGroup
	running.Go(func() {
		// A lease is kept from the moment before Keep was called: it ends no earlier than that.
		until := granted.Add(ttl)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(ttl/3, time.Until(until))): // and at its end, however late the last time was
			}
			asked := time.Now()
			limited, cancel := context.WithDeadline(ctx, until)
			err := m.Keep(limited, l)
			cancel()
			switch {
			case err == nil:
				until = asked.Add(ttl)
			case ctx.Err() != nil:
				return
			case errors.Is(err, cluster.ErrLeaseLost) || !time.Now().Before(until):
				lose()
				return
			}
		}
	})
	running.Go(func() {
		for after := rev; ctx.Err() == nil; {
			for kv, err := range m.Watch(ctx, key, after) {
				after = kv.Rev
				if err == nil && kv.Key == key && kv.Rev != rev {
					lose()
					return
				}
				if errors.Is(err, cluster.ErrCompacted) {
					kv, err = m.Get(ctx, key)
					if err == nil && kv.Rev != rev {
						lose()
						return
					}
					after = rev // still ours; the compacted revision is asked for again, hence the pause below
				}
			}
			// The store does not answer, or has forgotten: the lease decides meanwhile.
			select {
			case <-ctx.Done():
			case <-time.After(ttl / 10):
			}
		}
	})
	return cluster.Term{Rev: rev, Lost: lost, Resign: func(ctx context.Context) error {
		once.Do(stop) // from now on the term does not end against the holder's will
		running.Wait()
		if _, err := m.PutIf(ctx, key, nil, rev, 0); err != nil && !errors.Is(err, protocol.ErrConflict) {
			return fmt.Errorf("meta: resign %q: %w", key, err)
		}
		return m.Revoke(ctx, l)
	}}
}
