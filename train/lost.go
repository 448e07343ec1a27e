package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivium-ml/trivium/transport"
)

// A LostError ends a run that needs a process which is gone: as the cause with which a strategy's context is cancelled, it makes the run
// fail, where any other cause interrupts it.
type LostError struct {
	Peer transport.Name
	Why  string // how that is known
}

func (e *LostError) Error() string { return fmt.Sprintf("%v is lost: %s", e.Peer, e.Why) }

type untilLost struct{}

// Member returns the context of a strategy that runs in one of several processes, and the two ways to end it. interrupt, and the end of
// parent, ask training to end: where updates are made by all, after the same one at all. lose fails it because something is gone, usually
// with a LostError, also when it has been asked to end. interrupt releases what is held.
func Member(parent context.Context) (ctx context.Context, interrupt context.CancelFunc, lose context.CancelCauseFunc) {
	hard, fail := context.WithCancelCause(context.WithoutCancel(parent))
	ctx, end := context.WithCancelCause(context.WithValue(parent, untilLost{}, hard))
	return ctx, func() { end(nil) }, func(why error) {
		fail(why)
		end(why)
	}
}

// UntilLost returns the context of what an interrupt of ctx must not cut short, since others count on it: it ends once something is lost,
// with that as its cause. ctx is a Member's; of any other nothing is ever lost.
func UntilLost(ctx context.Context) context.Context {
	if hard, ok := ctx.Value(untilLost{}).(context.Context); ok {
		return hard
	}
	return context.WithoutCancel(ctx)
}

// LostOf returns the lost process because of which ctx ended, or nil.
func LostOf(ctx context.Context) *LostError {
	lost, _ := errors.AsType[*LostError](context.Cause(ctx))
	return lost
}
