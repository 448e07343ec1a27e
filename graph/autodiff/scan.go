package autodiff

import (
	"slices"

	"github.com/trivium-ml/trivium/graph"
)

// scan differentiates a Scan by a Scan in the other direction. It carries the gradients of the forward carries, and sums those of the
// captured values; its xs are the gradients of the forward ys and the forward values that the body's rules ask for, which the forward
// Scan stacked.
func scan(c *context) {
	s := &reverse{context: c, carries: c.n.Int("carries"), xs: c.n.Int("xs"), body: c.n.Body, seen: map[graph.Value]graph.Value{}}
	s.inner = &tape{b: c.b, nodes: s.body, parts: map[graph.Value][]part{}, at: s.forward}
	s.activateBody()
	if len(s.inner.active) == 0 {
		return
	}
	s.open()
	s.inner.walk(s.body.Len() - 1)
	s.close()
}

// reverse is the state of one such differentiation.
type reverse struct {
	*context
	carries, xs int
	body        *graph.Graph
	inner       *tape
	scan        *graph.ScanBody
	wantCarry   []int // forward carries whose gradient is carried
	wantCapture []int // operands, captured, whose gradient is summed
	seen        map[graph.Value]graph.Value
}

// activateBody finds what in the body depends on operands that matter. A carry matters if its start does, or if its successor does.
func (s *reverse) activateBody() {
	want := map[int]bool{}
	for i := range s.n.Inputs {
		if s.need(i) {
			want[i] = true
		}
	}
	for grown := true; grown; {
		var from []graph.Value
		for i, v := range s.body.Inputs() {
			if want[i] {
				from = append(from, v)
			}
		}
		s.inner.activate(s.body.Len()-1, from)
		grown = false
		for j := range s.carries {
			if !want[j] && s.inner.needs(s.body.Outputs()[j]) && float(s.inType(j).DType) {
				want[j], grown = true, true
			}
		}
	}
	for i := range s.n.Inputs {
		switch {
		case !want[i]:
		case i < s.carries:
			s.wantCarry = append(s.wantCarry, i)
		case i >= s.carries+s.xs:
			s.wantCapture = append(s.wantCapture, i)
		}
	}
}

// open starts the reverse body and puts the gradients that come from outside at the body's values.
func (s *reverse) open() {
	var start []graph.Value
	for _, j := range s.wantCarry {
		start = append(start, s.dy(j))
	}
	for _, i := range s.wantCapture {
		start = append(start, s.zeros(s.n.Inputs[i]))
	}
	type seed struct {
		at graph.Value
		dy graph.Value
	}
	var seeds []seed
	for k, v := range s.stacked() {
		if s.has(s.carries+k) && s.inner.needs(v) {
			seeds = append(seeds, seed{v, s.dy(s.carries + k)})
		}
	}
	var xs []graph.Value
	for _, d := range seeds {
		xs = append(xs, d.dy)
	}
	if len(xs) == 0 { // the length has to come from something
		xs = append(xs, s.in(s.carries))
	}
	s.scan = graph.OpenScan(start, xs)
	for k, j := range s.wantCarry {
		s.seed(s.body.Outputs()[j], s.scan.Carries()[k])
	}
	for k, d := range seeds {
		s.seed(d.at, s.scan.Xs()[k])
	}
}

func (s *reverse) seed(v, dy graph.Value) {
	s.inner.parts[v] = append(s.inner.parts[v], part{dense: dy})
}

// stacked is the body's values that outputs of the Scan behind the carries stack, in their order.
func (s *reverse) stacked() []graph.Value {
	vs := slices.Clone(s.body.Outputs()[s.carries:])
	for n := range s.body.Nodes() {
		for i := range n.Types {
			vs = append(vs, s.body.Value(n.ID, i))
		}
	}
	return vs
}

// forward is a value of the forward body, in the reverse body: a captured value or constant itself, else its slice of the stack.
func (s *reverse) forward(v graph.Value) graph.Value {
	if w, ok := s.seen[v]; ok {
		return w
	}
	n := s.body.Node(v.Node())
	if n.Op.Name == "Const" {
		return s.b.Const(*n.Literal("value"))
	}
	var w graph.Value
	i := slices.Index(s.body.Inputs(), v)
	s.scan.Outside(func() {
		if i >= s.carries {
			w = s.in(i)
		} else {
			w = s.out(s.n.Saved(v))
		}
	})
	if i < s.carries+s.xs {
		w = s.scan.AddX(w)
	}
	s.seen[v] = w
	return w
}

// close ends the reverse body and hands its results to the operands.
func (s *reverse) close() {
	var next, ys []graph.Value
	for _, j := range s.wantCarry {
		next = append(next, s.inner.sum(s.body.Inputs()[j], graph.Value{}))
	}
	sums := s.scan.Carries()[len(s.wantCarry):]
	for k, i := range s.wantCapture {
		next = append(next, s.inner.sum(s.body.Inputs()[i], sums[k]))
	}
	var wantX []int
	for i := s.carries; i < s.carries+s.xs; i++ {
		if s.need(i) {
			wantX = append(wantX, i)
			ys = append(ys, s.inner.sum(s.body.Inputs()[i], graph.Value{}))
		}
	}
	last, stacks := s.scan.Close(next, ys, !s.n.Bool("reverse"))
	for k, i := range slices.Concat(s.wantCarry, s.wantCapture) {
		if s.need(i) {
			s.add(i, last[k])
		}
	}
	for k, i := range wantX {
		s.add(i, stacks[k])
	}
}
