package graph

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/trivium-ml/trivium/wire"
)

// DecodeLimits bound what Decode accepts; they are checked before memory is allocated. Zero fields have the stated defaults.
type DecodeLimits struct {
	Nodes     int // of the graph and all bodies; default 1,000,000
	Axes      int // of a shape; default 32, and never more
	Constants int // bytes of all literals; default 2 GiB
}

// Decode reads what Encode wrote, within the default DecodeLimits. The error has the offset and the field; an operation that is not in
// the table is named. The graph is checked and its types are inferred as when it was built.
func Decode(p []byte) (*Graph, error) { return DecodeWithin(p, DecodeLimits{}) }

// DecodeWithin is Decode with other limits.
func DecodeWithin(p []byte, limits DecodeLimits) (*Graph, error) {
	if limits.Nodes == 0 {
		limits.Nodes = 1_000_000
	}
	if limits.Axes == 0 {
		limits.Axes = maxAxes
	}
	if limits.Constants == 0 {
		limits.Constants = 2 << 30
	}
	d := decoder{r: wire.NewReader("graph", p), left: limits, known: map[string]bool{}}
	if m := d.r.String("magic word", len(magic)); d.ok() && m != magic {
		d.fail("magic word", "want %q, found %q: these bytes are no graph", magic, m)
	}
	if v := d.uint("version", math.MaxInt32); d.ok() && v != formatVersion {
		d.fail("version", "want %d, found %d", formatVersion, v)
	}
	b := NewBuilder()
	d.resources(b)
	d.nodes(b, 0)
	if err := d.r.Done(); err != nil {
		return nil, fmt.Errorf("graph: decode: %w", err)
	}
	return b.Build()
}

// decoder reads a graph; left is what the limits still allow.
type decoder struct {
	r     *wire.Reader
	left  DecodeLimits
	words []string // in the order of their first use
	known map[string]bool
}

const (
	maxName = 1 << 12 // bytes of a name
	maxList = 1 << 20 // entries of a list; the reader's length bounds them too
	maxInt  = math.MaxInt64
	maxBody = 16 // bodies within bodies
)

func (d *decoder) ok() bool { return d.r.Err() == nil }

func (d *decoder) fail(field, format string, args ...any) {
	d.r.Fail(field, fmt.Errorf(format, args...))
}

func (d *decoder) uint(field string, limit int) int { return int(d.r.Uvarint(field, uint64(limit))) }

func (d *decoder) int(field string) int {
	u := d.r.Uvarint(field, math.MaxUint64)
	return int(u>>1) ^ -int(u&1)
}

func (d *decoder) flag(field string) bool { return d.uint(field, 1) == 1 }

func (d *decoder) name(field string) string { return d.r.String(field, maxName) }

func (d *decoder) word(field string) string {
	k := d.uint(field, len(d.words))
	if !d.ok() {
		return ""
	}
	if k > 0 {
		return d.words[k-1]
	}
	w := d.name(field)
	if d.ok() && d.known[w] { // Encode would have referred to it: one graph has one encoding
		d.fail(field, "%q is written twice", w)
	}
	d.words, d.known[w] = append(d.words, w), true
	return w
}

// count reads the length of a list whose entries take at least one byte each, so that a short input cannot ask for a long list.
func (d *decoder) count(field string, limit int) int {
	n := d.uint(field, limit)
	if left := len(d.r.Rest()); n > left {
		d.fail(field, "%d entries are announced, %d bytes are left", n, left)
		return 0
	}
	return n
}

func (d *decoder) ints(field string) []int {
	v := make([]int, d.count(field, maxList))
	for i := range v {
		v[i] = d.int(field)
	}
	return v
}

func (d *decoder) shape(field string) Shape {
	s := make(Shape, d.count(field, min(d.left.Axes, maxAxes)))
	for i := range s {
		s[i] = Dim{d.word(field), d.int(field)}
	}
	return s
}

func (d *decoder) dtype(field string) DType {
	dt := DType(d.uint(field, math.MaxUint8))
	if d.ok() && !dt.Valid() {
		d.fail(field, "unknown element type %v", dt)
	}
	return dt
}

// values reads outputs of nodes that are there already.
func (d *decoder) values(field string, b *Builder) []Value {
	vs := make([]Value, d.count(field, maxList))
	for i := range vs {
		v := Value{b, int32(d.uint(field, math.MaxInt32)), int32(d.uint(field, math.MaxInt32))}
		if !d.ok() {
			return nil
		}
		if int(v.node) >= len(b.nodes) || int(v.out) >= len(b.nodes[v.node].Types) {
			d.fail(field, "node %d has no output %d before node %d", v.node, v.out, len(b.nodes))
			return nil
		}
		vs[i] = v
	}
	return vs
}

func (d *decoder) resources(b *Builder) {
	n := d.count("resources", maxList)
	for i := 0; i < n && d.ok(); i++ {
		r := d.resource()
		if !d.ok() {
			return
		}
		b.scope.device = r.Device
		b.resource(r)
		if err := b.Err(); err != nil {
			d.r.Fail("resource", err)
		}
	}
	b.scope.device = ""
}

