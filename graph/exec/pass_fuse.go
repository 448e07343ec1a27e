package exec

import (
	"slices"

	"github.com/trivium-ml/trivium/graph"
)

// fuse makes one node of several where the bits stay the same and a pass over memory is saved.
func (c *compiler) fuse() {
	c.countUsers()
	c.fuseDense()
	c.countUsers()
	c.fuseCrossEntropy()
	c.countUsers()
	c.fuseChains()
}

// countUsers counts the readers of each node that somebody needs, fetches included.
func (c *compiler) countUsers() {
	for _, n := range c.all() {
		n.users, n.mark = 0, n.op == opFeed
	}
	use := func(n *node) {
		n.users++
		n.mark = true
	}
	for _, r := range c.out {
		use(r.end().n)
	}
	for _, n := range c.all() {
		if n.keep && n.fwd == nil {
			use(n)
		} else if n.keep {
			use(n.fwd[0].end().n)
		}
	}
	for i := len(c.all()) - 1; i >= 0; i-- { // readers come after what they read
		n := c.nodes[i]
		if !n.mark {
			continue
		}
		for i, r := range n.in {
			n.in[i] = r.end()
			use(n.in[i].n)
		}
		for _, m := range n.after {
			if m.fwd != nil {
				m = m.fwd[0].end().n
			}
			use(m)
		}
	}
}

// live says whether a node is still part of the program.
func (n *node) live() bool { return n.fwd == nil && n.users > 0 }

var activations = map[string]string{"ReLU": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid"}

// fuseDense makes a product with bias and activation one node, whose epilogue works on a tile while that is in registers. Between them
// nobody else may read what is no longer stored.
func (c *compiler) fuseDense() {
	for _, n := range c.all() {
		if !n.live() || len(n.after) > 0 {
			continue
		}
		switch {
		case n.op == "Add":
			for i := range 2 {
				m, bias := n.in[i], n.in[1-i]
				if fusible(m.n, n) && m.n.op == "MatMul" && isRow(bias, n) {
					n.op, n.ewise = "Dense", false
					n.linear(m.n, "")
					n.in = []ref{m.n.in[0], m.n.in[1], bias}
					m.n.users = 0
					break
				}
				if fusible(m.n, n) && m.n.op == "Conv2D" && len(m.n.in) == 2 && m.n.act == "" && isRow(bias, n) {
					n.op, n.src, n.ewise = "Conv2D", m.n.src, false
					n.linear(m.n, "")
					n.in = []ref{m.n.in[0], m.n.in[1], bias}
					m.n.users = 0
					break
				}
			}
		case activations[n.op] != "":
			m := n.in[0].n
			if fusible(m, n) && (m.op == "Dense" || m.op == "MatMul" || m.op == "Conv2D") && m.act == "" {
				act := activations[n.op]
				n.op, n.in, n.ewise = m.op, m.in, false
				n.linear(m, act)
				if n.op == "MatMul" {
					n.op = "Dense"
				}
				if n.op == "Conv2D" {
					n.src = m.src
				}
				m.users = 0
			}
		}
	}
}

// linear gives n the flags of the product m, and an activation.
func (n *node) linear(m *node, act string) {
	e := n.rare()
	e.ta, e.tb, e.act = m.ta, m.tb, act
}

// fusible says whether m may be computed inside its only reader n.
func fusible(m, n *node) bool {
	return m.live() && m.users == 1 && len(m.after) == 0 && len(m.list.types) == 1 && !m.keep && m.list == n.list && !slices.ContainsFunc(m.in, n.outlives)
}

// isRow says whether a value is one number a column of n's result.
func isRow(r ref, n *node) bool {
	s, t := r.typ().Shape, n.list.types[0].Shape
	return len(s) == 1 && s[0] == t[len(t)-1] && r.typ().DType == n.list.types[0].DType
}

// fuseCrossEntropy makes a softmax-cross-entropy and its gradient one node when both are needed: the gradient has all that the loss
// needs.
func (c *compiler) fuseCrossEntropy() {
	type key struct{ logits, labels ref }
	losses, fused := map[key]*node{}, false
	for _, n := range c.all() {
		n.mark = false
	}
	for _, n := range c.all() {
		if n.live() && n.op == "SoftmaxCrossEntropy" && len(n.after) == 0 {
			losses[key{n.in[0], n.in[1]}] = n
		}
	}
	for _, n := range c.all() {
		if !n.live() || n.op != "SoftmaxCrossEntropyGrad" || len(n.after) > 0 {
			continue
		}
		loss := losses[key{n.in[0], n.in[1]}]
		if loss == nil || c.dependsOn(n.in[2].n, loss) {
			continue
		}
		both := &node{op: opXent, extra: c.none, src: n.src, seq: n.seq, in: n.in}
		c.setTypes(both, slices.Concat(loss.list.types, n.list.types))
		c.nodes = append(c.nodes, both)
		loss.fwd = []ref{{both, 0}}
		n.fwd = []ref{{both, 1}}
		delete(losses, key{n.in[0], n.in[1]})
		fused = true
	}
	if fused {
		c.sort()
	}
}

// dependsOn says whether n needs target, or something that waits, since who ends the wait may wait for what target leads to, or a write,
// since what reads the version before it may follow target; dy rarely does, so the search is short: it ends at a constant or a feed. No
// node is marked when it is called, nor when it returns.
func (c *compiler) dependsOn(n, target *node) bool {
	var seen []*node
	visit := func(m *node) {
		if !m.mark {
			m.mark = true
			seen = append(seen, m)
		}
	}
	visit(n)
	found := false
	for at := 0; at < len(seen) && !found; at++ {
		m := seen[at]
		found = m == target || m.eff == graph.Blocking || m.eff == graph.Write
		for _, r := range m.in {
			visit(r.end().n)
		}
		for _, a := range m.after {
			if a.fwd != nil {
				a = a.fwd[0].end().n
			}
			visit(a)
		}
	}
	for _, m := range seen {
		m.mark = false
	}
	c.looked += len(seen)
	return found
}
