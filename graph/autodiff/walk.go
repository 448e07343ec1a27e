package autodiff

import (
	"errors"
	"fmt"

	"github.com/trivium-ml/trivium/graph"
)

// Grad is the gradient of one value. Dense has the value's shape. When Rows is set, Dense is not: the gradient is row-sparse, zero but
// for the sums of Values at Rows. Rows are integers of any shape and may repeat; Values has Rows' axes followed by those of one row.
type Grad struct{ Dense, Rows, Values graph.Value }

// Options of Gradients. The zero value works.
type Options struct {
	// Seed is the gradient of y, of its shape; when it is zero y must be a scalar, whose gradient is 1.
	Seed graph.Value
	// Dense asks for dense gradients only.
	Dense bool
}

// Gradients adds nodes that compute the gradient of y with respect to each of xs, and returns their values. Values that y does not depend
// on have a gradient of zeros. A mistake is recorded in y's builder, as those of operations are; the result is then of no use.
//
// A Variable's gradient is that of the value of its Read: read a Variable once, and use that value everywhere.
//
// Gradient nodes stand beside their forward node: they have its scope (with "gradient" behind it) and device, and are colocated with it.
// Values of types that are for storage (BF16, F16) have gradients in F32.
func Gradients(y graph.Value, xs []graph.Value, o Options) []Grad {
	b := y.Builder()
	out := make([]Grad, len(xs))
	if b == nil || b.Err() != nil {
		return out
	}
	if err := check(y, xs, o); err != nil {
		b.Fail(err)
		return out
	}
	t := &tape{b: b, nodes: builderNodes{y}, at: func(v graph.Value) graph.Value { return v }, parts: map[graph.Value][]part{}, place: true}
	t.activate(y.Node(), xs)
	seed := o.Seed
	if seed.IsZero() {
		b.With(beside(y), func() { seed = b.Scalar(gradType(y.DType()), 1) })
	}
	t.parts[y] = []part{{dense: seed}}
	t.walk(y.Node())
	for i, x := range xs {
		b.With(beside(x), func() { out[i] = t.grad(x, o.Dense) })
	}
	return out
}

func check(y graph.Value, xs []graph.Value, o Options) error {
	var errs []error
	if y.Def() == nil || !float(y.DType()) {
		errs = append(errs, fmt.Errorf("autodiff: y is %v %v, want a floating-point value", y, y.Type()))
	}
	if o.Seed.IsZero() && len(y.Shape()) != 0 {
		errs = append(errs, fmt.Errorf("autodiff: y is %v %v: want a scalar, or a Seed of that shape", y, y.Type()))
	}
	if want := (graph.Type{DType: gradType(y.DType()), Shape: y.Shape()}); !o.Seed.IsZero() && !o.Seed.Type().Equal(want) {
		errs = append(errs, fmt.Errorf("autodiff: Seed is %v, want %v", o.Seed.Type(), want))
	}
	for i, x := range xs {
		if x.Def() == nil || x.Builder() != y.Builder() {
			errs = append(errs, fmt.Errorf("autodiff: x %d (%v) is not a value of y's graph", i, x))
		} else if !float(x.DType()) {
			errs = append(errs, fmt.Errorf("autodiff: x %d (%v) is %v, want a floating-point value", i, x, x.Type()))
		}
	}
	return errors.Join(errs...)
}

// beside is the scope of the gradient of v's node.
func beside(v graph.Value) graph.Scope { return graph.Scope{At: v, Name: "gradient"} }

// float reports whether gradients flow through values of a type.
func float(dt graph.DType) bool { return dt.Float() || dt == graph.BF16 || dt == graph.F16 }

// gradType is the element type of the gradient of a value.
func gradType(dt graph.DType) graph.DType {
	if dt == graph.BF16 || dt == graph.F16 {
		return graph.F32
	}
	return dt
}

// part is one contribution to a gradient: dense, or rows at indices. wide, when set, makes a row-sparse one dense in a cheaper way than
// scattering does.
type part struct {
	dense, rows, values graph.Value
	wide                func() graph.Value
}

// nodes is where the forward nodes are: a builder that is still growing, or a finished body.
type nodes interface {
	Node(id int) *graph.Node
	Value(id, out int) graph.Value
}

type builderNodes struct{ y graph.Value }

func (b builderNodes) Node(id int) *graph.Node { return b.Value(id, 0).Def() }

func (b builderNodes) Value(id, out int) graph.Value { return b.y.Builder().Value(id, out) }