func (d *decoder) resource() Resource {
	r := Resource{Kind: ResourceKind(d.uint("resource kind", int(AccumulatorKind))), Name: d.name("resource name"), Device: d.word("resource device")}
	for range d.count("resource types", 1<<10) {
		r.Types = append(r.Types, Type{d.dtype("resource type"), d.shape("resource shape")})
	}
	r.Init = Init{
		Kind: InitKind(d.uint("initial value", int(InitTruncated))), A: d.r.Float64("initial value"), B: d.r.Float64("initial value"),
		Scale: Scale(d.uint("initial scale", int(ScaleFanAvg))),
	}
	r.Trainable = d.flag("trainable")
	r.Capacity = d.uint("capacity", math.MaxInt32)
	r.MeanPerRow = d.flag("mean per row")
	switch {
	case !d.ok():
	case r.Kind == 0:
		d.fail("resource kind", "unknown kind 0")
	case len(r.Types) == 0 || r.Kind != QueueKind && len(r.Types) != 1:
		d.fail("resource types", "%d types of a %v", len(r.Types), r.Kind)
	case (r.Kind == QueueKind) != (r.Capacity > 0):
		d.fail("capacity", "%d of a %v", r.Capacity, r.Kind)
	}
	return r
}

func (d *decoder) nodes(b *Builder, depth int) {
	n := d.count("nodes", d.left.Nodes)
	if depth > maxBody {
		d.fail("nodes", "more than %d bodies within one another", maxBody)
	}
	d.left.Nodes -= n
	for i := 0; i < n && d.ok(); i++ {
		d.node(b, depth)
	}
}

func (d *decoder) node(b *Builder, depth int) {
	n := &Node{ID: len(b.nodes)}
	name := d.word("operation")
	if n.Op = lookup(name); n.Op == nil {
		d.fail("operation", "unknown operation %q", name)
		return
	}
	n.Name = d.name("name")
	if d.ok() && (n.Name == "" || b.names[n.Name] > 0) {
		d.fail("name", "%q is empty or taken", n.Name)
	}
	n.Device = d.word("device")
	n.Colocate = d.uint("colocation", n.ID) - 1
	n.Resources = d.indices("node resources", len(b.resources))
	n.Inputs = d.values("operands", b)
	n.Control = d.indices("control dependencies", n.ID)
	for _, spec := range n.Op.Attrs {
		n.attrs = append(n.attrs, d.attr(spec))
	}
	if b.parent != nil && n.Op.Effect > Random {
		d.fail("operation", "effect %s inside a body", n.Op.Name)
	}
	if n.Op.Body && d.ok() {
		n.Body = d.body(b, depth+1)
	}
	if !d.ok() {
		return
	}
	types, err := b.infer(n)
	if err != nil {
		d.fail("node", "%s (%s): %w", n.Op.Name, n.Name, err)
		return
	}
	n.Types = types
	b.names[n.Name] = 1
	b.push(n)
}

func (d *decoder) indices(field string, limit int) []int {
	v := d.ints(field)
	for _, x := range v {
		if d.ok() && (x < 0 || x >= limit) {
			d.fail(field, "%d, want less than %d", x, limit)
		}
	}
	if len(v) == 0 {
		return nil
	}
	return v
}

func (d *decoder) body(outer *Builder, depth int) *Graph {
	b := newBuilder()
	b.parent, b.root = outer, outer.root
	d.nodes(b, depth)
	inputs, outputs := d.values("inputs of a body", b), d.values("outputs of a body", b)
	if !d.ok() {
		return nil
	}
	seen := map[Value]bool{}
	for _, v := range inputs {
		if seen[v] || b.nodes[v.node].Op.Name != "Input" {
			d.fail("inputs of a body", "%v is given twice, or is no Input", v)
		}
		seen[v] = true
	}
	if len(inputs) != len(b.inputs) {
		d.fail("inputs of a body", "%d are bound of %d", len(inputs), len(b.inputs))
	}
	g := b.snapshot()
	g.inputs, g.outputs = inputs, outputs
	return g
}

func (d *decoder) attr(spec AttrSpec) Attr {
	a := Attr{Kind: spec.Kind}
	switch f := spec.Name; spec.Kind {
	case KindInt:
		a.I = d.int(f)
	case KindBool:
		a.I = d.uint(f, 1)
	case KindDType:
		a.I = int(d.dtype(f))
	case KindFloat:
		a.F = d.r.Float64(f)
	case KindString:
		a.S = d.r.String(f, maxName)
	case KindInts:
		a.Ints = d.ints(f)
	case KindShape:
		a.Shape = d.shape(f)
	case KindLiteral:
		a.Lit = d.literal(f)
	default:
		d.r.Fail(f, errors.New("unknown kind of attribute"))
	}
	return a
}

func (d *decoder) literal(field string) *Literal {
	l := &Literal{DType: d.dtype(field), Shape: d.ints(field)}
	if len(l.Shape) > min(d.left.Axes, maxAxes) {
		d.fail(field, "%d axes", len(l.Shape))
	}
	data := d.r.Bytes(field, d.left.Constants)
	d.left.Constants -= len(data)
	l.Data = slices.Clone(data)
	if l.DType == Bool && slices.ContainsFunc(data, func(x byte) bool { return x > 1 }) {
		d.fail(field, "a bool is neither 0 nor 1")
	}
	return l
}
