package fleet

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/cluster"
)

// A Status is what there is to know of a cluster at one moment.
type Status struct {
	Time    time.Time      `json:"time"`
	Since   time.Time      `json:"since"` // of the coordinator
	Build   string         `json:"build"`
	Epoch   uint64         `json:"epoch"`
	Budget  time.Duration  `json:"budget"` // of silence, after which a member is convicted
	Members []MemberStatus `json:"members"`
	Jobs    []Job          `json:"jobs"`
}

// A MemberStatus is one machine of the group.
type MemberStatus struct {
	Name      string        `json:"name"`
	Role      string        `json:"role"`
	Addr      string        `json:"addr"`
	State     string        `json:"state"`
	Why       string        `json:"why,omitempty"` // it is not fine
	Heard     time.Duration `json:"heard"`         // since its last sign of life; -1: other members watch it, the coordinator does not
	Offer     *Offer        `json:"offer,omitempty"`
	Free      int           `json:"free"` // cores
	Processes int           `json:"processes"`
	Since     time.Time     `json:"since,omitzero"`
}

// Status returns it.
func (c *Coordinator) Status(ctx context.Context) (Status, error) {
	out := Status{Time: time.Now(), Since: c.began, Build: c.o.Build}
	c.mu.Lock()
	members := c.members
	c.mu.Unlock()
	if members == nil {
		return out, errors.New("it has not joined its group of machines yet: ask again in a moment")
	}
	group, err := members.Status(ctx)
	if err != nil {
		return out, err
	}
	out.Epoch, out.Budget = uint64(group.Epoch), group.Budget
	lent := c.nodes.List()
	c.mu.Lock()
	out.Jobs = c.queue.Jobs()
	for i := range out.Jobs {
		if r := c.live[out.Jobs[i].ID]; r != nil {
			out.Jobs[i].Progress = r.progress
		}
	}
	rooms := c.queue.left(roomsOf(lent))
	c.mu.Unlock()
	for i := range out.Jobs {
		out.Jobs[i].Spec.Payload = nil // large, and its submitter's
	}
	for _, m := range group.Members {
		x := memberOf(m)
		if i := slices.IndexFunc(lent, func(l Lent) bool { return l.Name == m.Name }); i >= 0 {
			x.Offer, x.Free, x.Processes, x.Since = &lent[i].Offer, rooms[i].free, lent[i].Processes, lent[i].Since
		} else if m.Name == c.o.Port.Name() {
			x.State, x.Why, x.Heard, x.Since = "fine", "", 0, c.began
		}
		out.Members = append(out.Members, x)
	}
	return out, nil
}

// memberOf is what the group knows of a member.
func memberOf(m cluster.MemberStatus) MemberStatus {
	return MemberStatus{Name: m.Name.ID, Role: m.Name.Role, Addr: m.Addr, State: m.State, Why: m.Why, Heard: m.Heard}
}
