package exec

import (
	"fmt"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// A node is one operation of a Program: a node of the graph, or one that a pass made of several. Passes change nodes; after Compile
// nobody writes to them.
type node struct {
	op      string      // name in the operation table, or one of the internal operations below
	src     *graph.Node // the graph's node: of a fused one, the last; of a feed, who would have computed it
	in      []ref
	list    *typeList // types of the outputs
	fwd     []ref     // where this node's outputs went when a pass replaced it
	*extra            // what most nodes do not have
	sig     [2]uint64 // hashes of what the node is but for its operands, by two seeds; zero: not computed
	seq     int       // position in creation order, which stays topological through every pass
	users   int       // readers of any output, counted anew by each pass that needs it
	segment int       // -1: no work
	eff     graph.Effect
	mark    bool
	keep    bool // is wanted for its effect
	ewise   bool // an operation that chains are made of
}

// An extra is what few nodes have; the others share an empty one. A graph of 100,000 nodes is walked by a dozen passes, which take as
// long as it takes to read the nodes from memory.
type extra struct {
	shared  bool
	after   []*node        // nodes that run before this one for their effects' sake
	own     []*node        // of a write: Reads whose readers have all run by then
	next    *node          // of a Read: the write that ends its version
	feed    int            // of a Feed: which
	value   *tensor.Tensor // of a Const
	ta, tb  bool           // of a MatMul or Dense
	act     string         // of a Dense or Conv2D
	code    []instr        // of a Fused
	scan    *scanCode      // of a Scan
	fetches []landing      // outputs that are written where the caller wants a fetch
}

// rare is the node's own extra, to be written to.
func (n *node) rare() *extra {
	if n.shared {
		n.extra = &extra{}
	}
	return n.extra
}

// The internal operations.
const (
	opFeed  = "Feed"  // a fed value
	opCopy  = "Copy"  // a value that must not share memory with its operand: a fetch
	opFused = "Fused" // a chain of element-wise operations, block by block
	opXent  = "SoftmaxCrossEntropyBoth"
)

// A landing says that an output of a node is a fetch.
type landing struct{ fetch, out int }

// A ref is one output of a node.
type ref struct {
	n   *node
	out int
}

func (r ref) typ() graph.Type { return r.n.list.types[r.out] }

// end follows replacements.
func (r ref) end() ref {
	for r.n.fwd != nil {
		r = r.n.fwd[r.out]
	}
	return r
}

// A typeList is the types of a node's outputs, one for all nodes that have the same: comparing them is comparing pointers, and passes
// over a large graph touch little memory.
type typeList struct {
	id    int
	types []graph.Type
	dims  [][]dim // with axes as numbers
}

// sameType says whether a value has the type of n's first result.
func (r ref) sameType(n *node) bool {
	if r.n.list == n.list {
		return r.out == 0 || r.typ().Equal(n.list.types[0])
	}
	return len(r.n.list.types) > 1 && r.typ().Equal(n.list.types[0]) || len(n.list.types) > 1 && r.typ().Equal(n.list.types[0])
}

// views says whether the node's result lies where its operand does.
func (n *node) views() bool { return n.op == "Reshape" || n.op == "StopGradient" }

// outlives says whether n comes after the write that ends the version which r is or views. A pass does not let a node read more of those
// than the graph does: the write would have to go elsewhere, or be refused where the Variable is bound.
func (n *node) outlives(r ref) bool {
	w := viewed(r).n.next
	return w != nil && w.seq < n.seq
}

// constant is the value of a Const, copied from the graph when it is first asked for: many constants do not survive the passes.
func (n *node) constant() *tensor.Tensor {
	if n.value == nil {
		n.rare().value = fromLiteral(n.src.Literal("value"))
	}
	return n.value
}

// name is how errors and traces call the node.
func (n *node) name() string {
	if n.src != nil {
		return n.src.Name
	}
	return fmt.Sprintf("%s %d", n.op, n.feed)
}

// effect is what the node does besides computing.
func (n *node) effect() graph.Effect { return n.eff }

func (n *node) attr(name string) graph.Attr {
	if n.src == nil {
		return graph.Attr{}
	}
	a, _ := n.src.Attr(name)
	return a
}

// wanted says whether an output of a Scan is computed: which are is decided when the body is compiled.
func (n *node) wanted(out int) bool { return n.scan == nil || n.scan.wanted[out] }
