package exec

import "github.com/trivium-ml/trivium/graph"

// land gives each fetch a value of its own, which may be written where the caller wants it: the node's own result if nothing else
// needs that to be elsewhere, else a copy, made at once, since a write may follow what it is of.
func (c *compiler) land() {
	owner := make(map[ref]bool, len(c.out))
	copies := make(map[*node][]*node) // of each node's results
	for i, r := range c.out {
		r = r.end()
		root := viewed(r)
		if computes(root) && !owner[root] && (root == r || sameElements(root, r)) {
			owner[root] = true
			root.n.rare().fetches = append(root.n.fetches, landing{i, root.out})
			c.out[i] = r
			continue
		}
		n := &node{op: opCopy, src: r.n.src, in: []ref{r}, extra: &extra{fetches: []landing{{i, 0}}}, seq: r.n.seq}
		c.setTypes(n, []graph.Type{r.typ()})
		copies[r.n] = append(copies[r.n], n)
		c.out[i] = ref{n, 0}
	}
	nodes := make([]*node, 0, len(c.nodes)+len(c.out))
	for _, n := range c.all() {
		nodes = append(append(nodes, n), copies[n]...)
	}
	c.nodes = nodes
}

// viewed follows views to the value whose memory they share.
func viewed(r ref) ref {
	for r.n.views() {
		r = r.n.in[0].end()
	}
	return r
}

func sameElements(a, b ref) bool { return a.typ().DType == b.typ().DType }

// computes says whether the value is one that a kernel writes where it is told to.
func computes(r ref) bool {
	switch r.n.op {
	case opFeed, "Const", "Read":
		return false
	}
	return kernels[r.n.op].bind != nil && len(r.n.list.types) > r.out
}

// sweep drops nodes that nobody needs, resolves replacements, and numbers what is left in creation order.
func (c *compiler) sweep() {
	for _, n := range c.all() {
		n.mark = n.op == opFeed
	}
	for _, n := range c.all() {
		if n.keep {
			if n.fwd != nil {
				n = n.fwd[0].end().n
				n.keep = true
			}
			n.mark = true
		}
	}
	for _, r := range c.out {
		r.end().n.mark = true
	}
	for i := len(c.all()) - 1; i >= 0; i-- {
		n := c.nodes[i]
		if !n.mark {
			continue
		}
		for i, r := range n.in {
			n.in[i] = r.end()
			n.in[i].n.mark = true
		}
		for i, m := range n.after {
			if m.fwd != nil {
				n.after[i] = m.fwd[0].end().n
			}
			n.after[i].mark = true
		}
	}
	live := c.nodes[:0]
	for _, n := range c.all() {
		if n.mark {
			live = append(live, n)
		}
	}
	clear(c.nodes[len(live):])
	c.nodes = live
	for i, n := range c.all() {
		n.seq = i
	}
	for i, r := range c.out {
		c.out[i] = r.end()
	}
}

// sort restores an order in which operands come before their readers, close to that of creation, after a pass appended nodes.
func (c *compiler) sort() {
	for _, n := range c.all() {
		n.mark = false
	}
	order := make([]*node, 0, len(c.nodes))
	type frame struct {
		n    *node
		next int
	}
	var stack []frame
	for _, root := range c.all() {
		if root.mark {
			continue
		}
		root.mark = true
		stack = append(stack[:0], frame{root, 0})
		for len(stack) > 0 {
			f := &stack[len(stack)-1]
			var m *node
			replaced := f.n.fwd != nil
			switch {
			case replaced && f.next == 0: // what came in its place stands there: behind a write, it would read past that
				m = f.n.fwd[0].end().n
			case !replaced && f.next < len(f.n.in):
				m = f.n.in[f.next].end().n
			case !replaced && f.next < len(f.n.in)+len(f.n.after):
				if m = f.n.after[f.next-len(f.n.in)]; m.fwd != nil {
					m = m.fwd[0].end().n
				}
			default:
				order = append(order, f.n)
				stack = stack[:len(stack)-1]
				continue
			}
			f.next++
			c.looked++
			if !m.mark {
				m.mark = true
				stack = append(stack, frame{m, 0})
			}
		}
	}
	c.nodes = order
}

// protectReads makes a write wait for those that still read the old version, where creation order allows; where it does not (a
// value read before the write is used after it), the write finds the version in use and leaves its memory alone.
func (c *compiler) protectReads() {
	users := make(map[*node][]*node) // of Reads and views on them
	for _, n := range c.all() {
		for _, r := range n.in {
			if root := viewed(r); root.n.op == "Read" {
				users[root.n] = append(users[root.n], n)
			}
		}
	}
	reads := make(map[int][]*node) // since the last write of each resource
	for _, n := range c.all() {
		if n.eff == graph.Pure {
			continue
		}
		for _, id := range n.src.Resources {
			if n.op == "Read" {
				reads[id] = append(reads[id], n)
				continue
			}
			for _, r := range reads[id] {
				later := false
				c.looked += len(users[r])
				for _, u := range users[r] {
					if u.seq < n.seq {
						n.rare().after = append(n.after, u)
					} else if u != n || n.op == "Apply" { // whose rule may read its operands while it writes
						later = true
					}
				}
				if !later {
					n.rare().own = append(n.own, r)
				}
			}
			reads[id] = nil
		}
	}
}
