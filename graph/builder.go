package graph

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Builder grows a graph. It keeps the first mistake; operations after it do nothing, and Build returns it. It is not for concurrent use.
//
// Build may be called again after more operations were added: every Graph is a snapshot that later operations leave alone.
type Builder struct {
	nodes     []*Node
	resources []*Resource
	inputs    []Value
	scope     scope
	names     map[string]int  // how often each unscoped or scoped name was asked for
	resNames  map[string]bool // names of resources
	captures  map[Value]Value // of a body: outer value to inner Input
	captured  []Value         // outer values, in order of capture
	parent    *Builder        // of a body
	body      string          // name of the body, for errors
	root      *rootState
	scratch   inference // of the node being made
}

// rootState is shared by a builder and the bodies under it.
type rootState struct {
	cur *Builder // the innermost body being built: operations go there
	err error
}

// scope is what surrounds the nodes being made.
type scope struct {
	name, device string
	control      []int
	colocate     int
	pcs          *[6]uintptr // of the node that Scope.At named: errors point at its line
}

// Scope surrounds the operations of one call of With. Name is put before names, with a slash; a Device replaces that of the scope
// outside; Control adds nodes that must run before those in the scope. At, when set, stands for the whole scope of that value's node:
// its name's prefix and device, colocation with it, and its line in errors.
type Scope struct {
	Name, Device string
	Control      []Value
	At           Value
}

// NewBuilder starts an empty graph.
func NewBuilder() *Builder {
	b := newBuilder()
	b.root = &rootState{cur: b}
	return b
}

func newBuilder() *Builder {
	return &Builder{names: map[string]int{}, resNames: map[string]bool{}, scope: scope{colocate: -1}}
}

// Build returns the graph made so far, or the first mistake.
func (b *Builder) Build() (*Graph, error) {
	if b.root.err != nil {
		return nil, b.root.err
	}
	if b.parent != nil || b.root.cur != b {
		return nil, errors.New("graph: Build inside the body of a control operation")
	}
	return b.snapshot(), nil
}

func (b *Builder) snapshot() *Graph {
	g := &Graph{nodes: b.nodes[:len(b.nodes):len(b.nodes)], inputs: slices.Clip(b.inputs), origin: b}
	g.resources = make([]*Resource, len(b.resources))
	for i, r := range b.resources {
		c := *r
		g.resources[i] = &c
	}
	return g
}

// Repeat makes a node like n, of this or another graph, on other operands and under its name, with a number behind it where that is taken;
// errors point at n's line. It works for operations without resources.
func (b *Builder) Repeat(n *Node, in ...Value) Value {
	c := b.root.cur
	if len(n.Resources) > 0 {
		c.fail(n.Op.Name, "cannot be repeated: it works on a resource of its graph")
		return Value{b: c, node: -1}
	}
	old := c.scope
	defer func() { c.scope = old }()
	c.scope.pcs = &n.pcs
	return c.add(spec{op: n.Op.Name, name: n.Name, attrs: n.attrs, in: in, body: n.Body})
}

// Value is output out of node id of the nodes made so far; the zero Value when there is none.
func (b *Builder) Value(id, out int) Value {
	if id < 0 || id >= len(b.nodes) || out < 0 || out > 0 && out >= len(b.nodes[id].Types) {
		return Value{}
	}
	return Value{b, int32(id), int32(out)}
}

// Err is the first mistake so far.
func (b *Builder) Err() error { return b.root.err }

// Fail records err as the graph's mistake unless there is one already: for packages that build on operations.
func (b *Builder) Fail(err error) {
	if b.root.err == nil && err != nil {
		b.root.err = err
	}
}

// With calls f and puts the operations made in it under s. Scopes nest.
func (b *Builder) With(s Scope, f func()) {
	c := b.root.cur
	old := c.scope
	defer func() { c.scope = old }()
	if n := s.At.def(); n != nil && s.At.b == c {
		c.scope = scope{name: prefixOf(n.Name), device: n.Device, control: old.control, colocate: n.ID, pcs: &n.pcs}
	}
	if s.Name != "" {
		c.scope.name += s.Name + "/"
	}
	if s.Device != "" {
		c.scope.device = s.Device
	}
	for _, v := range s.Control {
		if v.def() == nil || v.b != c {
			c.fail("With", "control value %v is not of this graph", v)
			break
		}
		c.scope.control = append(slices.Clip(c.scope.control), v.Node())
	}
	f()
}

func prefixOf(name string) string {
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			return name[:i+1]
		}
	}
	return ""
}

// Input declares a value that is fed. The name is the node's and must be new.
func (b *Builder) Input(name string, dt DType, dims ...Dim) Value {
	c := b.root.cur
	if c.parent != nil {
		c.fail("Input", "input %q inside the body of %s; declare it outside and use it inside", name, c.body)
		return Value{b: c, node: -1}
	}
	return c.input(name, Type{dt, dims})
}

func (b *Builder) input(name string, t Type) Value {
	full := b.scope.name + name
	if name == "" || b.names[full] > 0 {
		b.fail("Input", "name %q is empty or taken", full)
		return Value{b: b, node: -1}
	}
	return b.add(spec{op: "Input", name: name, attrs: []Attr{attrDType(t.DType), attrShape(t.Shape)}})
}

