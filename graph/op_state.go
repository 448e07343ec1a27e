package graph

import (
	"fmt"
	"slices"
)

// stateOps work on resources and exchange tensors with other participants. Writes of a Variable give its new version, an i64 scalar;
// Enqueue and Send give nothing and are run as targets or control dependencies.
var stateOps = []Op{
	{Name: "Read", Effect: Read, Doc: "a snapshot of a Variable", infer: onVariable(func(c *inference, v Type) ([]Type, error) { return []Type{v}, nil })},
	{Name: "Assign", Effect: Write, Min: 1, Max: 1, Doc: "replaces a Variable", infer: onVariable(inferAssign)},
	{Name: "AssignAdd", Effect: Write, Min: 1, Max: 1, Doc: "adds to a Variable", infer: onVariable(inferAssignAdd)},
	{
		Name: "Apply", Effect: Write, Min: 1, Max: -1, Doc: "lets a rule of optim update a Variable and its slots from a gradient",
		Attrs: []AttrSpec{{"rule", KindString, "name that the executor knows"}, {"sparse", KindBool, "operands 0 and 1 are row numbers and rows"}}, infer: onVariable(inferApply),
	},
	{Name: "Enqueue", Effect: Blocking, Min: 1, Max: -1, Doc: "appends an entry to a queue; waits while it is full", infer: inferEnqueue},
	{Name: "Dequeue", Effect: Blocking, Doc: "takes the first entry of a queue; waits for one", infer: inferDequeue},
	{
		Name: "AccumApply", Effect: Write, Min: 2, Max: 3, Doc: "adds a gradient computed at a local step, or drops it as stale; tells which",
		Attrs: []AttrSpec{{"sparse", KindBool, "operands 1 and 2 are row numbers and rows"}}, infer: inferAccumApply,
	},
	{Name: "AccumTake", Effect: Blocking, Min: 1, Max: 1, Doc: "waits for that many gradients, gives the mean of all present and empties the accumulator", infer: inferAccumTake},
	{
		Name: "Send", Effect: Write, Min: 1, Max: 1, Doc: "hands a tensor to whoever receives the key; never waits",
		Attrs: []AttrSpec{{"key", KindString, "name of the edge"}, {"peer", KindString, "device of the receiver"}},
		infer: func(c *inference) ([]Type, error) { return nil, nil },
	},
	{
		Name: "Recv", Effect: Blocking, Doc: "waits for the tensor sent under the key",
		Attrs: []AttrSpec{{"key", KindString, "name of the edge"}, {"peer", KindString, "device of the sender"}, {"dtype", KindDType, "element type"}, shapeAttr},
		infer: func(c *inference) ([]Type, error) { return one(c.dtype("dtype"), c.shape("shape")) },
	},
}

// version is the type of a Variable's version.
var version = []Type{{I64, nil}}

func wantResource(c *inference, kind ResourceKind) error {
	if len(c.resources) == 0 || c.resources[0].Kind != kind {
		return fmt.Errorf("want a %v", kind)
	}
	return nil
}

func onVariable(f func(c *inference, v Type) ([]Type, error)) func(c *inference) ([]Type, error) {
	return func(c *inference) ([]Type, error) {
		if err := wantResource(c, VariableKind); err != nil {
			return nil, err
		}
		return f(c, c.resources[0].Types[0])
	}
}

func sameType(what string, have, want Type) error {
	if !have.Equal(want) {
		return fmt.Errorf("%s is %v, want %v", what, have, want)
	}
	return nil
}

func inferAssign(c *inference, v Type) ([]Type, error) {
	return version, sameType("the new value", c.in[0], v)
}

func inferAssignAdd(c *inference, v Type) ([]Type, error) {
	if !v.DType.Float() && v.DType != I32 && v.DType != I64 {
		return nil, fmt.Errorf("the Variable is %v, want f32, f64, i32 or i64", v.DType)
	}
	return inferAssign(c, v)
}

// rowsOf checks a gradient that may be row-sparse: row numbers of any shape, and rows, shaped like Gather's result.
func rowsOf(in []Type, sparse bool, v Type) (used int, err error) {
	if !sparse {
		return 1, sameType("the gradient", in[0], v)
	}
	if len(in) < 2 || len(v.Shape) == 0 {
		return 0, fmt.Errorf("a row-sparse gradient of %v needs row numbers and rows", v)
	}
	err = wantInteger("row numbers", in[0])
	if err == nil {
		err = sameType("rows", in[1], Type{v.DType, append(slices.Clip(in[0].Shape), v.Shape[1:]...)})
	}
	return 2, err
}

