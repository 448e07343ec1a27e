package exec

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A Program is a compiled graph: what to compute for these fetches and targets, given these feeds. It is immutable, and may be run by
// many goroutines at once, each run with memory of its own.
type Program struct {
	g        *graph.Graph
	hash     func() [sha256.Size]byte // of g; worked out when a step is named that may be repeated
	o        Options
	isa      kernel.ISA
	pool     *tensor.Pool
	feeds    []graph.Value
	fetches  []graph.Value
	nodes    []*node // in creation order
	segments []*segment
	blocking []*node
	out      []ref // the fetched values
	lists    []*typeList
	axes     []string
	looked   int // how often the passes looked at a node: what compiling costs, but for the clock
	feedDims [][]dim
	plans    plans
}

// Options of Compile. The zero value works.
type Options struct {
	CPU          *tensor.CPU      // threads and kernels; nil: the caller alone, with the best kernels
	Device       string           // what errors and traces call this machine; default "/cpu:0"
	Serial       bool             // run nodes one by one in creation order on the caller: the oracle
	Plain        bool             // no pass but pruning: the graph as it was written
	Grain        int              // scalar operations or bytes that are worth a tile of their own; default 64 Ki, about the cost of waking a thread
	Bindings     int              // memory plans kept, each for one size of the named axes; default 8
	StepDeadline time.Duration    // how long a step may wait in all; default 60 s
	CheckFinite  bool             // fail at the first node whose result has a NaN or an infinity
	Trace        func(TraceEvent) // called after every node and transfer, by many threads at once; nil: nothing
	Rules        map[string]Rule  // what Apply nodes name
	Rendezvous   Rendezvous       // where Send and Recv meet; needed by graphs that have them
}

func (o Options) withDefaults() Options {
	if o.Device == "" {
		o.Device = "/cpu:0"
	}
	if o.Grain == 0 {
		o.Grain = 64 << 10
	}
	if o.Bindings == 0 {
		o.Bindings = 8
	}
	if o.StepDeadline == 0 {
		o.StepDeadline = 60 * time.Second
	}
	return o
}

func (o Options) validate() error {
	var errs []error
	if o.Grain < 0 {
		errs = append(errs, fmt.Errorf("Grain %d is negative", o.Grain))
	}
	if o.Bindings < 0 {
		errs = append(errs, fmt.Errorf("Bindings %d is negative", o.Bindings))
	}
	if o.StepDeadline < 0 {
		errs = append(errs, fmt.Errorf("StepDeadline %v is negative", o.StepDeadline))
	}
	return errors.Join(errs...)
}

// foldLimit is the largest result of constant folding, in bytes: more would make a program larger than its graph.
const foldLimit = 1 << 20

// Compile prepares the computation of fetches, and of targets for their effects, stopping at feeds. Any value may be fed. The error
// names every value that is not of g, every operation without a kernel, and every feed that is missing.
func Compile(g *graph.Graph, feeds, fetches, targets []graph.Value, o Options) (*Program, error) {
	return compileAfter(nil, g, feeds, fetches, targets, o)
}

// compileAfter is Compile where the nodes of done, which have no outputs that could be fed, have run already.
func compileAfter(done map[graph.Value]bool, g *graph.Graph, feeds, fetches, targets []graph.Value, o Options) (*Program, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("exec: options: %w", err)
	}
	p := &Program{g: g, hash: sync.OnceValue(g.Hash), o: o.withDefaults(), feeds: slices.Clone(feeds), fetches: slices.Clone(fetches), isa: kernel.Best()}
	if o.CPU != nil {
		p.isa, p.pool = o.CPU.ISA, o.CPU.Pool
	}
	c := &compiler{Program: p, done: done, byID: make([]*node, g.Len()), fed: make(map[graph.Value]*node, len(feeds)), byType: map[string]*typeList{}, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, none: &extra{shared: true}}
	if err := c.prune(targets); err != nil {
		return nil, fmt.Errorf("exec: compile: %w", err)
	}
	c.orderEffects()
	if !p.o.Plain {
		if err := c.fold(); err != nil {
			return nil, err
		}
		c.merge()
		c.clean()
		c.merge() // what became equal by cleaning
		c.fuse()
	}
	c.land()
	c.sweep()
	for _, n := range c.all() {
		if n.op == "Const" {
			n.constant()
		}
	}
	c.protectReads()
	if err := c.compileScans(); err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("exec: compile: %w", err)
	}
	c.cut()
	c.internAxes()
	p.plans.limit = p.o.Bindings
	return p, nil
}

