package kernel

// A LeafTree adds vectors pairwise, as they come, keeping one partial sum a level: the vectors are the leaves of a binary tree in
// which node i of a level is the sum of nodes 2i and 2i+1 below, and what is left in the end is added from the last to the first.
// The result depends on the number of leaves only: threads may each sum some of them, in trees of their own, in ascending order.
//
//	t.Reset(n)
//	for … { t.Skip(to the next leaf, if it does not follow); fill t.Leaf(); t.Push(isa) }
//	t.Sum(isa, dst) // or SumLeaves of the trees of all threads
type LeafTree[T Float] struct {
	n     int
	next  int // index of the next leaf
	nodes []leafNode[T]
	depth int         // of nodes, how many are in use
	z     [LeafRows]T // margins of LinearLeaves
}

// A leafNode is the sum of the leaves from index << level to (index+1) << level.
type leafNode[T Float] struct {
	level, index int
	sum          []T
}

// joins says whether r, which follows l, is its sibling.
func (l *leafNode[T]) joins(r *leafNode[T]) bool {
	return l.level == r.level && l.index&1 == 0 && l.index+1 == r.index
}

// Reset empties the tree, for vectors of length n.
func (t *LeafTree[T]) Reset(n int) {
	t.n, t.next, t.depth = n, 0, 0
}

// Reserve makes room for so many vectors, so that nothing is allocated for them when they come.
func (t *LeafTree[T]) Reserve(vectors int) {
	for len(t.nodes) < vectors {
		t.nodes = append(t.nodes, leafNode[T]{})
	}
	for i := range t.nodes {
		room(&t.nodes[i].sum, t.n)
	}
}

// Skip says that the next leaf is number next, and that those between are in other trees. Trees stay small if each takes runs of 2^k
// leaves that start at multiples of 2^k.
func (t *LeafTree[T]) Skip(next int) { t.next = next }

// Leaf returns where the next leaf is to be written. It holds what a former leaf left there.
func (t *LeafTree[T]) Leaf() []T {
	if t.depth == len(t.nodes) {
		t.nodes = append(t.nodes, leafNode[T]{})
	}
	return room(&t.nodes[t.depth].sum, t.n)
}

// Push adds the leaf that Leaf returned to the tree.
func (t *LeafTree[T]) Push(isa ISA) {
	d := &t.nodes[t.depth]
	d.level, d.index = 0, t.next
	t.next++
	t.depth++
	t.merge(isa)
}

// merge adds siblings at the end of the tree.
func (t *LeafTree[T]) merge(isa ISA) {
	for t.depth >= 2 {
		l, r := &t.nodes[t.depth-2], &t.nodes[t.depth-1]
		if !l.joins(r) {
			return
		}
		Add(isa, l.sum[:t.n], l.sum[:t.n], r.sum[:t.n])
		l.level, l.index = l.level+1, l.index/2
		t.depth--
	}
}

// pair returns the vector of the last leaf if the next one is to be added to it, nil if not.
func (t *LeafTree[T]) pair() []T {
	if t.depth == 0 {
		return nil
	}
	l := &t.nodes[t.depth-1]
	if l.level != 0 || l.index&1 != 0 || l.index+1 != t.next {
		return nil
	}
	return l.sum[:t.n]
}

// paired says that the next leaf was added to what pair returned.
func (t *LeafTree[T]) paired(isa ISA) {
	l := &t.nodes[t.depth-1]
	l.level, l.index = 1, l.index/2
	t.next++
	t.merge(isa)
}

// Sum writes the sum of all leaves, zeros if there are none. The tree must be Reset before it is used again.
func (t *LeafTree[T]) Sum(isa ISA, dst []T) {
	SumLeaves(isa, []*LeafTree[T]{t}, 0, dst[:t.n])
}

// SumLeaves writes columns from, from+1, … of the sum of the leaves of all trees to dst. Together the trees hold all leaves, of
// vectors as long. The vectors of the trees are overwritten in these columns, so that threads may take different columns at the same
// time; all trees must be Reset before they are used again.
func SumLeaves[T Float](isa ISA, trees []*LeafTree[T], from int, dst []T) {
	const cols = 2048 // a few vectors of them fit the first-level cache
	var stack [64]leafNode[T]
	for ; len(dst) > 0; from, dst = from+cols, dst[min(cols, len(dst)):] {
		n, depth := min(cols, len(dst)), 0
		for leaf := 0; ; {
			node := nodeAt(trees, leaf)
			if node == nil {
				break
			}
			leaf += 1 << node.level
			stack[depth] = leafNode[T]{node.level, node.index, node.sum[from:][:n]}
			depth++
			for depth >= 2 && stack[depth-2].joins(&stack[depth-1]) {
				l := &stack[depth-2]
				Add(isa, l.sum, l.sum, stack[depth-1].sum)
				l.level, l.index = l.level+1, l.index/2
				depth--
			}
		}
		if depth == 0 {
			clear(dst[:n])
			continue
		}
		for ; depth > 1; depth-- {
			Add(isa, stack[depth-2].sum, stack[depth-2].sum, stack[depth-1].sum)
		}
		copy(dst, stack[0].sum)
	}
}

// nodeAt finds the node that begins with a leaf.
func nodeAt[T Float](trees []*LeafTree[T], leaf int) *leafNode[T] {
	for _, t := range trees {
		for i := range t.nodes[:t.depth] {
			if n := &t.nodes[i]; n.index<<n.level == leaf {
				return n
			}
		}
	}
	return nil
}
