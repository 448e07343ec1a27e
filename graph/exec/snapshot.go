package exec

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// A Snapshot is the value that every Variable had at one moment. Later writes go elsewhere while it is held.
type Snapshot struct {
	Step int64
	s    *State
	vars map[string]held
}

type held struct {
	v       *variable
	b       *buffer
	version int64
}

// Snapshot holds the present versions of all Variables. It copies nothing but Variables that live in the caller's memory. It waits while
// as many snapshots as StateOptions.ConcurrentSteps are held, until ctx ends.
func (s *State) Snapshot(ctx context.Context, step int64) (*Snapshot, error) {
	select {
	case s.slots <- struct{}{}:
	default:
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("exec: snapshot of step %d: %d snapshots are held: %w", step, s.o.ConcurrentSteps, context.Cause(ctx))
		}
	}
	s.mu.Lock()
	all := make([]*variable, 0, len(s.vars))
	for _, v := range s.vars {
		all = append(all, v)
	}
	s.mu.Unlock()
	sortVariables(all)
	for _, v := range all { // all at once, so that a rule's slots belong to its Variable
		v.mu.Lock()
	}
	snap := &Snapshot{Step: step, s: s, vars: map[string]held{}}
	for _, v := range all {
		switch {
		case v.cur == nil:
		case v.bound:
			snap.vars[v.name] = held{v, &buffer{t: v.cur.t.Clone(), held: 1}, v.version}
		default:
			v.cur.held++
			snap.vars[v.name] = held{v, v.cur, v.version}
		}
	}
	for _, v := range all {
		v.mu.Unlock()
	}
	return snap, nil
}

// sortVariables gives the order in which locks of several Variables are taken: that in which the State met them.
func sortVariables(vs []*variable) {
	slices.SortFunc(vs, func(a, b *variable) int { return cmp.Compare(a.id, b.id) })
}

// Value is a Variable's tensor, only to be read and only until Close, and its version.
func (p *Snapshot) Value(v *graph.Variable) (*tensor.Tensor, int64, error) {
	h, ok := p.vars[v.Name]
	if !ok {
		return nil, 0, fmt.Errorf("exec: snapshot of step %d: Variable %q: %w", p.Step, v.Name, ErrUninitialised)
	}
	return h.b.t, h.version, nil
}

// Close lets go of the Variables. It may be called again.
func (p *Snapshot) Close() {
	if p.vars == nil {
		return
	}
	for _, h := range p.vars {
		h.v.drop(h.b)
	}
	p.vars = nil
	<-p.s.slots
}