// A compiler is a Program in the making.
type compiler struct {
	*Program
	byID []*node // of the graph's nodes
	fed  map[graph.Value]*node
	done map[graph.Value]bool // of nodes that are not run
	slab []node               // nodes and operands are allocated many at a time, so that neighbours are neighbours in memory
	refs []ref
	// What setTypes has met.
	byType map[string]*typeList
	key    []byte
	none   *extra // of nodes without any
	seeds  [2]maphash.Seed
}

// all is the nodes, for a pass that looks at each of them.
func (c *compiler) all() []*node {
	c.looked += len(c.nodes)
	return c.nodes
}

// prune makes nodes of what the fetches and targets need.
func (c *compiler) prune(targets []graph.Value) error {
	var errs []error
	for i, v := range c.feeds {
		if !c.g.Contains(v) || v.Out() >= len(c.g.Node(v.Node()).Types) {
			errs = append(errs, fmt.Errorf("feed %d (%v) is not a value of the graph", i, v))
			continue
		}
		if c.fed[v] != nil {
			errs = append(errs, fmt.Errorf("feed %d (%v) is given twice", i, v))
			continue
		}
		n := &node{op: opFeed, extra: &extra{feed: i}, src: c.g.Node(v.Node()), seq: len(c.nodes)}
		c.setTypes(n, []graph.Type{c.g.TypeOf(v)})
		c.fed[v] = n
		c.nodes = append(c.nodes, n)
	}
	for i, v := range c.fetches {
		if !c.g.Contains(v) || v.Out() >= len(c.g.Node(v.Node()).Types) {
			errs = append(errs, fmt.Errorf("fetch %d (%v) is not a value of the graph", i, v))
		}
	}
	for i, v := range targets {
		if !c.g.Contains(v) {
			errs = append(errs, fmt.Errorf("target %d (%v) is not a node of the graph", i, v))
		}
	}
	if errs != nil {
		return errors.Join(errs...)
	}
	for id, wanted := range c.reach(targets) {
		if !wanted {
			continue
		}
		src := c.g.Node(id)
		if src.Op.Name == "Input" {
			errs = append(errs, fmt.Errorf("input %q is needed but not fed", src.Name))
			continue
		}
		c.byID[id] = c.make(src)
	}
	if errs != nil {
		return errors.Join(errs...)
	}
	for _, v := range c.fetches {
		c.out = append(c.out, c.ref(v))
	}
	for _, v := range targets {
		if n := c.byID[v.Node()]; n != nil { // nil: the target is fed
			n.keep = true
		}
	}
	return nil
}

// reach marks the nodes that fetches and targets depend on, not looking behind feeds. Operands have lower numbers than their readers, so
// one walk backwards finds them all; it walks over a short copy of the edges, since memory is read forwards faster.
func (c *compiler) reach(targets []graph.Value) []bool {
	n := c.g.Len()
	fed := make([]bool, n) // has a fed output, or nothing to feed
	for _, v := range c.feeds {
		fed[v.Node()] = true
	}
	for v := range c.done {
		fed[v.Node()] = true
	}
	edges, ends := make([]int32, 0, 2*n), make([]int32, n+1)
	for id := range n {
		src := c.g.Node(id)
		for _, v := range src.Inputs {
			if k := v.Node(); !fed[k] || c.fed[v] == nil {
				edges = append(edges, int32(k))
			}
		}
		for _, k := range src.Control {
			if !fed[k] && c.g.Node(k).Op.Name != "Input" {
				edges = append(edges, int32(k))
			}
		}
		ends[id+1] = int32(len(edges))
	}
	need := make([]bool, n)
	for _, v := range slices.Concat(c.fetches, targets) {
		if c.fed[v] == nil {
			need[v.Node()] = true
		}
	}
	for id := n - 1; id >= 0; id-- {
		if need[id] {
			for _, k := range edges[ends[id]:ends[id+1]] {
				need[k] = true
			}
		}
	}
	return need
}

