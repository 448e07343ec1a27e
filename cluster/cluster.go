// Package cluster knows who is here, in what role, and alive.
package cluster

import (
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// A Member is one incarnation of one process in a group.
type Member struct {
	Name protocol.Name
	Addr string            // transport.Port.Addr
	Info map[string]string // what it says of itself, such as its host: small
}

// A View is the group's list of members at an epoch. A rank is an index into it. View E+1 is made only by Meta.PutIf on the record of
// view E, so that two views of one epoch cannot exist.
type View struct {
	Epoch   protocol.Epoch
	Members []Member
	Self    int    // rank of this process; -1: it is no member
	Fate    []byte // what the members decided together with the view; opaque here
}

// A Policy is what a group is held to. The zero value is the default of each field.
type Policy struct {
	MinWorkers, MaxWorkers int           // 1, 64
	ViewLimit              int           // views, after which the group gives up; 0: none
	Heartbeat              time.Duration // 20 ms
	Budget                 time.Duration // of silence; 250 ms. It grows with the measured scheduling noise up to BudgetMax
	BudgetMax              time.Duration // 5 s
	LeaseTTL               time.Duration // 5 s
	MetaWait               time.Duration // a view change waits so long for Meta; 10 min
	ShrinkOnly             bool          // nobody joins any more
}
