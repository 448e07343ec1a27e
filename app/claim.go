package app

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/trivium-ml/trivium/cluster"
)

// A claim is a cluster's on the etcd that it is given: the hash of its authority under a lease, which goes some seconds after its coordinator
// has.
type claim struct {
	store cluster.Meta
	hash  []byte
	lease cluster.Lease
	lost  chan error // gets why the claim is another's by now, if that comes to be
	end   context.CancelFunc
	ended chan struct{}
}

const (
	claimKey = "authority"
	claimTTL = 5 * time.Second // as the leases of the machines: who takes the etcd over waits for these too
)

var errClaimed = errors.New("another cluster's coordinator uses it, and it has room for one cluster: name another etcd, or the --dir of that cluster; where its coordinator is gone, try again in some seconds")

// stake claims a store for the cluster whose authority has that hash. Where the cluster has it already, as by a coordinator that was killed, the
// claim is renewed.
func stake(ctx context.Context, store cluster.Meta, hash []byte) (*claim, error) {
	c := &claim{store: store, hash: hash, lost: make(chan error, 1), ended: make(chan struct{})}
	if err := c.take(ctx); err != nil {
		return nil, err
	}
	ctx, c.end = context.WithCancel(context.WithoutCancel(ctx))
	go c.keep(ctx)
	return c, nil
}

func (c *claim) take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, claimTTL)
	defer cancel()
	kv, err := c.store.Get(ctx, claimKey)
	if err != nil {
		return err
	}
	if kv.Rev != 0 && !bytes.Equal(kv.Value, c.hash) {
		return errClaimed
	}
	lease, err := c.store.Grant(ctx, claimTTL)
	if err != nil {
		return err
	}
	if _, err = c.store.PutIf(ctx, claimKey, c.hash, kv.Rev, lease); err != nil {
		return err // what may have been put all the same goes with its lease
	}
	c.lease = lease
	return nil
}

// keep keeps the lease until ctx ends. One that was lost, as while this process stood still, is taken anew.
func (c *claim) keep(ctx context.Context) {
	defer close(c.ended)
	tick := time.NewTicker(claimTTL / 5)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		once, cancel := context.WithTimeout(ctx, claimTTL/5)
		err := c.store.Keep(once, c.lease)
		cancel()
		if errors.Is(err, cluster.ErrLeaseLost) {
			err = c.take(ctx)
		}
		if errors.Is(err, errClaimed) {
			c.lost <- err
			return
		}
	}
}

// Close gives the claim up.
func (c *claim) Close() error {
	c.end()
	<-c.ended
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return c.store.Revoke(ctx, c.lease)
}
