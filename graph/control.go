package graph

import (
	"fmt"
	"slices"
)

// controlOps run bodies.
var controlOps = []Op{
	{
		Name: "Scan", Min: 1, Max: -1, Body: true, Doc: "runs its body for each index of axis 0 of xs, with values carried from one to the next; operands carries, xs, captures",
		Attrs: []AttrSpec{
			{"carries", KindInt, "number of carried values"},
			{"xs", KindInt, "number of values that are sliced"},
			{"reverse", KindBool, "from the last index to the first"},
		}, infer: inferScan,
	},
}

// The outputs of a Scan are the last carries; the ys, stacked along a new axis 0; and then, stacked alike, every output of every node of
// the body in creation order. Those are what the gradient reads. An executor makes only the ones that are used.

// Saved is the number of the Scan output that stacks the value v of its body.
func (n *Node) Saved(v Value) int {
	at := len(n.Body.outputs)
	for _, m := range n.Body.nodes[:v.node] {
		at += len(m.Types)
	}
	return at + int(v.out)
}

func inferScan(c *inference) ([]Type, error) {
	carries, xs := c.int("carries"), c.int("xs")
	if c.body == nil || carries < 0 || xs < 1 || carries > len(c.in) || xs > len(c.in)-carries {
		return nil, fmt.Errorf("%d carries and %d xs of %d operands: want a body and at least one of xs", carries, xs, len(c.in))
	}
	if len(c.body.inputs) != len(c.in) || len(c.body.outputs) < carries {
		return nil, fmt.Errorf("the body has %d inputs and %d outputs for %d operands and %d carries", len(c.body.inputs), len(c.body.outputs), len(c.in), carries)
	}
	var length Dim
	for i, t := range c.in {
		want := t
		if i >= carries && i < carries+xs {
			if len(t.Shape) == 0 || i > carries && t.Shape[0] != length {
				return nil, fmt.Errorf("xs %d is %v, want axis 0 of size %v", i-carries, t, length)
			}
			length = t.Shape[0]
			want.Shape = t.Shape[1:]
		}
		if have := c.body.TypeOf(c.body.inputs[i]); !have.Equal(want) {
			return nil, fmt.Errorf("input %d of the body is %v, want %v", i, have, want)
		}
	}
	return scanOutputs(c.body, c.in[:carries], length)
}

func scanOutputs(body *Graph, carries []Type, length Dim) ([]Type, error) {
	var out []Type
	stack := func(t Type) { out = append(out, Type{t.DType, append(Shape{length}, t.Shape...)}) }
	for i, v := range body.outputs {
		t := body.TypeOf(v)
		if i >= len(carries) {
			stack(t)
			continue
		}
		if !t.Equal(carries[i]) {
			return nil, fmt.Errorf("carry %d is %v and its successor %v: want one type", i, carries[i], t)
		}
		out = append(out, t)
	}
	for _, n := range body.nodes {
		for _, t := range n.Types {
			if len(t.Shape) < maxAxes {
				stack(t)
			} else {
				out = append(out, Type{Bool, nil}) // cannot be stacked, and so cannot be used
			}
		}
	}
	return out, nil
}

// Scan maps axis 0 of xs, which all have the same length there, with a carry: body gets the carry and one index of each of xs, and
// returns the next carry, of the same types, and ys. Scan gives the last carry and the ys stacked along a new axis 0. Values from outside
// may be used in the body. Effects may not; Dropout there draws anew for each index. Gradient: the reverse Scan.
func Scan(carry, xs []Value, body func(carry, x []Value) (next, y []Value)) (last, ys []Value) {
	s := OpenScan(carry, xs)
	if s == nil {
		return nil, nil
	}
	next, y := body(s.Carries(), s.Xs())
	return s.Close(next, y, false)
}

// ScanBody is a Scan whose body is being built: for packages that find out what a body needs while they build it. Operations made
// between OpenScan and Close belong to the body.
type ScanBody struct {
	outer, inner  *Builder
	carry, xs     []Value // operands
	inCarry, inXs []Value // the body's inputs for them
}

