package exec

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// A Lazy runs a graph while it is being built: define-by-run. Functions of package graph append to its builder; Eval computes what is asked
// for and not known yet. Reset begins a new trace, whose graph may differ; traces of equal structure are compiled once. It is for
// one goroutine.
//
//	z := exec.NewLazy(state, exec.Options{CPU: cpu})
//	for ... {
//		z.Reset()
//		x := z.Input(batch)
//		loss := model(z.Builder(), x)     // any Go control flow
//		out, err := z.Eval(ctx, loss)
//	}
type Lazy struct {
	o      Options
	state  *State
	b      *graph.Builder
	inputs map[graph.Value]*tensor.Tensor // and all that is known
	done   map[graph.Value]bool           // output 0 of nodes that have none, and have run
	trace  int64
	cache  map[string]lazyProgram
	recent []string // keys of cache, the oldest first
	stats  LazyStats
}

// A lazyProgram is a compiled trace. Its nodes are numbers in the graph that it was compiled of; in another trace of its structure the nodes
// at the same places are those that they stand for.
type lazyProgram struct {
	*Program
	nodes []int
}

// LazyStats counts Evals, and how many of them had to compile.
type LazyStats struct{ Evals, Compiled int }

// stepCache is how many programs a Lazy keeps.
const stepCache = 64

// NewLazy returns a Lazy over a State, in which Variables live from one trace to the next by their names.
func NewLazy(s *State, o Options) *Lazy {
	z := &Lazy{o: o, state: s, cache: map[string]lazyProgram{}}
	z.Reset()
	return z
}

// Builder is what the trace's operations are appended to.
func (z *Lazy) Builder() *graph.Builder { return z.b }

// Reset forgets the trace and its values, and begins a new one.
func (z *Lazy) Reset() {
	z.b = graph.NewBuilder()
	z.inputs, z.done = map[graph.Value]*tensor.Tensor{}, map[graph.Value]bool{}
	z.trace++
}

// Stats counts what happened so far.
func (z *Lazy) Stats() LazyStats { return z.stats }

// Input is t as a value of the trace. t is read when something that depends on it is evaluated.
func (z *Lazy) Input(t *tensor.Tensor) graph.Value {
	v := z.b.Input(fmt.Sprintf("lazy_%d", len(z.inputs)), t.DType(), graph.Of(t.Shape()...)...)
	z.inputs[v] = t
	return v
}

// Eval returns the tensors of values of this trace, only to be read, computing those that are not known yet. Reads and writes of a Variable
// happen in the order in which they were made, however Evals ask for them, and once, also if an Eval fails behind them. A Variable without a
// value gets its initial one. Of an operation that gives nothing, such as Enqueue, the tensor is nil.
func (z *Lazy) Eval(ctx context.Context, vs ...graph.Value) ([]*tensor.Tensor, error) {
	z.stats.Evals++
	g, err := z.b.Build()
	if err != nil {
		return nil, err
	}
	if err := z.compute(ctx, g, vs); err != nil {
		return nil, err
	}
	out := make([]*tensor.Tensor, len(vs))
	for i, v := range vs {
		out[i] = z.inputs[v]
	}
	return out, nil
}

func (z *Lazy) compute(ctx context.Context, g *graph.Graph, vs []graph.Value) error {
	t := z.pending(g, vs)
	if len(t.fetches) == 0 && len(t.targets) == 0 {
		return nil
	}
	for _, v := range t.fetches { // before the key, in which a node is a number that one of another trace may have too
		if !g.Contains(v) {
			return fmt.Errorf("exec: eval: %v is not a value of this trace; Reset began a new one", v)
		}
	}
	key := t.key(g)
	p, ok := z.cache[key]
	if !ok {
		z.stats.Compiled++
		if err := z.state.Init(g); err != nil {
			return err
		}
		compiled, err := compileAfter(z.done, g, t.feeds, t.fetches, t.targets, z.o)
		if err != nil {
			return err
		}
		p = lazyProgram{compiled, t.nodes}
		if len(z.recent) == stepCache {
			delete(z.cache, z.recent[0])
			z.recent = z.recent[1:]
		}
		z.cache[key] = p
		z.recent = append(z.recent, key)
	}
	feeds := make([]*tensor.Tensor, len(t.feeds))
	for i, v := range t.feeds {
		feeds[i] = z.inputs[v]
	}
	dst, own := make([]*tensor.Tensor, len(t.fetches)), newOutcome()
	complete := make([]bool, len(t.fetches))
	if err := p.runStep(ctx, z.state, Step{ID: z.trace}, own, feeds, dst, func(i int) { complete[i] = true }); err != nil {
		z.salvage(g, t, p.nodes, own, dst, complete)
		return err
	}
	for i, v := range t.fetches {
		z.inputs[v] = dst[i]
	}
	for _, v := range t.targets {
		z.done[v] = true
	}
	return nil
}

// salvage keeps what a step did before it failed, as if an Eval had asked for that alone: no effect happens again, and what was read before
// a write stays what it was. Every effect's results are fetched, a Read's too if a write follows it; those of continuations are in own,
// since the copies that are fetched may not have been made.
func (z *Lazy) salvage(g *graph.Graph, t *trace, nodes []int, own *outcome, dst []*tensor.Tensor, complete []bool) {
	for i, v := range t.fetches {
		if complete[i] {
			z.inputs[v] = dst[i]
		}
	}
	for n, w := range own.nodes {
		at, found := slices.BinarySearch(nodes, n.id)
		if !found || !w.done {
			continue
		}
		id := t.nodes[at]
		if len(g.Node(id).Types) == 0 {
			z.done[g.Value(id, 0)] = true
		}
		for k, x := range w.values {
			z.inputs[g.Value(id, k)] = x
		}
	}
}