// setTypes gives n the types of its outputs.
func (c *compiler) setTypes(n *node, types []graph.Type) {
	c.key = c.key[:0]
	for _, t := range types {
		c.key = appendShape(append(c.key, byte(t.DType)), t.Shape)
	}
	l := c.byType[string(c.key)]
	if l == nil {
		l = &typeList{id: len(c.lists), types: types}
		c.lists = append(c.lists, l)
		c.byType[string(c.key)] = l
	}
	n.list = l
}

func (c *compiler) ref(v graph.Value) ref {
	if n := c.fed[v]; n != nil {
		return ref{n, 0}
	}
	return ref{c.byID[v.Node()], v.Out()}
}

// make turns a node of the graph into one of the program; its operands are there already.
func (c *compiler) make(src *graph.Node) *node {
	if len(c.slab) == 0 {
		c.slab = make([]node, 512)
	}
	n := &c.slab[0]
	c.slab = c.slab[1:]
	*n = node{seq: len(c.nodes), op: src.Op.Name, src: src, eff: src.Op.Effect, extra: c.none}
	c.setTypes(n, src.Types)
	n.ewise = elementwise[n.op].arity > 0
	if len(c.refs) < len(src.Inputs) {
		c.refs = make([]ref, 1024+len(src.Inputs))
	}
	n.in, c.refs = c.refs[:len(src.Inputs):len(src.Inputs)], c.refs[len(src.Inputs):]
	for i, v := range src.Inputs {
		n.in[i] = c.ref(v)
	}
	for _, id := range src.Control {
		if m := c.byID[id]; m != nil {
			n.rare().after = append(n.after, m)
		}
	}
	switch n.op {
	case "MatMul":
		e := n.rare()
		e.ta, e.tb = src.Bool("ta"), src.Bool("tb")
	case "Dense", "Conv2D":
		n.rare().act = src.Str("act")
	}
	if n.eff == graph.Pure { // now, while src is near
		c.sign(n)
	}
	c.nodes = append(c.nodes, n)
	return n
}

// orderEffects makes the nodes on one resource run in creation order, reads between two writes together.
func (c *compiler) orderEffects() {
	type line struct {
		write *node
		reads []*node
	}
	lines := make([]line, len(c.g.Resources()))
	for _, n := range c.all() {
		if n.eff == graph.Pure {
			continue
		}
		for _, id := range n.src.Resources {
			l := &lines[id]
			if n.effect() == graph.Read {
				if l.write != nil {
					n.rare().after = append(n.after, l.write)
				}
				l.reads = append(l.reads, n)
				continue
			}
			if l.write != nil {
				n.rare().after = append(n.after, l.write)
			}
			n.rare().after = append(n.after, l.reads...)
			for _, r := range l.reads {
				r.rare().next = n
			}
			l.write, l.reads = n, nil
		}
	}
}

// check reports every operation that has no kernel for its element type.
func (c *compiler) check() error {
	var errs []error
	for _, n := range c.all() {
		k, ok := kernels[n.op]
		if !ok {
			errs = append(errs, fmt.Errorf("%s: operation %s has no kernel", n.name(), n.op))
		} else if k.accepts != nil {
			if err := k.accepts(n); err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", n.name(), n.op, err))
			}
		}
		if n.op == "Apply" && c.o.Rules[n.attr("rule").S] == nil {
			errs = append(errs, fmt.Errorf("%s: no rule %q in Options.Rules", n.name(), n.attr("rule").S))
		}
		if (n.op == "Send" || n.op == "Recv") && c.o.Rendezvous == nil {
			errs = append(errs, fmt.Errorf("%s: %s without Options.Rendezvous", n.name(), n.op))
		}
	}
	return errors.Join(errs...)
}