// tape is one reverse walk.
type tape struct {
	b      *graph.Builder
	nodes  nodes
	at     func(v graph.Value) graph.Value // a forward value, where gradients are built
	parts  map[graph.Value][]part          // contributions, by forward value, in the order of the walk
	active []bool                          // nodes that depend on what is differentiated by
	place  bool                            // gradient nodes go beside forward nodes
}

// activate marks the nodes up to last that depend on xs.
func (t *tape) activate(last int, xs []graph.Value) {
	t.active = make([]bool, last+1)
	for _, x := range xs {
		if x.Node() <= last {
			t.active[x.Node()] = true
		}
	}
	for id := range t.active {
		n := t.nodes.Node(id)
		for _, v := range n.Inputs {
			t.active[id] = t.active[id] || n.Op.Name != "StopGradient" && t.needs(v)
		}
	}
}

// needs reports whether the gradient of a forward value matters.
func (t *tape) needs(v graph.Value) bool {
	return v.Node() < len(t.active) && t.active[v.Node()] && float(t.nodes.Node(v.Node()).Types[v.Out()].DType)
}

// walk visits the nodes in descending creation order and lets each one's rule pass gradients on.
func (t *tape) walk(last int) {
	for id := last; id >= 0 && t.b.Err() == nil; id-- {
		if !t.active[id] {
			continue
		}
		n := t.nodes.Node(id)
		c := &context{tape: t, n: n}
		if !c.reached() || !c.wanted() {
			continue
		}
		r, ok := ruleOf(n.Op.Name)
		if !ok || r.vjp == nil {
			t.b.Fail(noGradient(n, r.none))
			return
		}
		if t.place {
			t.b.With(beside(t.nodes.Value(id, 0)), func() { r.vjp(c) })
		} else {
			r.vjp(c)
		}
	}
}

func noGradient(n *graph.Node, why string) error {
	err := fmt.Errorf("autodiff: %s (%s) has no gradient: %s", n.Op.Name, n.Name, why)
	if w := n.Where(); w != "" {
		err = fmt.Errorf("%w at %s", err, w)
	}
	return err
}

// grad sums the contributions to a forward value. It stays row-sparse if all of them are and can be put behind one another.
func (t *tape) grad(v graph.Value, dense bool) Grad {
	parts := t.parts[v]
	if !dense {
		if g, ok := joined(parts); ok {
			return g
		}
	}
	return Grad{Dense: t.sum(v, graph.Value{})}
}

func joined(parts []part) (Grad, bool) {
	if len(parts) == 0 || parts[0].rows.IsZero() {
		return Grad{}, false
	}
	rows, values := make([]graph.Value, len(parts)), make([]graph.Value, len(parts))
	open := 0
	for i, p := range parts {
		if p.rows.IsZero() || len(p.rows.Shape()) != 1 || p.rows.DType() != parts[0].rows.DType() {
			return Grad{Rows: parts[0].rows, Values: parts[0].values}, len(parts) == 1
		}
		if !p.rows.Shape()[0].Fixed() {
			open++
		}
		rows[i], values[i] = p.rows, p.values
	}
	if len(parts) == 1 {
		return Grad{Rows: rows[0], Values: values[0]}, true
	}
	if open > 1 {
		return Grad{}, false
	}
	return Grad{Rows: graph.Concat(0, rows...), Values: graph.Concat(0, values...)}, true
}

// sum adds the contributions to a forward value to start, or to nothing: dense ones first, each kind in the order of the walk.
func (t *tape) sum(v, start graph.Value) graph.Value {
	total := start
	add := func(x graph.Value) {
		if total.IsZero() {
			total = x
		} else {
			total = graph.Add(total, x)
		}
	}
	for _, p := range t.parts[v] {
		if p.rows.IsZero() {
			add(p.dense)
		} else if p.wide != nil {
			add(p.wide())
		}
	}
	for _, p := range t.parts[v] {
		if !p.rows.IsZero() && p.wide == nil {
			if total.IsZero() {
				total = t.zeros(v)
			}
			total = graph.ScatterAdd(total, p.rows, p.values)
		}
	}
	if total.IsZero() {
		total = t.zeros(v)
	}
	t.parts[v] = []part{{dense: total}}
	return total
}

// zeros is a gradient of nothing.
func (t *tape) zeros(v graph.Value) graph.Value {
	typ := t.typeOf(v)
	return graph.BroadcastTo(t.b.Scalar(gradType(typ.DType), 0), typ.Shape...)
}

func (t *tape) typeOf(v graph.Value) graph.Type { return t.nodes.Node(v.Node()).Types[v.Out()] }
