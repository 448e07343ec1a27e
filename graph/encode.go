package graph

import (
	"crypto/sha256"

	"github.com/trivium-ml/trivium/wire"
)

// magic starts an encoded graph; formatVersion follows it and changes when old bytes could be misread.
const (
	magic         = "TVGRAPH"
	formatVersion = 1
)

// Encode writes the graph as bytes that Decode reads: versioned, and the same for the same construction. The lines of callers are left
// out; types are too, since Decode infers them again.
func (g *Graph) Encode() []byte {
	e := encoder{names: true, known: map[string]uint64{}}
	e.string(magic)
	e.uint(formatVersion)
	e.graph(g)
	return e.p
}

// Hash is equal for graphs of equal structure: operations, attributes, operands, devices, resources. Names of nodes do not count.
func (g *Graph) Hash() [sha256.Size]byte {
	e := encoder{known: map[string]uint64{}}
	e.graph(g)
	return sha256.Sum256(e.p)
}

// encoder appends a graph. Strings that repeat are written once and then referred to.
type encoder struct {
	p     []byte
	names bool
	known map[string]uint64
}

func (e *encoder) uint(v int) { e.p = wire.AppendUvarint(e.p, uint64(v)) }

// int writes a signed number, small ones of both signs in few bytes.
func (e *encoder) int(v int) { e.p = wire.AppendUvarint(e.p, uint64(v)<<1^uint64(v>>63)) }

func (e *encoder) float(v float64) { e.p = wire.AppendFloat64(e.p, v) }

func (e *encoder) string(s string) { e.p = wire.AppendString(e.p, s) }

// word writes a string that is likely to come again: 0 and the string at first, then its number.
func (e *encoder) word(s string) {
	if k, ok := e.known[s]; ok {
		e.p = wire.AppendUvarint(e.p, k)
		return
	}
	e.known[s] = uint64(len(e.known) + 1)
	e.uint(0)
	e.string(s)
}

func (e *encoder) flag(v bool) {
	if v {
		e.p = append(e.p, 1)
	} else {
		e.p = append(e.p, 0)
	}
}

func (e *encoder) ints(v []int) {
	e.uint(len(v))
	for _, x := range v {
		e.int(x)
	}
}

func (e *encoder) shape(s Shape) {
	e.uint(len(s))
	for _, d := range s {
		e.word(d.Name)
		e.int(d.N)
	}
}

func (e *encoder) values(vs []Value) {
	e.uint(len(vs))
	for _, v := range vs {
		e.uint(int(v.node))
		e.uint(int(v.out))
	}
}

func (e *encoder) graph(g *Graph) {
	e.uint(len(g.resources))
	for _, r := range g.resources {
		e.resource(r)
	}
	e.nodes(g)
}

func (e *encoder) nodes(g *Graph) {
	e.uint(len(g.nodes))
	for _, n := range g.nodes {
		e.node(n)
	}
}

func (e *encoder) resource(r *Resource) {
	e.uint(int(r.Kind))
	e.string(r.Name)
	e.word(r.Device)
	e.uint(len(r.Types))
	for _, t := range r.Types {
		e.uint(int(t.DType))
		e.shape(t.Shape)
	}
	e.uint(int(r.Init.Kind))
	e.float(r.Init.A)
	e.float(r.Init.B)
	e.uint(int(r.Init.Scale))
	e.flag(r.Trainable)
	e.uint(r.Capacity)
	e.flag(r.MeanPerRow)
}

func (e *encoder) node(n *Node) {
	e.word(n.Op.Name)
	if e.names {
		e.string(n.Name)
	}
	e.word(n.Device)
	e.uint(n.Colocate + 1)
	e.ints(n.Resources)
	e.values(n.Inputs)
	e.ints(n.Control)
	for _, a := range n.attrs {
		e.attr(a)
	}
	if n.Op.Body {
		e.nodes(n.Body)
		e.values(n.Body.inputs)
		e.values(n.Body.outputs)
	}
}

// attr writes no kind: the operation's row has it.
func (e *encoder) attr(a Attr) {
	switch a.Kind {
	case KindInt:
		e.int(a.I)
	case KindBool:
		e.flag(a.I != 0)
	case KindDType:
		e.uint(a.I)
	case KindFloat:
		e.float(a.F)
	case KindString:
		e.string(a.S)
	case KindInts:
		e.ints(a.Ints)
	case KindShape:
		e.shape(a.Shape)
	case KindLiteral:
		e.uint(int(a.Lit.DType))
		e.ints(a.Lit.Shape)
		e.p = wire.AppendBytes(e.p, a.Lit.Data)
	}
}
