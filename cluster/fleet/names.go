package fleet

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/trivium-ml/trivium/cluster/trust"
)

// nameWait is how long a machine has its name to itself, from its certificate until it is lent: that takes some 0.1 s.
const nameWait = time.Second

// accept refuses a machine whose name another has, which it would drive out of the group. Where one of that name has come just now, it
// waits for what becomes of it: one that got no further, such as for a wrong flag, is not in the way of who tries again.
func (c *Coordinator) accept(n trust.Name) error {
	if n.Role != NodeRole {
		return nil
	}
	const step = 20 * time.Millisecond
	for range 2 * nameWait / step {
		wait, err := c.reserve(n.ID)
		if err != nil || wait <= 0 {
			return err
		}
		time.Sleep(min(wait, step))
	}
	return errors.New("several machines of that name come at once: take another (--id)")
}

// reserve has the name for a machine that comes, or says how long another that came may have it yet.
func (c *Coordinator) reserve(id string) (wait time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.nodes.List() {
		if l.ID == id {
			return 0, fmt.Errorf("a machine of that name is lent already, %s at %s: take another (--id); if it is this one that comes back, wait some seconds, until its loss is noticed",
				l.Offer.Host, l.Offer.Addr)
		}
	}
	now := time.Now()
	maps.DeleteFunc(c.names, func(_ string, at time.Time) bool { return now.Sub(at) >= nameWait })
	if at, ok := c.names[id]; ok {
		return nameWait - now.Sub(at), nil
	}
	c.names[id] = now
	return 0, nil
}