// A trace is the part of a graph that an Eval runs.
type trace struct {
	nodes          []int // in creation order
	feeds, fetches []graph.Value
	targets        []graph.Value // nodes that give nothing
}

// pending finds what the values depend on and nobody has computed, and with it the earlier effects on the same resources.
func (z *Lazy) pending(g *graph.Graph, vs []graph.Value) *trace {
	t := &trace{}
	need := make([]bool, g.Len())
	isFeed := map[graph.Value]bool{}
	var stack []int
	visit := func(v graph.Value) {
		if z.inputs[v] != nil {
			if !isFeed[v] {
				isFeed[v] = true
				t.feeds = append(t.feeds, v)
			}
		} else if g.Contains(v) && !need[v.Node()] && !z.done[v] {
			need[v.Node()] = true
			stack = append(stack, v.Node())
		}
	}
	asked := map[graph.Value]bool{}
	effects := map[int][]int{} // nodes on each resource
	for n := range g.Nodes() {
		for _, r := range n.Resources {
			effects[r] = append(effects[r], n.ID)
		}
	}
	ask := func(v graph.Value) {
		if z.inputs[v] != nil || z.done[v] || asked[v] {
			return
		}
		asked[v] = true
		if g.Contains(v) && len(g.Node(v.Node()).Types) == 0 {
			t.targets = append(t.targets, v)
		} else {
			t.fetches = append(t.fetches, v)
		}
		visit(v)
	}
	for _, v := range vs {
		ask(v)
	}
	// An effect happens once: all that it gives, or that it has happened, is kept for the Evals that follow.
	keep := func(m *graph.Node) {
		for k := range max(1, len(m.Types)) {
			ask(g.Value(m.ID, k))
		}
	}
	for len(stack) > 0 {
		n := g.Node(stack[len(stack)-1])
		stack = stack[:len(stack)-1]
		if n.Op.Effect == graph.Write || n.Op.Effect == graph.Blocking {
			keep(n)
		}
		for _, v := range n.Inputs {
			visit(v)
		}
		for _, id := range n.Control {
			visit(g.Value(id, 0))
		}
		for _, r := range n.Resources {
			for _, id := range effects[r] {
				if id < n.ID {
					keep(g.Node(id))
				}
			}
		}
	}
	for id, wanted := range need {
		if wanted {
			t.nodes = append(t.nodes, id)
		}
	}
	order := func(a, b graph.Value) int {
		if a.Node() != b.Node() {
			return a.Node() - b.Node()
		}
		return a.Out() - b.Out()
	}
	slices.SortFunc(t.feeds, order)
	slices.SortFunc(t.fetches, order)
	slices.SortFunc(t.targets, order)
	return t
}

// key is the structure of a trace: equal keys, and only these, are the same program.
func (t *trace) key(g *graph.Graph) string {
	var p []byte
	number := map[int]int{} // of nodes, as the trace counts them
	put := func(i int) { p = binary.AppendVarint(p, int64(i)) }
	for _, v := range t.feeds {
		p = append(p, 'f', byte(v.DType()))
		p = appendShape(p, v.Shape())
	}
	ref := func(v graph.Value) {
		if i, ok := slices.BinarySearchFunc(t.feeds, v, func(a, b graph.Value) int {
			if a.Node() != b.Node() {
				return a.Node() - b.Node()
			}
			return a.Out() - b.Out()
		}); ok {
			put(-1 - i)
			return
		}
		put(number[v.Node()])
		put(v.Out())
	}
	for i, id := range t.nodes {
		number[id] = i
		n := g.Node(id)
		p = append(p, n.Op.Name...)
		put(len(n.Inputs))
		for _, v := range n.Inputs {
			ref(v)
		}
		put(len(n.Control))
		for _, c := range n.Control {
			k, pending := number[c]
			if !pending { // it has run
				k = -1
			}
			put(k)
		}
		for _, r := range n.Resources {
			p = append(p, g.Resources()[r].Name...)
			p = append(p, 0)
			for _, typ := range g.Resources()[r].Types { // else a program for a Variable of another shape would do
				p = appendShape(append(p, byte(typ.DType)), typ.Shape)
			}
		}
		if draws(n) {
			put(id) // what the numbers are drawn from
		}
		p = appendAttrs(p, n)
		if n.Body != nil {
			h := n.Body.Hash()
			p = append(p, h[:]...)
		}
	}
	put(len(t.fetches))
	for _, v := range slices.Concat(t.fetches, t.targets) {
		ref(v)
	}
	return string(p)
}

func appendAttrs(p []byte, n *graph.Node) []byte {
	for _, a := range n.Attrs() {
		p = append(p, a.String()...)
		p = append(p, 0)
		if a.Lit != nil {
			p = append(p, a.Lit.Data...)
		}
	}
	return p
}

// draws says whether a node draws random numbers, itself or in its body.
func draws(n *graph.Node) bool {
	if n.Op.Effect == graph.Random {
		return true
	}
	if n.Body != nil {
		for m := range n.Body.Nodes() {
			if draws(m) {
				return true
			}
		}
	}
	return false
}