// Const puts a literal into the graph.
func (b *Builder) Const(l Literal) Value {
	return b.root.cur.add(spec{op: "Const", attrs: []Attr{attrLiteral(l)}})
}

// Scalar is a constant without axes.
func (b *Builder) Scalar(dt DType, x float64) Value { return b.Const(Fill(dt, x)) }

// ConstOf copies flat into a constant of the given shape.
func ConstOf[T Number](b *Builder, flat []T, shape ...int) Value {
	l, err := LiteralOf(flat, shape...)
	if err != nil {
		b.root.cur.fail("Const", "%v", err)
		return Value{b: b.root.cur, node: -1}
	}
	return b.Const(l)
}

// spec is a node to be made.
type spec struct {
	op        string
	name      string // "" for the operation's
	attrs     []Attr
	in        []Value
	resources []int
	body      *Graph
}

// apply makes a node where the operands are built and returns its first output.
func apply(op string, attrs []Attr, in ...Value) Value {
	for _, v := range in {
		if v.b != nil {
			return v.b.root.cur.add(spec{op: op, attrs: attrs, in: in})
		}
	}
	return Value{}
}

// add checks a node, infers its types and appends it.
func (b *Builder) add(s spec) Value {
	bad := Value{b: b, node: -1}
	if b.root.err != nil {
		return bad
	}
	op := lookup(s.op)
	if op == nil {
		b.fail(s.op, "no such operation")
		return bad
	}
	n := &Node{
		Op: op, Device: b.scope.device, Colocate: b.scope.colocate, Control: b.scope.control,
		Resources: s.resources, Body: s.body, attrs: s.attrs,
	}
	if b.scope.pcs != nil {
		n.pcs = *b.scope.pcs
	} else {
		callers(&n.pcs)
	}
	if n.Inputs = b.operands(op, s.in); n.Inputs == nil && len(s.in) > 0 {
		return bad
	}
	n.ID = len(b.nodes) // now: operands that a body captures became nodes of their own
	types, err := b.infer(n)
	if err != nil {
		b.failAt(n, err)
		return bad
	}
	n.Types = types
	if s.name == "" {
		s.name = op.Name
	}
	n.Name = b.unique(s.name)
	return b.push(n)
}

// push appends a finished node and returns its first output.
func (b *Builder) push(n *Node) Value {
	b.nodes = append(b.nodes, n)
	v := Value{b, int32(n.ID), 0}
	if n.Op.Name == "Input" {
		b.inputs = append(b.inputs, v)
	}
	return v
}

// unique puts the scope before name and a number behind it when it was used before.
func (b *Builder) unique(name string) string {
	name = b.scope.name + name
	k := b.names[name]
	b.names[name] = k + 1
	for k > 0 {
		other := name + "_" + strconv.Itoa(k)
		if b.names[other] == 0 {
			b.names[other] = 1
			return other
		}
		k++
	}
	return name
}

// operands replaces values of outer graphs by captures and refuses values of others.
func (b *Builder) operands(op *Op, in []Value) []Value {
	out := make([]Value, 0, len(in))
	for i, v := range in {
		w, err := b.resolve(v)
		if err != nil {
			b.fail(op.Name, "input %d: %v", i, err)
			return nil
		}
		out = append(out, w)
	}
	return out
}

func (b *Builder) resolve(v Value) (Value, error) {
	if v.b == nil {
		return v, errors.New("the zero Value")
	}
	if n := v.def(); n == nil || int(v.out) >= len(n.Types) {
		return v, fmt.Errorf("%v has no output %d", v, v.out)
	}
	if v.b == b {
		return v, nil
	}
	if v.b.root != b.root {
		return v, fmt.Errorf("%v belongs to another graph", v)
	}
	if b.parent == nil {
		return v, fmt.Errorf("%v belongs to the body of %s; return it from the body to use it outside", v, v.b.body)
	}
	if w, ok := b.captures[v]; ok {
		return w, nil
	}
	outer, err := b.parent.resolve(v)
	if err != nil {
		return v, err
	}
	if w, ok := b.captures[outer]; ok {
		b.captures[v] = w
		return w, nil
	}
	w := b.input("capture_"+strconv.Itoa(len(b.captured)), outer.Type())
	b.captures[v], b.captures[outer] = w, w
	b.captured = append(b.captured, outer)
	return w, nil
}

// fail records a mistake at the caller's line.
func (b *Builder) fail(op, format string, args ...any) {
	if b.root.err != nil {
		return
	}
	var pcs [6]uintptr
	callers(&pcs)
	b.root.err = fmt.Errorf("graph: %s%s: %s%s", b.scope.name, op, fmt.Sprintf(format, args...), at(where(pcs[:])))
}

// failAt records a mistake of a node that was not made.
func (b *Builder) failAt(n *Node, err error) {
	in := ""
	for i, v := range n.Inputs {
		if i > 0 {
			in += ", "
		}
		in += fmt.Sprintf("%v %v", v, v.Type())
	}
	b.root.err = fmt.Errorf("graph: %s%s(%s): %w%s", b.scope.name, n.Op.Name, in, err, at(n.Where()))
}

func at(place string) string {
	if place == "" {
		return ""
	}
	return " at " + place
}
