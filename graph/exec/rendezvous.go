package exec

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/trivium-ml/trivium/tensor"
)

// A Rendezvous is where a tensor sent under a key meets who receives it; either may come first.
type Rendezvous interface {
	// Send hands t over and never waits; the callee owns t from then on. A key is used once: a second Send is an error.
	Send(k Key, t *tensor.Tensor) error
	// Recv calls done once, perhaps before it returns: with the tensor, or with an error when ctx ends first or the step is aborted. A key that
	// nothing was received under may be received again: by a repeated step.
	Recv(ctx context.Context, k Key, done func(*tensor.Tensor, error))
}

// A Key names one tensor of one step. The incarnation keeps a restarted peer's old tensors from satisfying new receives.
type Key struct {
	Step        int64
	Incarnation uint64
	Edge        string // the node's key attribute
	Path        string // iterations of the loops around the node; empty outside of them
}

func (k Key) String() string {
	if k.Path != "" {
		return fmt.Sprintf("%q (iteration %s) of step %d", k.Edge, k.Path, k.Step)
	}
	return fmt.Sprintf("%q of step %d", k.Edge, k.Step)
}

// ErrKeyUsed is the cause of an error about a key that was sent or received before.
var ErrKeyUsed = errors.New("the key was used before")

// A Local is the Rendezvous of one process. It remembers the keys of a step until End.
type Local struct {
	mu    sync.Mutex
	steps map[int64]*exchange
}

// An exchange is one step's keys.
type exchange struct {
	keys    map[Key]*meeting
	aborted error
}

// A meeting is one key: sent, waited for, or over.
type meeting struct {
	sent, received bool
	t              *tensor.Tensor
	done           func(*tensor.Tensor, error)
	stop           func() bool
}

// NewLocal returns an empty Rendezvous.
func NewLocal() *Local { return &Local{steps: map[int64]*exchange{}} }

func (l *Local) meeting(k Key) (*meeting, error) {
	e := l.steps[k.Step]
	if e == nil {
		e = &exchange{keys: map[Key]*meeting{}}
		l.steps[k.Step] = e
	}
	if e.aborted != nil {
		return nil, e.aborted
	}
	m := e.keys[k]
	if m == nil {
		m = &meeting{}
		e.keys[k] = m
	}
	return m, nil
}

// Send gives t to who waits for k, or keeps it.
func (l *Local) Send(k Key, t *tensor.Tensor) error {
	l.mu.Lock()
	m, err := l.meeting(k)
	if err == nil && m.sent {
		err = ErrKeyUsed
	}
	if err != nil {
		l.mu.Unlock()
		return fmt.Errorf("exec: send %v: %w", k, err)
	}
	m.sent = true
	done := m.done
	m.done = nil
	if done == nil && !m.received {
		m.t = t
	}
	l.mu.Unlock()
	if done != nil {
		m.stop()
		done(t, nil)
	}
	return nil
}

// Recv takes what was sent under k, or waits for it.
func (l *Local) Recv(ctx context.Context, k Key, done func(*tensor.Tensor, error)) {
	l.mu.Lock()
	m, err := l.meeting(k)
	if err == nil && m.received {
		err = ErrKeyUsed
	}
	if err != nil {
		l.mu.Unlock()
		done(nil, fmt.Errorf("exec: receive %v: %w", k, err))
		return
	}
	m.received = true
	if m.sent {
		t := m.t
		m.t = nil
		l.mu.Unlock()
		done(t, nil)
		return
	}
	m.done = done
	m.stop = context.AfterFunc(ctx, func() {
		l.mu.Lock()
		done := m.done
		if done != nil {
			m.done, m.received = nil, false
		}
		l.mu.Unlock()
		if done != nil {
			done(nil, fmt.Errorf("exec: receive %v: nobody sent it: %w", k, context.Cause(ctx)))
		}
	})
	l.mu.Unlock()
}

// Abort fails what is waited for in a step, and all later uses of its keys, with cause.
func (l *Local) Abort(step int64, cause error) {
	l.mu.Lock()
	e := l.steps[step]
	if e == nil {
		e = &exchange{}
		l.steps[step] = e
	}
	if e.aborted == nil {
		e.aborted = cause
	}
	var wake []func(*tensor.Tensor, error)
	var keys []Key
	for k, m := range e.keys {
		if m.done != nil {
			m.stop()
			wake, keys = append(wake, m.done), append(keys, k)
			m.done = nil
		}
	}
	e.keys = nil
	l.mu.Unlock()
	for i, done := range wake {
		done(nil, fmt.Errorf("exec: receive %v: %w", keys[i], cause))
	}
}

// End forgets a step that nobody will name again.
func (l *Local) End(step int64) {
	l.Abort(step, errors.New("the step is over"))
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.steps, step)
}
