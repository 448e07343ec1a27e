package cluster

import (
	"errors"
	"fmt"

	"github.com/trivium-ml/trivium/protocol"
)

var (
	// ErrTooFew: fewer than MinWorkers members are left, and nobody came for Policy.Patience. What the members hold is kept.
	ErrTooFew = errors.New("too few members are left")
	// ErrViewLimit: the view would have to change more often than Policy.ViewLimit allows.
	ErrViewLimit = errors.New("the limit of views is reached")
	// ErrNoQuorum: no more than half of the view's members were within reach for Policy.MetaWait, and the others are not proven dead.
	ErrNoQuorum = errors.New("the members within reach are no majority")
	// ErrRegressed: the store has an older view than one that it confirmed before: it lost what it had acknowledged.
	ErrRegressed = errors.New("the store lost what it had confirmed")
	// ErrFull: the view has as many members as it may, and those who come wait until one goes.
	ErrFull = errors.New("it has no room for one more")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("cluster: closed")
)

// An OutError says that the group goes on without this member. To come back, it joins as a new incarnation.
type OutError struct {
	Self  protocol.Name
	Epoch protocol.Epoch // of the view without it
	By    protocol.Name  // who proposed that view
	Why   string
}

func (e *OutError) Error() string {
	return fmt.Sprintf("cluster: %v is out of the group: view %d, proposed by %v, goes on without it (%s); to come back, join as a new incarnation",
		e.Self, e.Epoch, e.By, e.Why)
}

// A RefusedError says why a newcomer may not join.
type RefusedError struct {
	Self  protocol.Name
	Field string // what is wrong: ID, Incarnation, ShrinkOnly, ViewLimit
	Why   string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("cluster: join of %v: %s: %s", e.Self, e.Field, e.Why)
}
