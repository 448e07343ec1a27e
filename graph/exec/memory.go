package exec

import (
	"fmt"
	"slices"
	"unsafe"
)

// align is the alignment of values in the arena: a cache line, so that no two threads write to one.
const align = 64

// A span is free memory of the arena, with the tasks that may still be using what was there.
type span struct {
	from, to int
	users    []*task
}

// A lifetime is what the plan knows of a value that lies in the arena.
type lifetime struct {
	slot  *slot
	bytes int
	from  int // place in the arena
	left  int // readers that have not been passed yet
	users []*task
	keep  bool // read in another segment: its memory is not used again
	away  bool // lies elsewhere, or nowhere
}

// lifetimes are those of all values of nodes with work, by node and output.
type lifetimes struct {
	first []int32 // of each node: 1 more than the position of its first output in all; 0: none
	all   []lifetime
}

func (ls lifetimes) of(r ref) *lifetime {
	k := ls.first[r.n.seq]
	if k == 0 || r.out >= len(r.n.list.types) {
		return nil
	}
	if l := &ls.all[int(k)-1+r.out]; !l.away {
		return l
	}
	return nil
}

// plan places values in one arena, walking each segment in the order in which its tiles are taken: a value's memory is free for others
// once its last reader has been passed, and goes to the best fitting value next; an element-wise node may take the place of an operand
// that nobody else needs any more. A task that gets memory which other threads may still read waits for them like for an operand.
//
// Fed and fetched values, Variables and constants lie elsewhere and are never in the plan. Values that cross segments keep their
// place, since segments run in any order.
func (x *instance) plan() error {
	lives := lifetimes{make([]int32, len(x.p.nodes)), nil}
	for _, n := range x.p.nodes {
		if b := x.bound[n.seq]; b == nil || n.op == "Read" {
			continue
		}
		lives.first[n.seq] = int32(len(lives.all)) + 1
		for k := range n.list.types {
			s := x.values[n.seq][k]
			lives.all = append(lives.all, lifetime{
				slot: s, bytes: alignUp(s.n*s.dt.Size(), align),
				away: landed(n, k) || n.op == "Scan" && !n.wanted(k),
			})
		}
	}
	for _, n := range x.p.nodes {
		for i, r := range n.in {
			root := viewed(r)
			l := lives.of(root)
			if l == nil || n.views() || repeated(n.in[:i], root) {
				continue
			}
			l.left++
			l.keep = l.keep || n.segment != root.n.segment
		}
	}
	a := &arena{x: x}
	for i := range x.parts {
		a.free = nil
		for _, b := range x.parts[i].order {
			a.place(b, lives)
		}
	}
	for i := range x.parts {
		for _, st := range x.parts[i].stages {
			for _, t := range st.tasks {
				t.tidy()
			}
		}
	}
	if a.top > maxBytes {
		return fmt.Errorf("exec: run: the values of a step take %d bytes together, at most %d are planned for", a.top, maxBytes)
	}
	x.arena = alignedBytes(a.top)
	for i := range lives.all {
		l := &lives.all[i]
		if l.away {
			continue
		}
		if l.bytes > 0 {
			l.slot.p = unsafe.Pointer(&x.arena[l.from])
		}
		x.sum += l.bytes
	}
	return nil
}

func landed(n *node, out int) bool {
	return slices.ContainsFunc(n.fetches, func(l landing) bool { return l.out == out })
}

// repeated says whether a value is among operands already looked at.
func repeated(in []ref, root ref) bool {
	return slices.ContainsFunc(in, func(r ref) bool { return viewed(r) == root })
}

type arena struct {
	x    *instance
	free []span // by place
	top  int
}

// place gives a node's results memory, and takes back that of operands which it is the last to read.
func (a *arena) place(b *bound, lives lifetimes) {
	n := b.n
	taken := a.inPlace(b, lives)
	for k := range n.list.types {
		l := lives.of(ref{n, k})
		if l == nil || k == 0 && taken != nil {
			continue
		}
		l.from = a.alloc(l.bytes, b.task)
		l.users = append(l.users, b.task)
	}
	for i, r := range n.in {
		root := viewed(r)
		l := lives.of(root)
		if l == nil || repeated(n.in[:i], root) {
			continue
		}
		l.users = append(l.users, b.task)
		l.left--
		if l.left == 0 && l != taken && !l.keep {
			a.release(l)
		}
	}
	for k := range n.list.types {
		if l := lives.of(ref{n, k}); l != nil && l.left == 0 && !l.keep { // nobody reads it
			a.release(l)
		}
	}
}

// inPlace lets result 0 take the memory of an operand of its type that the node is the last to read.
func (a *arena) inPlace(b *bound, lives lifetimes) *lifetime {
	n := b.n
	out := lives.of(ref{n, 0})
	if out == nil || !kernels[n.op].alias || out.bytes == 0 {
		return nil
	}
	for i, r := range n.in {
		l := lives.of(viewed(r))
		if l == nil || l.left != 1 || l.keep || l.bytes != out.bytes || r.typ().DType != n.list.types[0].DType || !r.typ().Shape.Equal(n.list.types[0].Shape) {
			continue
		}
		if n.op == "ScatterAdd" && (i > 0 || viewed(n.in[2]) == viewed(r)) { // its rows are read while others are added to
			continue
		}
		for _, t := range l.users {
			b.task.depend(t)
		}
		out.from, out.users = l.from, append(out.users, b.task)
		return l
	}
	return nil
}

// alloc finds the smallest free span that is large enough, or grows the arena.
func (a *arena) alloc(bytes int, t *task) int {
	if bytes == 0 {
		return 0
	}
	best := -1
	for i, s := range a.free {
		if size := s.to - s.from; size >= bytes && (best < 0 || size < a.free[best].to-a.free[best].from) {
			best = i
			if size == bytes {
				break
			}
		}
	}
	if best < 0 {
		if k := len(a.free) - 1; k >= 0 && a.free[k].to == a.top { // the last span and what is missing
			s := a.free[k]
			a.wait(t, s)
			a.free = a.free[:k]
			a.top = s.from + bytes
			return s.from
		}
		a.top += bytes
		return a.top - bytes
	}
	s := &a.free[best]
	a.wait(t, *s)
	from := s.from
	if s.from += bytes; s.from == s.to {
		a.free = slices.Delete(a.free, best, best+1)
	}
	return from
}

func (a *arena) wait(t *task, s span) {
	for _, u := range s.users {
		t.depend(u)
	}
}

// release makes a value's memory free, joined with free memory beside it.
func (a *arena) release(l *lifetime) {
	if l.bytes == 0 {
		return
	}
	s := span{l.from, l.from + l.bytes, nil}
	if a.x.threads > 1 {
		s.users = compactTasks(l.users)
	}
	i, _ := slices.BinarySearchFunc(a.free, s.from, func(f span, at int) int { return f.from - at })
	if i < len(a.free) && a.free[i].from == s.to {
		s.to, s.users = a.free[i].to, compactTasks(append(s.users, a.free[i].users...))
		a.free = slices.Delete(a.free, i, i+1)
	}
	if i > 0 && a.free[i-1].to == s.from {
		s.from, s.users = a.free[i-1].from, compactTasks(append(s.users, a.free[i-1].users...))
		a.free[i-1] = s
		return
	}
	a.free = slices.Insert(a.free, i, s)
}

func compactTasks(ts []*task) []*task {
	slices.SortFunc(ts, func(a, b *task) int { return a.index - b.index })
	return slices.Compact(ts)
}
