package exec

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
	"unsafe"

	"github.com/trivium-ml/trivium/graph"
)

// merge makes one node of equal ones: the same operation, attributes, operands and types, and no effect. What was fetched twice stays
// two results (see land).
func (c *compiler) merge() {
	seed := c.seed
	seen := make(map[uint64]*node, len(c.nodes)) // the first node of each hash
	var key, other []byte
	for _, n := range c.nodes {
		if n.fwd != nil {
			continue
		}
		for i, r := range n.in {
			n.in[i] = r.end()
		}
		if n.op == opFeed || n.eff != graph.Pure || len(n.after) > 0 || n.op == "Scan" {
			continue
		}
		if n.sig == 0 {
			key = n.appendKey(key[:0])
			n.sig = maphash.Bytes(seed, key) | 1
		}
		key = binary.LittleEndian.AppendUint64(key[:0], n.sig)
		for _, r := range n.in {
			key = binary.LittleEndian.AppendUint32(key, uint32(r.n.seq)<<4|uint32(r.out))
		}
		h := maphash.Bytes(seed, key)
		first := seen[h]
		if first == nil {
			seen[h] = n
			continue
		}
		key, other = n.appendKey(key[:0]), first.appendKey(other[:0])
		if !slices.Equal(n.in, first.in) || !bytes.Equal(key, other) {
			continue // two hashes met: a chance missed
		}
		first.keep = first.keep || n.keep
		n.forward(first)
	}
}

// forward sends every reader of n to the same output of to.
func (n *node) forward(to *node) {
	n.fwd = make([]ref, len(n.types))
	for i := range n.fwd {
		n.fwd[i] = ref{to, i}
	}
}

// appendKey appends what makes two nodes with the same operands equal.
func (n *node) appendKey(p []byte) []byte {
	p = append(p, n.op...)
	p = append(p, 0, byte(len(n.in)), bit(n.ta)|bit(n.tb)<<1)
	p = append(p, n.act...)
	p = binary.LittleEndian.AppendUint32(p, uint32(n.list.id))
	if n.op == "Const" {
		if b := n.value.Bytes(); len(b) <= foldLimit {
			return append(p, b...)
		}
		return binary.LittleEndian.AppendUint64(p, uint64(uintptr(unsafe.Pointer(n.value)))) // compared while c keeps it alive
	}
	for _, a := range n.attrs {
		p = append(p, byte(a.Kind))
		p = binary.LittleEndian.AppendUint64(p, uint64(a.I))
		p = binary.LittleEndian.AppendUint64(p, math.Float64bits(a.F))
		p = append(p, a.S...)
		p = append(p, 0)
		for _, i := range a.Ints {
			p = binary.LittleEndian.AppendUint64(p, uint64(i))
		}
		p = appendShape(p, a.Shape)
	}
	return p
}

func appendShape(p []byte, s graph.Shape) []byte {
	p = append(p, byte(len(s)))
	for _, d := range s {
		p = binary.LittleEndian.AppendUint64(p, uint64(d.N))
		p = append(p, d.Name...)
		p = append(p, 0)
	}
	return p
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}
