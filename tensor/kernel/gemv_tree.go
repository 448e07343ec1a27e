package kernel

// A LeafTree adds vectors pairwise, as they come, keeping one partial sum a level: the vectors are the leaves of a binary tree in
// which node i of a level is the sum of nodes 2i and 2i+1 below, and what is left in the end is added from the last to the first.
// The result depends on the number of leaves only: a run of leaves may be summed elsewhere, by a tree Reset to the index of its first
// leaf, and then Joined.
//
//	t.Reset(n, first)
//	for … { fill t.Leaf(); t.Push(isa) }
//	t.Join(isa, next) // the tree of the leaves that follow
//	t.Sum(isa, dst)
type LeafTree[T Float] struct {
	n     int
	next  int // index of the next leaf
	nodes []leafNode[T]
	depth int  // of nodes, how many are in use
	z     [8]T // margins of LinearLeaves
}

// A leafNode is the sum of the leaves from index << level to (index+1) << level.
type leafNode[T Float] struct {
	level, index int
	sum          []T
}

// Reset empties the tree, for vectors of length n, of which the first is leaf number first.
func (t *LeafTree[T]) Reset(n, first int) {
	t.n, t.next, t.depth = n, first, 0
}

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
		if l.level != r.level || l.index&1 != 0 || l.index+1 != r.index {
			return
		}
		Add(isa, l.sum[:t.n], l.sum[:t.n], r.sum[:t.n])
		l.level, l.index = l.level+1, l.index/2
		t.depth--
	}
}

// Join adds the leaves of next, which follow those of t. It changes neither next nor its vectors.
func (t *LeafTree[T]) Join(isa ISA, next *LeafTree[T]) {
	for i := range next.nodes[:next.depth] {
		s := &next.nodes[i]
		copy(t.Leaf(), s.sum[:t.n])
		d := &t.nodes[t.depth]
		d.level, d.index = s.level, s.index
		t.depth++
		t.merge(isa)
	}
	t.next = next.next
}

// Sum writes the sum of all leaves, zeros if there are none. The tree must be Reset before it is used again.
func (t *LeafTree[T]) Sum(isa ISA, dst []T) {
	dst = dst[:t.n]
	if t.depth == 0 {
		clear(dst)
		return
	}
	for t.depth > 1 {
		l, r := &t.nodes[t.depth-2], &t.nodes[t.depth-1]
		Add(isa, l.sum[:t.n], l.sum[:t.n], r.sum[:t.n])
		t.depth--
	}
	copy(dst, t.nodes[0].sum)
}
