package exec

import (
	"slices"
	"unsafe"

	"github.com/trivium-ml/trivium/tensor/kernel"
)

// An instr is one operation of a Fused node. Operands are registers (0 and up) or, as ^i, operand i of the node; the result is a
// register, or the node's result for the last instruction.
type instr struct {
	op   string
	a, b int // b of unary operations is unused
	dst  int
}

const (
	// block is how many elements of a chain are computed at a time: few enough that registers stay in first-level cache.
	block = 1024
	// A Fused node has at most so many instructions and registers, so that 8 registers of float64 are 64 KiB at most.
	maxChain     = 24
	maxRegisters = 6
)

// fuseChains makes one node of element-wise nodes whose results are read in the chain alone.
func (c *compiler) fuseChains() {
	inside := make([]*node, 0, maxChain)
	for i := len(c.all()) - 1; i >= 0; i-- {
		n := c.nodes[i]
		if !n.live() || !chains(n) {
			continue
		}
		inside = growChain(n, inside[:0])
		c.looked += len(inside)
		if len(inside) < 2 {
			continue
		}
		if code, in, ok := assemble(inside); ok {
			for _, m := range inside[1:] {
				m.users = 0
			}
			n.op, n.rare().code, n.in, n.ewise = opFused, code, in, false
		}
	}
}

// chains says whether a node can be an instruction: every operand has the result's shape or is a scalar.
func chains(n *node) bool {
	if !n.ewise || len(n.after) > 0 {
		return false
	}
	for _, r := range n.in {
		if r.n.list == n.list && r.out == 0 {
			continue
		}
		if s := r.typ(); s.DType != n.list.types[0].DType || len(s.Shape) > 0 && !s.Shape.Equal(n.list.types[0].Shape) {
			return false
		}
	}
	return len(n.list.types[0].Shape) > 0
}

// growChain collects the nodes of a chain from its last one, n, in descending order.
func growChain(n *node, chain []*node) []*node {
	chain = append(chain, n)
	for at := 0; at < len(chain) && len(chain) < maxChain; at++ {
		for _, r := range chain[at].in {
			m := r.n
			if len(chain) == maxChain || slices.Contains(chain, m) || !fusible2(m, n) {
				continue
			}
			if readers(chain, m) == m.users {
				chain = append(chain, m)
			}
		}
	}
	slices.SortFunc(chain, func(a, b *node) int { return b.seq - a.seq })
	return chain
}

// fusible2 says whether m may be an instruction of the chain that ends with n.
func fusible2(m, n *node) bool {
	return m.live() && m.list == n.list && !m.keep && chains(m) && !slices.ContainsFunc(m.in, n.outlives)
}

// readers counts the operands of a chain that are m's result.
func readers(chain []*node, m *node) int {
	k := 0
	for _, n := range chain {
		for _, r := range n.in {
			if r.n == m {
				k++
			}
		}
	}
	return k
}

// assemble writes the code of a chain given in descending order, with registers reused as soon as their last reader has run.
func assemble(chain []*node) (code []instr, in []ref, ok bool) {
	reg := make(map[*node]int, len(chain))
	left := make(map[*node]int, len(chain))
	for _, n := range chain {
		left[n] = readers(chain, n)
	}
	var free []int
	used := 0
	operand := func(r ref) int {
		if k, inside := reg[r.n]; inside {
			return k
		}
		if i := slices.Index(in, r); i >= 0 {
			return ^i
		}
		in = append(in, r)
		return ^(len(in) - 1)
	}
	for i := len(chain) - 1; i >= 0; i-- {
		n := chain[i]
		ins := instr{op: n.op, a: operand(n.in[0])}
		if len(n.in) > 1 {
			ins.b = operand(n.in[1])
		}
		for _, r := range n.in {
			if k, inside := reg[r.n]; inside {
				if left[r.n]--; left[r.n] == 0 {
					free = append(free, k)
				}
			}
		}
		switch {
		case i == 0:
			ins.dst = -1
		case len(free) > 0:
			ins.dst = free[len(free)-1] // may be an operand: kernels allow that
			free = free[:len(free)-1]
		default:
			ins.dst = used
			used++
		}
		reg[n] = ins.dst
		code = append(code, ins)
	}
	return code, in, used <= maxRegisters
}

// bindFused runs a chain block by block.
func bindFused[T float](b *bound) {
	type step struct {
		e    *ewise[T]
		a, b int
		dst  int
	}
	steps, regs, cost := make([]step, len(b.n.code)), 0, 8.0
	for i, ins := range b.n.code {
		e, row := ewiseOf[T](ins.op)
		steps[i] = step{e, ins.a, ins.b, ins.dst}
		regs = max(regs, ins.dst+1)
		cost += row.cost / 2
	}
	scalar := make([]bool, len(b.in))
	var x T
	bytes := int(unsafe.Sizeof(x))
	b.size = func() {
		for i, s := range b.in {
			scalar[i] = len(s.dims) == 0
		}
		b.cut(b.out[0].n, 64, cost)
	}
	b.run = func(tile int, w *worker) {
		from, to := b.span(tile)
		scratch := registers[T](w, (regs+2)*block)
		dst := flat[T](b.out[0])
		for ; from < to; from += block {
			n := min(block, to-from)
			get := func(k int) ([]T, bool) {
				if k >= 0 {
					return scratch[(k+2)*block:][:n], false
				}
				s := b.in[^k]
				if scalar[^k] {
					return unsafe.Slice((*T)(s.p), 1), true
				}
				return unsafe.Slice((*T)(unsafe.Add(s.p, from*bytes)), n), false
			}
			for i := range steps {
				st := &steps[i]
				d := dst[from : from+n]
				if st.dst >= 0 {
					d = scratch[(st.dst+2)*block:][:n]
				}
				u, us := get(st.a)
				if st.e.unary != nil {
					if us {
						kernel.Fill(b.isa, d, u[0])
						u = d
					}
					st.e.unary(b.isa, d, u)
					continue
				}
				v, vs := get(st.b)
				st.e.apply(b.isa, d, u, v, us, vs, scratch[:2*block])
			}
		}
	}
}