func inferApply(c *inference, v Type) ([]Type, error) {
	if c.str("rule") == "" {
		return nil, fmt.Errorf("the rule has no name")
	}
	if !v.DType.Float() {
		return nil, fmt.Errorf("the Variable is %v, want f32 or f64", v.DType)
	}
	for _, r := range c.resources[1:] {
		if r.Kind != VariableKind {
			return nil, fmt.Errorf("slot %q is a %v, want a Variable", r.Name, r.Kind)
		}
		if dt := r.Types[0].DType; dt != v.DType {
			return nil, fmt.Errorf("slot %q is %v, want the Variable's %v", r.Name, dt, v.DType)
		}
	}
	used, err := rowsOf(c.in, c.bool("sparse"), v)
	if err != nil {
		return nil, err
	}
	for _, t := range c.in[used:] {
		if len(t.Shape) != 0 {
			return nil, fmt.Errorf("parameter of the rule is %v, want a scalar", t)
		}
	}
	return version, nil
}

func inferEnqueue(c *inference) ([]Type, error) {
	if err := wantResource(c, QueueKind); err != nil {
		return nil, err
	}
	if want := c.resources[0].Types; !slices.EqualFunc(c.in, want, Type.Equal) {
		return nil, fmt.Errorf("the entry is %v, want %v", c.in, want)
	}
	return nil, nil
}

func inferDequeue(c *inference) ([]Type, error) {
	if err := wantResource(c, QueueKind); err != nil {
		return nil, err
	}
	return c.resources[0].Types, nil
}

func inferAccumApply(c *inference) ([]Type, error) {
	if err := wantResource(c, AccumulatorKind); err != nil {
		return nil, err
	}
	if err := sameType("the local step", c.in[0], Type{I64, nil}); err != nil {
		return nil, err
	}
	used, err := rowsOf(c.in[1:], c.bool("sparse"), c.resources[0].Types[0])
	if err == nil && len(c.in) != 1+used {
		err = fmt.Errorf("%d operands, want %d", len(c.in), 1+used)
	}
	return []Type{{Bool, nil}}, err
}

func inferAccumTake(c *inference) ([]Type, error) {
	if err := wantResource(c, AccumulatorKind); err != nil {
		return nil, err
	}
	return c.resources[0].Types, sameType("the number of gradients", c.in[0], Type{I64, nil})
}

// resource appends a resource to the outermost graph.
func (b *Builder) resource(r Resource) *Resource {
	top := b.top()
	r.Name, r.Device, r.ID = top.scope.name+r.Name, top.scope.device, len(top.resources)
	p := &r
	if b.root.err != nil {
		return p
	}
	if r.Name == top.scope.name || top.resNames[r.Name] {
		b.fail(r.Kind.String(), "name %q is empty or taken", r.Name)
		return p
	}
	for _, t := range r.Types {
		_, fixed := t.Shape.Fixed()
		err := checkType(t)
		if err == nil && !fixed && r.Kind != QueueKind {
			err = fmt.Errorf("%v, want fixed axes", t)
		}
		if err != nil {
			b.fail(r.Kind.String(), "%q: %v", r.Name, err)
			return p
		}
		if r.Kind == AccumulatorKind && t.DType != F32 && t.DType != F64 {
			b.fail(r.Kind.String(), "%q is %v: gradients are f32 or f64", r.Name, t.DType)
			return p
		}
	}
	top.resNames[r.Name] = true
	top.resources = append(top.resources, p)
	return p
}

func (b *Builder) top() *Builder {
	for b.parent != nil {
		b = b.parent
	}
	return b
}

// Variable declares a named tensor that lives between steps, trainable unless its field says otherwise.
func (b *Builder) Variable(name string, dt DType, shape []int, init Init) *Variable {
	if init.Kind > InitTruncated {
		b.fail("Variable", "%q: unknown kind of initial value %d, want at most %d", name, init.Kind, InitTruncated)
	}
	if init.Scale > ScaleFanAvg {
		b.fail("Variable", "%q: unknown scale of initial values %d, want at most %d", name, init.Scale, ScaleFanAvg)
	}
	if init.Kind == InitConstant && !holds(dt, init.A) {
		b.fail("Variable", "%q is %v, which cannot hold the initial value %v", name, dt, init.A)
	}
	r := b.resource(Resource{Kind: VariableKind, Name: name, Types: []Type{{dt, Of(shape...)}}, Init: init, Trainable: true})
	return &Variable{r, b.top()}
}

