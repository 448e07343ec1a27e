package exec

import (
	"slices"

	"github.com/trivium-ml/trivium/graph"
)

// clean removes nodes that change no bit: the identity in disguise, a transposition that a product does for nothing, repetition that
// an element-wise kernel does anyway.
func (c *compiler) clean() {
	for _, n := range c.all() {
		if n.fwd != nil || n.op == opFeed {
			continue
		}
		for i, r := range n.in {
			n.in[i] = r.end()
		}
		if to, ok := identity(n); ok && len(n.after) == 0 && (n.views() || viewed(to).n.next == nil) { // else its readers may outlive it
			n.fwd = []ref{to}
			continue
		}
		switch n.op {
		case "Reshape": // of a Reshape: of what that reshapes
			for n.in[0].n.views() && len(n.in[0].n.after) == 0 {
				n.in[0] = n.in[0].n.in[0].end()
			}
		case "MatMul":
			n.sig = [2]uint64{}
			n.rare().ta = absorbTranspose(n, 0, n.ta)
			n.tb = absorbTranspose(n, 1, n.tb)
		}
		if n.ewise && len(n.in) > 1 || n.op == "Where" || n.op == "Less" || n.op == "Equal" {
			absorbBroadcasts(n)
		}
	}
}

// identity finds the value that n merely repeats.
func identity(n *node) (ref, bool) {
	if len(n.in) == 0 {
		return ref{}, false
	}
	same := len(n.list.types) == 1 && n.in[0].sameType(n)
	switch n.op {
	case "StopGradient":
		return n.in[0], true
	case "Reshape", "BroadcastTo", "Cast", "SumTo":
		return n.in[0], same
	case "Sum", "Mean", "ReduceMax":
		return n.in[0], same && len(n.attr("axes").Ints) == 0
	case "Concat":
		return n.in[0], len(n.in) == 1
	case "Transpose":
		perm := n.attr("perm").Ints
		if src := n.in[0].n; src.op == "Transpose" && len(src.after) == 0 && inverse(perm, src.attr("perm").Ints) {
			return src.in[0].end(), true
		}
		return n.in[0], slices.IsSorted(perm)
	case "Neg":
		if src := n.in[0].n; src.op == "Neg" && len(src.after) == 0 {
			return src.in[0].end(), true
		}
	case "Mul": // by 1
		if same && isOne(n.in[1]) {
			return n.in[0], true
		}
		return n.in[1], n.in[1].sameType(n) && isOne(n.in[0])
	case "Div":
		return n.in[0], same && isOne(n.in[1])
	}
	return ref{}, false
}

// inverse says whether p undoes q.
func inverse(p, q []int) bool {
	for i, a := range p {
		if q[a] != i {
			return false
		}
	}
	return true
}

// isOne says whether a value is a constant of ones.
func isOne(r ref) bool {
	for (r.n.op == "BroadcastTo" || r.n.op == "Reshape") && len(r.n.after) == 0 {
		r = r.n.in[0].end()
	}
	if r.n.op != "Const" || len(r.n.after) > 0 {
		return false
	}
	if n, ok := r.typ().Shape.Elements(); !ok || n == 0 || n > 4096 {
		return false
	}
	if l := r.n.src.Literal("value"); r.n.value == nil && l != nil && l.At(0) != 1 {
		return false
	}
	s := slotOf(r.n.constant())
	switch s.dt {
	case graph.F32:
		return all(flat[float32](s), 1)
	case graph.F64:
		return all(flat[float64](s), 1)
	}
	return false
}

func all[T comparable](x []T, want T) bool {
	for _, v := range x {
		if v != want {
			return false
		}
	}
	return true
}

// absorbTranspose lets a product read operand i as it was before a transposition.
func absorbTranspose(n *node, i int, transposed bool) bool {
	for n.in[i].n.op == "Transpose" && len(n.in[i].n.after) == 0 && slices.Equal(n.in[i].n.attr("perm").Ints, []int{1, 0}) {
		before := n.in[i].n.in[0].end()
		if n.outlives(before) {
			break
		}
		n.in[i] = before
		transposed = !transposed
	}
	return transposed
}

// absorbBroadcasts lets an element-wise node read its operands unrepeated, as long as its result keeps its shape.
func absorbBroadcasts(n *node) {
	for i, r := range n.in {
		if r.n.op != "BroadcastTo" || len(r.n.after) > 0 {
			continue
		}
		old := n.in[i]
		n.in[i] = r.n.in[0].end()
		if s, err := broadcastAll(n.in); err != nil || !s.Equal(n.list.types[0].Shape) || n.outlives(n.in[i]) {
			n.in[i] = old
		}
	}
}

func broadcastAll(in []ref) (graph.Shape, error) {
	s := in[0].typ().Shape
	for _, r := range in[1:] {
		var err error
		if s, err = graph.Broadcast(s, r.typ().Shape); err != nil {
			return nil, err
		}
	}
	return s, nil
}
