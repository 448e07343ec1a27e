package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/wire/control"
)

// A Member is one incarnation of one process in a group.
type Member struct {
	Name protocol.Name     `cbor:"1,keyasint"`
	Addr string            `cbor:"2,keyasint"`           // transport.Port.Addr
	Info map[string]string `cbor:"3,keyasint,omitempty"` // what it says of itself, such as its host: small
}

// A View is the group's list of members at an epoch. A rank is an index into it. View E+1 is made only by Meta.PutIf on the record of
// view E, so that two views of one epoch cannot exist.
type View struct {
	Epoch   protocol.Epoch
	Members []Member
	Self    int    // rank of this process
	Fate    []byte // what the members decided together with the view; opaque here
}

// Names lists the members' names, by rank: what transport.Stream.Fence takes.
func (v View) Names() []protocol.Name {
	names := make([]protocol.Name, len(v.Members))
	for i, m := range v.Members {
		names[i] = m.Name
	}
	return names
}

// A Policy is what a group is held to. The zero value is the default of each field. All members should have the same: the one that
// proposes a view follows its own.
type Policy struct {
	MinWorkers, MaxWorkers int           // 1, 64. Who comes beyond MaxWorkers waits, as a spare
	ViewLimit              int           // changes of the first view, after which the group gives up; 0: none
	Heartbeat              time.Duration // 20 ms
	Budget                 time.Duration // of silence; 250 ms. It grows with the measured scheduling noise up to BudgetMax
	BudgetMax              time.Duration // 5 s
	LeaseTTL               time.Duration // 5 s
	MetaWait               time.Duration // a view change waits so long for Meta, or for members to hold more than half; 10 min
	ShrinkOnly             bool          // nobody joins any more

	Group        string        // under which name it is kept in Meta; empty: the job of the member's name
	StartWorkers int           // the first view waits for so many; 0: MinWorkers
	BackOff      time.Duration // a process that was lost waits so long before it is admitted again, and doubly so each time, up to 60 times; 1 s
	Patience     time.Duration // a group of fewer than MinWorkers waits so long for newcomers, then it ends with ErrTooFew; 30 s
	Log          *slog.Logger  // nil discards

	// Forget is called for each process that went out of the view two seconds before, when it has been told so: usually it is the port's
	// Forget, so that it no longer tries to reach the dead. It must not block. nil: nothing.
	Forget func(protocol.Name)

	// Prepare is called at each member that a proposal asks for its vote, before it votes: a carrier stops there, at a boundary, and
	// returns what it knows of operations under way. Its context ends when the proposal is void. nil: members vote at once.
	Prepare func(ctx context.Context, c Change) ([]byte, error)
	// Decide makes View.Fate of what Prepare returned at the members that stay, by the ranks of the view that ends; nil: no fate. It is
	// called at the proposer, by the machine: it must be pure and quick.
	Decide func(c Change, reports [][]byte) []byte
}

// A Change says what a proposed view changes.
type Change struct {
	Epoch protocol.Epoch  `cbor:"1,keyasint"` // of the view that ends
	Stay  []int           `cbor:"2,keyasint"` // ranks in it that go on, in their order
	Joins []protocol.Name `cbor:"3,keyasint"` // who comes, after them
}

// withDefaults fills in what is zero.
func (p Policy) withDefaults() Policy {
	p.MinWorkers = cmp.Or(p.MinWorkers, 1)
	p.MaxWorkers = cmp.Or(p.MaxWorkers, max(64, p.MinWorkers))
	p.Heartbeat = cmp.Or(p.Heartbeat, 20*time.Millisecond)
	p.Budget = cmp.Or(p.Budget, 250*time.Millisecond)
	p.BudgetMax = cmp.Or(p.BudgetMax, max(5*time.Second, p.Budget))
	p.LeaseTTL = cmp.Or(p.LeaseTTL, 5*time.Second)
	p.MetaWait = cmp.Or(p.MetaWait, 10*time.Minute)
	p.BackOff = cmp.Or(p.BackOff, time.Second)
	p.Patience = cmp.Or(p.Patience, 30*time.Second)
	p.StartWorkers = cmp.Or(p.StartWorkers, p.MinWorkers)
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	return p
}

// MaxWorkers is the largest Policy.MaxWorkers: it keeps a record below MaxValue.
const MaxWorkers = 256

// validate says what is wrong with p, after withDefaults, and with self: all of it.
func (p Policy) validate(self Member) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("cluster: "+format, args...)) }
	if p.MinWorkers < 1 {
		bad("MinWorkers is %d, want at least 1", p.MinWorkers)
	}
	if p.MaxWorkers < p.MinWorkers {
		bad("MaxWorkers is %d, below MinWorkers %d", p.MaxWorkers, p.MinWorkers)
	}
	if p.MaxWorkers > MaxWorkers {
		bad("MaxWorkers is %d, want at most %d", p.MaxWorkers, MaxWorkers)
	}
	if p.StartWorkers < p.MinWorkers || p.StartWorkers > p.MaxWorkers {
		bad("StartWorkers is %d, want MinWorkers to MaxWorkers, %d to %d", p.StartWorkers, p.MinWorkers, p.MaxWorkers)
	}
	if p.ViewLimit < 0 {
		bad("ViewLimit is %d, want at least 0", p.ViewLimit)
	}
	for _, d := range []struct {
		field       string
		value, from time.Duration
	}{
		{"Heartbeat", p.Heartbeat, time.Millisecond},
		{"Budget", p.Budget, 4 * p.Heartbeat},
		{"BudgetMax", p.BudgetMax, p.Budget},
		{"LeaseTTL", p.LeaseTTL, 4 * p.Heartbeat},
		{"MetaWait", p.MetaWait, time.Millisecond},
		{"BackOff", p.BackOff, time.Millisecond},
		{"Patience", p.Patience, time.Millisecond},
	} {
		if d.value < d.from {
			bad("%s is %v, want at least %v", d.field, d.value, d.from)
		}
	}
	if self.Name.ID == "" {
		bad("the member's name %q has no ID", self.Name)
	}
	if p.Group == "" && self.Name.Job == "" {
		bad("neither Policy.Group nor the job of %q says which group this is", self.Name)
	}
	switch p, err := control.Append(nil, self); {
	case err != nil: // such as a text that is no UTF-8
		bad("the member %q at %.80q, %.80q: %w", self.Name, self.Addr, self.Info, err)
	case len(p) > maxMember:
		bad("name, address and info of %v take %d bytes, want at most %d", self.Name, len(p), maxMember)
	}
	return errors.Join(errs...)
}
