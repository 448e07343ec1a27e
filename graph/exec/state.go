package exec

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// A State is what outlives a step: Variables, queues and accumulators by name, and the seed of random nodes. Steps share it; each
// operation on a resource is atomic, and nothing is promised across resources.
type State struct {
	seed  uint64
	o     StateOptions
	mu    sync.Mutex // of the maps below, not of what they hold
	vars  map[string]*variable
	qs    map[string]*queue
	accs  map[string]*accumulator
	steps history
	slots chan struct{} // one for each snapshot held
}

// StateOptions of NewState. The zero value works.
type StateOptions struct {
	Seed            uint64 // of random nodes and initial values
	ConcurrentSteps int    // snapshots that may be held at a time; default 16
}

// NewState returns a State without resources: they come into being when a Variable is initialised or bound, or a step needs a queue or an
// accumulator.
func NewState(o StateOptions) *State {
	if o.ConcurrentSteps <= 0 {
		o.ConcurrentSteps = 16
	}
	return &State{seed: o.Seed, o: o, slots: make(chan struct{}, o.ConcurrentSteps), vars: map[string]*variable{}, qs: map[string]*queue{}, accs: map[string]*accumulator{}}
}

// A variable is a tensor and its version. Its buffer may be read by steps and snapshots while they hold it; a write is in place if
// nobody does, else it goes to another buffer.
type variable struct {
	name    string
	id      int // order of locks
	mu      sync.Mutex
	version int64
	cur     *buffer // nil: not initialised
	spare   *buffer // the last one that nobody holds any more
	bound   bool    // cur is the caller's memory, which stays
}

// A buffer is one version's memory and how many hold it.
type buffer struct {
	t    *tensor.Tensor
	held int // guarded by the variable's mutex
}

// ErrUninitialised is the cause of an error about Variables without a value.
var ErrUninitialised = errors.New("not initialised")

func (s *State) variable(r *graph.Resource) *variable {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.vars[r.Name]
	if v == nil {
		v = &variable{name: r.Name, id: len(s.vars)}
		s.vars[r.Name] = v
	}
	return v
}

// Bind makes the Variable live in t, whose elements are its value: writes go there, in place. While a step reads a bound Variable, a
// write by another step is refused, since it could not be hidden from the reader.
func (s *State) Bind(v *graph.Variable, t *tensor.Tensor) error {
	if t.DType() != v.DType() || !sameSizes(t.Shape(), v.Shape()) {
		return fmt.Errorf("exec: bind %q: given %v%v, want %v%v", v.Name, t.DType(), t.Shape(), v.DType(), tensor.Shape(v.Shape()))
	}
	x := s.variable(v.Resource)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.version++
	if x.bound && pointer(x.cur.t) == pointer(t) { // the same memory with other contents: what a caller says before each step
		return nil
	}
	x.cur, x.spare, x.bound = &buffer{t: t}, nil, true
	return nil
}

// Set gives a Variable a value, which is copied, and a new version.
func (s *State) Set(v *graph.Variable, t *tensor.Tensor) error {
	if t.DType() != v.DType() || !sameSizes(t.Shape(), v.Shape()) {
		return fmt.Errorf("exec: set %q: given %v%v, want %v%v", v.Name, t.DType(), t.Shape(), v.DType(), tensor.Shape(v.Shape()))
	}
	x := s.variable(v.Resource)
	x.mu.Lock()
	defer x.mu.Unlock()
	to, err := x.target(t.DType(), t.Shape(), 0)
	if err != nil {
		return fmt.Errorf("exec: set: %w", err)
	}
	copy(to.t.Bytes(), t.Bytes())
	x.publish(to)
	return nil
}

// Get returns a copy of a Variable's value, and its version.
func (s *State) Get(v *graph.Variable) (*tensor.Tensor, int64, error) {
	x := s.variable(v.Resource)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cur == nil {
		return nil, 0, fmt.Errorf("exec: Variable %q: %w", v.Name, ErrUninitialised)
	}
	return x.cur.t.Clone(), x.version, nil
}

