package exec

import (
	"crypto/sha256"
	"sync"

	"github.com/trivium-ml/trivium/tensor"
)

// history remembers which writes of which steps were finished, so that a step repeated by its requester writes each once. It keeps the
// last historyLength steps.
type history struct {
	mu    sync.Mutex
	steps map[stepKey]*outcome
	order []stepKey
}

// historyLength is how many steps a State remembers: a requester repeats a step while it waits for its answer, and has few under way.
const historyLength = 256

type stepKey struct {
	requester uint64
	id        int64
}

// An outcome is what a step has written so far: of each node, the version or verdict that the node gave.
type outcome struct {
	mu    sync.Mutex // of the map
	nodes map[graphNode]*doneWrite
}

// A graphNode is a node of one of the graphs that share a State. The graph's hash is that of its structure, so that a graph which was
// decoded again is the same.
type graphNode struct {
	graph [sha256.Size]byte
	id    int
}

// A doneWrite is what one node has done. Its lock is held while the node writes, so that another attempt waits for this one; it is the
// node's own, since what is written may wake a continuation of the same step. A continuation holds no lock; another attempt waits until
// begun is closed.
type doneWrite struct {
	mu     sync.Mutex
	done   bool
	result int64
	values []*tensor.Tensor // of a continuation
	begun  chan struct{}    // of a continuation that is under way; closed when it ends
}

// take gives the results of a continuation that is done; else, unless it is under way and other is its end, it is the caller's to begin.
func (w *doneWrite) take() (values []*tensor.Tensor, done bool, other <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done && w.begun == nil {
		w.begun = make(chan struct{})
		return nil, false, nil
	}
	return w.values, w.done, w.begun
}

// end notes what a continuation gave, or that it failed and may be begun again.
func (w *doneWrite) end(values []*tensor.Tensor, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done, w.values = err == nil, values
	close(w.begun)
	w.begun = nil
}

// of is the memory of one node.
func (o *outcome) of(node graphNode) *doneWrite {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.nodes[node]
	if w == nil {
		w = &doneWrite{}
		o.nodes[node] = w
	}
	return w
}

func (h *history) of(k stepKey) *outcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o := h.steps[k]; o != nil {
		return o
	}
	if h.steps == nil {
		h.steps = map[stepKey]*outcome{}
	}
	if len(h.order) == historyLength {
		delete(h.steps, h.order[0])
		h.order = append(h.order[:0], h.order[1:]...)
	}
	o := newOutcome()
	h.steps[k] = o
	h.order = append(h.order, k)
	return o
}

func newOutcome() *outcome { return &outcome{nodes: map[graphNode]*doneWrite{}} }

// memory is what this step remembers of a node; nil when nobody would repeat it.
func (x *instance) memory(n *node) *doneWrite {
	r := x.run
	if r.own != nil {
		return r.own.of(graphNode{id: n.src.ID})
	}
	if r.step.Requester == 0 || r.state == nil {
		return nil
	}
	return r.state.steps.of(stepKey{r.step.Requester, r.step.ID}).of(graphNode{x.p.hash(), n.src.ID})
}

// once applies a write, unless an earlier attempt at this step did. write sets the node's result, a version or a verdict.
func (b *bound) once(write func() error) {
	w := b.x.memory(b.n)
	if w == nil {
		if err := write(); err != nil {
			b.err = err
			return
		}
		b.wrote.Store(true)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		b.result(w.result)
		return
	}
	if err := write(); err != nil {
		b.err = err
		return
	}
	b.wrote.Store(true)
	w.done, w.result = true, b.last
}

// result stores what a write gives, where that is wanted.
func (b *bound) result(v int64) {
	b.last = v
	switch {
	case len(b.out) == 0 || b.out[0].p == nil:
	case b.out[0].dt.Size() == 1:
		flat[bool](b.out[0])[0] = v != 0
	default:
		flat[int64](b.out[0])[0] = v
	}
}

// written lists the resources that this step has written.
func (x *instance) written() []string {
	var names []string
	for _, b := range x.bound {
		if b != nil && b.wrote.Load() {
			names = append(names, b.x.resource(b.n))
		}
	}
	return names
}
