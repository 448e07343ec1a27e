package exec

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
	"unsafe"

	"github.com/trivium-ml/trivium/graph"
)

// merge makes one node of equal ones: the same operation, attributes, operands and types, and no effect. What was fetched twice stays
// two results (see land). Attributes and constants are compared by 128 bits of randomly seeded hashes: that two different ones meet is
// less likely than that the memory which holds them fails.
func (c *compiler) merge() {
	seen := make(map[uint64]*node, len(c.nodes)) // the first node of each hash
	var key []byte
	for _, n := range c.all() {
		if n.fwd != nil {
			continue
		}
		for i, r := range n.in {
			n.in[i] = r.end()
		}
		if n.op == opFeed || n.eff != graph.Pure || len(n.after) > 0 || n.op == "Scan" {
			continue
		}
		if n.sig == [2]uint64{} {
			c.sign(n)
		}
		key = binary.LittleEndian.AppendUint64(key[:0], n.sig[0])
		for _, r := range n.in {
			key = binary.LittleEndian.AppendUint32(key, uint32(r.n.seq)<<4|uint32(r.out))
		}
		h := maphash.Bytes(c.seeds[0], key)
		first := seen[h]
		switch {
		case first == nil:
			seen[h] = n
		case n.sig == first.sig && slices.Equal(n.in, first.in):
			first.keep = first.keep || n.keep
			n.forward(first)
		}
	}
}

// sign computes a node's hashes.
func (c *compiler) sign(n *node) {
	c.key = n.appendKey(c.key[:0])
	for i, seed := range c.seeds {
		n.sig[i] = maphash.Bytes(seed, c.key) | 1
	}
}

// forward sends every reader of n to the same output of to.
func (n *node) forward(to *node) {
	n.fwd = make([]ref, len(n.list.types))
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
		var data []byte
		if n.value != nil {
			data = n.value.Bytes()
		} else {
			data = n.src.Literal("value").Data
		}
		if len(data) > foldLimit { // large ones are equal if they are the same memory, which c keeps alive
			return binary.LittleEndian.AppendUint64(p, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(data)))))
		}
		return append(p, data...)
	}
	if n.op == opFeed {
		return p
	}
	for _, a := range n.src.Attrs() {
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