// holds reports, as an error, a value of another type or shape: graphs find a Variable by its name alone. The caller has the lock.
func (v *variable) holds(dt graph.DType, shape []int) error {
	if v.cur != nil && (v.cur.t.DType() != dt || !slices.Equal(v.cur.t.Shape(), shape)) {
		return fmt.Errorf("Variable %q is %v%v in this State, and %v%v in the graph", v.name, v.cur.t.DType(), v.cur.t.Shape(), dt, tensor.Shape(shape))
	}
	return nil
}

// target is the buffer that a write may fill: the current one if nobody but the writer, who holds it own times, reads it, else another.
// The caller has the lock, and publishes what it wrote.
func (v *variable) target(dt graph.DType, shape []int, own int) (*buffer, error) {
	if err := v.holds(dt, shape); err != nil {
		return nil, err
	}
	if v.cur != nil && v.cur.held <= own {
		return v.cur, nil
	}
	if v.bound {
		return nil, fmt.Errorf("Variable %q lives in the caller's memory and is read by %d others; its writes need that memory alone", v.name, v.cur.held-own)
	}
	if v.spare != nil && v.spare.held == 0 {
		b := v.spare
		v.spare = nil
		return b, nil
	}
	return &buffer{t: tensor.New(dt, shape...)}, nil
}

// publish makes a written buffer the next version.
func (v *variable) publish(b *buffer) {
	if b != v.cur {
		v.spare, v.cur = v.cur, b
	}
	v.version++
}

// hold takes part in reading the current version.
func (v *variable) hold() (*buffer, int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cur != nil {
		v.cur.held++
	}
	return v.cur, v.version
}

func (v *variable) drop(b *buffer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	b.held--
}

// Init gives every Variable of g that has no value its initial one, drawn from the State's seed and the Variable's name and shape.
func (s *State) Init(g *graph.Graph) error {
	var errs []error
	for _, v := range g.Variables() {
		errs = append(errs, s.variable(v.Resource).begin(s.seed, v))
	}
	return errors.Join(errs...)
}

// begin gives v its initial value unless it has one. It keeps the lock while it draws: what others write meanwhile comes after.
func (v *variable) begin(seed uint64, of *graph.Variable) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cur != nil {
		return nil
	}
	t, err := initial(seed, of)
	if err != nil {
		return err
	}
	v.publish(&buffer{t: t})
	return nil
}

// attach looks up the resources of every node in a State, unless the instance was there before, and checks that Variables have values.
func (x *instance) attach(s *State) error {
	if x.attached != s || s == nil {
		x.attached = nil
		for _, b := range x.bound {
			if b == nil || b.attach == nil {
				continue
			}
			if s == nil {
				return fmt.Errorf("exec: run: %s (%s) needs a State", b.n.name(), b.n.op)
			}
			if err := b.attach(s); err != nil {
				return fmt.Errorf("exec: run: %s (%s): %w", b.n.name(), b.n.op, err)
			}
		}
		x.attached = s
	}
	var missing []string
	for _, b := range x.reads {
		v := b.variable
		v.mu.Lock()
		if err := v.holds(b.decl.dt, b.decl.sizes); err != nil {
			v.mu.Unlock()
			return fmt.Errorf("exec: run: %s (%s): %w", b.n.name(), b.n.op, err)
		}
		if v.cur == nil && !assigned(b.n, b.n.src.Resources[0]) && !slices.Contains(missing, v.name) {
			missing = append(missing, v.name)
		}
		v.mu.Unlock()
	}
	if missing != nil {
		return fmt.Errorf("exec: run: Variables %q: %w", missing, ErrUninitialised)
	}
	return nil
}

// assigned says whether the step gives a Variable a value before n reads it: by an Assign, to which others may have added.
func assigned(n *node, id int) bool {
	for _, m := range n.after {
		if m.eff == graph.Write && len(m.src.Resources) > 0 && m.src.Resources[0] == id && (m.op == "Assign" || m.op == "AssignAdd" && assigned(m, id)) {
			return true
		}
	}
	return false
}

// detach drops what the step still holds.
func (x *instance) detach() {
	for _, b := range x.reads {
		if b.held != nil {
			b.variable.drop(b.held)
			b.held = nil
		}
	}
}
