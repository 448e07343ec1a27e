package graph

import (
	"fmt"
	"iter"
)

// Effect says what an operation does besides computing its outputs.
type Effect uint8

// The effects. Pure nodes with equal operands are equal; Random ones depend on the step's key too. Read and Write nodes of one resource
// run in creation order. Blocking nodes may have to wait for another participant.
const (
	Pure Effect = iota
	Random
	Read
	Write
	Blocking
)

var effectNames = [...]string{"pure", "random", "read", "write", "blocking"}

func (e Effect) String() string { return effectNames[e] }

// Op is a row of the operation table.
type Op struct {
	Name   string
	Effect Effect
	Attrs  []AttrSpec
	Min    int  // operands
	Max    int  // operands; -1: any number
	Body   bool // has a body
	Doc    string
	infer  func(c *inference) ([]Type, error)
}

// inference is what a shape function sees.
type inference struct {
	op        *Op
	in        []Type
	attrs     []Attr
	resources []*Resource
	body      *Graph
}

func (c *inference) int(name string) int       { a, _ := findAttr(c.op, c.attrs, name); return a.I }
func (c *inference) bool(name string) bool     { return c.int(name) != 0 }
func (c *inference) float(name string) float64 { a, _ := findAttr(c.op, c.attrs, name); return a.F }
func (c *inference) str(name string) string    { a, _ := findAttr(c.op, c.attrs, name); return a.S }
func (c *inference) ints(name string) []int    { a, _ := findAttr(c.op, c.attrs, name); return a.Ints }

func (c *inference) shape(name string) Shape { a, _ := findAttr(c.op, c.attrs, name); return a.Shape }
func (c *inference) dtype(name string) DType { return DType(c.int(name)) }
func (c *inference) literal(name string) *Literal {
	a, _ := findAttr(c.op, c.attrs, name)
	return a.Lit
}

// Ops walks the operation table.
func Ops() iter.Seq[*Op] {
	return func(yield func(*Op) bool) {
		for i := range opTable {
			if !yield(&opTable[i]) {
				return
			}
		}
	}
}

// lookup finds an operation by name; nil when there is none.
func lookup(name string) *Op {
	i, ok := opIndex[name]
	if !ok {
		return nil
	}
	return &opTable[i]
}

// opIndex is opTable by name.
var opIndex = func() map[string]int {
	m := make(map[string]int, len(opTable))
	for i := range opTable {
		m[opTable[i].Name] = i
	}
	return m
}()

// infer checks the node's operands and attributes and computes its output types.
func (b *Builder) infer(n *Node) ([]Type, error) {
	op := n.Op
	if len(n.Inputs) < op.Min || op.Max >= 0 && len(n.Inputs) > op.Max {
		return nil, fmt.Errorf("%d operands, want %s", len(n.Inputs), arity(op))
	}
	if len(n.attrs) != len(op.Attrs) {
		return nil, fmt.Errorf("%d attributes, want %d", len(n.attrs), len(op.Attrs))
	}
	for i, a := range n.attrs {
		if a.Kind != op.Attrs[i].Kind || a.Kind == KindLiteral && a.Lit == nil {
			return nil, fmt.Errorf("attribute %s: %v, want %v", op.Attrs[i].Name, a.Kind, op.Attrs[i].Kind)
		}
	}
	c := &b.scratch
	*c = inference{op: op, attrs: n.attrs, body: n.Body, in: make([]Type, len(n.Inputs))}
	for i, v := range n.Inputs {
		c.in[i] = v.Type()
	}
	for _, id := range n.Resources {
		c.resources = append(c.resources, b.resources[id])
	}
	types, err := op.infer(c)
	if err != nil {
		return nil, err
	}
	for _, t := range types {
		if err := checkType(t); err != nil {
			return nil, err
		}
	}
	return types, nil
}

// maxAxes bounds the axes of a value; maxElements its fixed sizes, so that no product of them overflows.
const (
	maxAxes     = 32
	maxElements = 1 << 40
)

func checkType(t Type) error {
	if !t.DType.Valid() {
		return fmt.Errorf("unknown element type %v", t.DType)
	}
	if len(t.Shape) > maxAxes {
		return fmt.Errorf("%d axes, at most %d", len(t.Shape), maxAxes)
	}
	n := 1
	for i, d := range t.Shape {
		if d.Fixed() {
			if d.N < 0 {
				return fmt.Errorf("axis %d of %v is negative", i, t.Shape)
			}
			if d.N > 0 && n > maxElements/d.N {
				return fmt.Errorf("%v has more than %d elements", t.Shape, maxElements)
			}
			n *= max(d.N, 1)
		} else if d.N < -maxElements || d.N > maxElements {
			return fmt.Errorf("axis %d of %v is out of range", i, t.Shape)
		}
	}
	return nil
}

func arity(op *Op) string {
	switch {
	case op.Max < 0:
		return fmt.Sprintf("at least %d", op.Min)
	case op.Min == op.Max:
		return fmt.Sprint(op.Min)
	}
	return fmt.Sprintf("%d to %d", op.Min, op.Max)
}
