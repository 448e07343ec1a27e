package exec

import (
	"encoding/binary"
	"slices"

	"github.com/trivium-ml/trivium/graph"
)

// A segment is the nodes that depend on one set of continuations (Recv, Dequeue, AccumTake, Enqueue): the coarsest cut that delays no
// node. It runs as soon as these are done, and the segments that it reads from. There is no cycle: a node's set contains those of its
// operands.
type segment struct {
	nodes []*node // with work, in creation order
	waits []int   // continuations, as positions in Program.blocking
	from  []int   // segments whose results it reads
}

// cut assigns nodes to segments.
func (c *compiler) cut() {
	sets := newSets()
	set := make([]int32, len(c.nodes)) // of each node: its blocking ancestors
	blocker := make(map[*node]int)
	segOf := make(map[int32]int)
	seg := make([]int, len(c.nodes))
	for i, n := range c.all() {
		s := int32(0)
		n.predecessors(func(m *node) {
			c.looked++
			s = sets.union(s, set[m.seq])
			if k, ok := blocker[m]; ok {
				s = sets.union(s, sets.single(k))
			}
		})
		set[i] = s
		seg[i] = -1
		switch {
		case n.effect() == graph.Blocking:
			blocker[n] = len(c.blocking)
			c.blocking = append(c.blocking, n)
		case kernels[n.op].bind != nil:
			k, ok := segOf[s]
			if !ok {
				k = len(c.segments)
				segOf[s] = k
				c.segments = append(c.segments, &segment{waits: sets.members(s)})
			}
			seg[i] = k
			c.segments[k].nodes = append(c.segments[k].nodes, n)
		}
		n.segment = seg[i]
	}
	for k, s := range c.segments {
		for _, n := range s.nodes {
			n.sources(func(m *node) {
				c.looked++
				if f := m.segment; f >= 0 && f != k && !slices.Contains(s.from, f) {
					s.from = append(s.from, f)
				}
			})
		}
		slices.Sort(s.from)
	}
}

// predecessors calls f for every node that n names.
func (n *node) predecessors(f func(m *node)) {
	for _, r := range n.in {
		f(r.n)
	}
	for _, m := range n.after {
		f(m)
	}
}

// sources calls f for every node with work that n comes after, looking through those that have none.
func (n *node) sources(f func(m *node)) {
	n.predecessors(func(m *node) {
		if kernels[m.op].bind != nil || m.effect() == graph.Blocking {
			f(m)
		} else if len(m.in) > 0 || len(m.after) > 0 {
			m.sources(f)
		}
	})
}

// sets interns sets of small numbers; 0 is the empty one.
type sets struct {
	elems  [][]int
	byKey  map[string]int32
	unions map[[2]int32]int32
}

func newSets() *sets {
	return &sets{elems: [][]int{nil}, byKey: map[string]int32{"": 0}, unions: map[[2]int32]int32{}}
}

func (s *sets) members(id int32) []int { return s.elems[id] }

func (s *sets) single(k int) int32 { return s.intern([]int{k}) }

func (s *sets) intern(elems []int) int32 {
	key := make([]byte, 0, 4*len(elems))
	for _, e := range elems {
		key = binary.LittleEndian.AppendUint32(key, uint32(e))
	}
	id, ok := s.byKey[string(key)]
	if !ok {
		id = int32(len(s.elems))
		s.elems = append(s.elems, elems)
		s.byKey[string(key)] = id
	}
	return id
}

func (s *sets) union(a, b int32) int32 {
	if a == b || b == 0 {
		return a
	}
	if a == 0 {
		return b
	}
	id, ok := s.unions[[2]int32{a, b}]
	if !ok {
		u := slices.Concat(s.elems[a], s.elems[b])
		slices.Sort(u)
		id = s.intern(slices.Compact(u))
		s.unions[[2]int32{a, b}] = id
	}
	return id
}