// OpenScan starts the body of a Scan with these operands; more may be added. It returns nil when no operand has a builder.
func OpenScan(carry, xs []Value) *ScanBody {
	i := slices.IndexFunc(slices.Concat(carry, xs), func(v Value) bool { return v.b != nil })
	if i < 0 {
		return nil
	}
	outer := slices.Concat(carry, xs)[i].b.root.cur
	inner := newBuilder()
	inner.parent, inner.root, inner.body = outer, outer.root, outer.scope.name+"Scan"
	inner.captures = map[Value]Value{}
	inner.scope.device = outer.scope.device
	s := &ScanBody{outer: outer, inner: inner}
	outer.root.cur = inner
	for _, v := range carry {
		s.AddCarry(v)
	}
	for _, v := range xs {
		s.AddX(v)
	}
	return s
}

// Carries are the body's inputs for the carries so far.
func (s *ScanBody) Carries() []Value { return slices.Clone(s.inCarry) }

// Xs are the body's inputs for the xs so far.
func (s *ScanBody) Xs() []Value { return slices.Clone(s.inXs) }

// AddCarry adds a carried value that starts as v and returns the body's input for it.
func (s *ScanBody) AddCarry(v Value) Value {
	in := s.operand("carry", len(s.carry), v.Type())
	s.carry, s.inCarry = append(s.carry, v), append(s.inCarry, in)
	return in
}

// AddX adds a value that is sliced along axis 0 and returns the body's input for a slice.
func (s *ScanBody) AddX(v Value) Value {
	t := v.Type()
	in := Value{b: s.inner, node: -1} // a body may index its xs, whatever they are
	if len(t.Shape) == 0 {
		s.outer.fail("Scan", "xs %d is %v, want an axis to scan", len(s.xs), t)
	} else {
		t.Shape = t.Shape[1:]
		in = s.operand("x", len(s.xs), t)
	}
	s.xs, s.inXs = append(s.xs, v), append(s.inXs, in)
	return in
}

// Outside calls f while operations belong to the graph around the body.
func (s *ScanBody) Outside(f func()) {
	root := s.outer.root
	old := root.cur
	root.cur = s.outer
	defer func() { root.cur = old }()
	f()
}

func (s *ScanBody) operand(kind string, i int, t Type) Value {
	old := s.inner.scope.name
	s.inner.scope.name = ""
	defer func() { s.inner.scope.name = old }()
	return s.inner.input(fmt.Sprintf("%s_%d", kind, i), t)
}

// Close ends the body and makes the Scan.
func (s *ScanBody) Close(next, y []Value, reverse bool) (last, ys []Value) {
	results := make([]Value, 0, len(next)+len(y))
	for i, v := range slices.Concat(next, y) {
		w, err := s.inner.resolve(v)
		if err != nil {
			s.inner.fail("Scan", "result %d of the body: %v", i, err)
		}
		results = append(results, w)
	}
	s.outer.root.cur = s.outer
	if len(next) != len(s.carry) {
		s.outer.fail("Scan", "the body returns %d carries, want %d", len(next), len(s.carry))
	}
	if s.outer.root.err != nil {
		return invalid(s.outer, len(s.carry)), invalid(s.outer, len(y))
	}
	body := s.inner.snapshot()
	body.inputs = slices.Concat(s.inCarry, s.inXs)
	for _, v := range s.inner.captured {
		body.inputs = append(body.inputs, s.inner.captures[v])
	}
	body.outputs = results
	in := slices.Concat(s.carry, s.xs, s.inner.captured)
	attrs := []Attr{attrInt(len(s.carry)), attrInt(len(s.xs)), attrBool(reverse)}
	v := s.outer.add(spec{op: "Scan", attrs: attrs, in: in, body: body})
	for i := range results {
		if i < len(next) {
			last = append(last, v.Output(i))
		} else {
			ys = append(ys, v.Output(i))
		}
	}
	return last, ys
}

func invalid(b *Builder, n int) []Value {
	vs := make([]Value, n)
	for i := range vs {
		vs[i] = Value{b: b, node: -1}
	}
	return vs
}