// Queue declares a queue of at most capacity entries, each a tuple of the given types.
func (b *Builder) Queue(name string, capacity int, types ...Type) *Queue {
	if capacity < 1 || len(types) == 0 {
		b.fail("queue", "%q: capacity %d and %d types, want at least 1 of both", name, capacity, len(types))
	}
	r := b.resource(Resource{Kind: QueueKind, Name: name, Types: types, Capacity: capacity})
	return &Queue{r, b.top()}
}

// Accumulator declares an accumulator of gradients. MeanPerRow, a field of the Resource, chooses TensorFlow's mean of row-sparse ones.
func (b *Builder) Accumulator(name string, dt DType, shape ...int) *Accumulator {
	r := b.resource(Resource{Kind: AccumulatorKind, Name: name, Types: []Type{{dt, Of(shape...)}}})
	return &Accumulator{r, b.top()}
}

// effect makes a node on resources of the outermost graph. Inside a body only Read is possible: it then happens once, outside.
func (b *Builder) effect(op string, attrs []Attr, ids []int, in ...Value) Value {
	target := b.root.cur
	if target.parent != nil {
		if op != "Read" {
			target.fail(op, "inside the body of %s; effects stay outside of bodies", target.body)
			return Value{b: target, node: -1}
		}
		target = b.top()
	}
	return target.add(spec{op: op, attrs: attrs, in: in, resources: ids})
}

// Read is a snapshot of v. Inside a Scan's body it is read once, before the Scan. Gradient: none flows past it; ask for the gradient of
// the Read's value.
func (v *Variable) Read() Value { return v.b.effect("Read", nil, []int{v.ID}) }

// Assign replaces v by x and gives v's new version.
func (v *Variable) Assign(x Value) Value { return v.b.effect("Assign", nil, []int{v.ID}, x) }

// AssignAdd adds x to v and gives v's new version.
func (v *Variable) AssignAdd(x Value) Value { return v.b.effect("AssignAdd", nil, []int{v.ID}, x) }

// Apply lets the named rule update v and its slots from gradient g; params are scalars that the rule reads, such as a rate. It gives v's
// new version.
func (v *Variable) Apply(rule string, g Value, slots []*Variable, params ...Value) Value {
	return v.apply(rule, false, slots, append([]Value{g}, params...))
}

// ApplyRows is Apply of a row-sparse gradient: values, shaped like Gather's result, belong to the rows of those numbers; they may repeat.
func (v *Variable) ApplyRows(rule string, rows, values Value, slots []*Variable, params ...Value) Value {
	return v.apply(rule, true, slots, append([]Value{rows, values}, params...))
}

func (v *Variable) apply(rule string, sparse bool, slots []*Variable, in []Value) Value {
	ids := []int{v.ID}
	for _, s := range slots {
		if s.b != v.b {
			v.b.root.cur.fail("Apply", "slot %q is of another graph than %q", s.Name, v.Name)
			return Value{b: v.b.root.cur, node: -1}
		}
		ids = append(ids, s.ID)
	}
	return v.b.effect("Apply", []Attr{attrString(rule), attrBool(sparse)}, ids, in...)
}

// Enqueue appends an entry; run it as a target.
func (q *Queue) Enqueue(entry ...Value) Value {
	return q.b.effect("Enqueue", nil, []int{q.ID}, entry...)
}

// Dequeue takes the first entry.
func (q *Queue) Dequeue() []Value {
	v := q.b.effect("Dequeue", nil, []int{q.ID})
	vs := make([]Value, len(q.Types))
	for i := range vs {
		vs[i] = v.Output(i)
	}
	return vs
}

// Apply adds gradient g, computed at localStep (i64), and gives whether it was counted: false when it was stale.
func (a *Accumulator) Apply(localStep, g Value) Value {
	return a.b.effect("AccumApply", []Attr{attrBool(false)}, []int{a.ID}, localStep, g)
}

// ApplyRows is Apply of a row-sparse gradient.
func (a *Accumulator) ApplyRows(localStep, rows, values Value) Value {
	return a.b.effect("AccumApply", []Attr{attrBool(true)}, []int{a.ID}, localStep, rows, values)
}

// Take waits for at least n (i64) gradients and gives the mean of all present; the accumulator is then empty and one step further.
func (a *Accumulator) Take(n Value) Value { return a.b.effect("AccumTake", nil, []int{a.ID}, n) }

// Send hands v to the peer device under key; run it as a target.
func Send(v Value, key, peer string) Value {
	if v.b == nil {
		return v
	}
	return v.b.effect("Send", []Attr{attrString(key), attrString(peer)}, nil, v)
}

// Recv waits for what the peer device sends under key.
func (b *Builder) Recv(key, peer string, t Type) Value {
	return b.effect("Recv", []Attr{attrString(key), attrString(peer), attrDType(t.DType), attrShape(t.Shape)}, nil)
}
