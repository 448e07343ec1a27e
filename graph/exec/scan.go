package exec

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/trivium-ml/trivium/graph"
)

// scanCode is the compiled body of a Scan: a program that runs once for each index of axis 0.
type scanCode struct {
	body    *Program
	wanted  []bool // of the node's outputs
	outputs []int  // of each fetch of the body: the node's output
	carries int
	xs      int
	reverse bool
}

// compileScans compiles the bodies of the Scans, each with the outputs that somebody reads.
func (c *compiler) compileScans() error {
	wanted := map[*node][]bool{}
	use := func(r ref) {
		if w := wanted[r.n]; w != nil {
			w[r.out] = true
		}
	}
	for _, n := range c.nodes {
		if n.op == "Scan" {
			wanted[n] = make([]bool, len(n.list.types))
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	for _, n := range c.nodes {
		for _, r := range n.in {
			use(r)
		}
	}
	for _, r := range c.out {
		use(r)
	}
	for _, n := range c.nodes {
		if n.op != "Scan" {
			continue
		}
		s := &scanCode{wanted: wanted[n], carries: n.attr("carries").I, xs: n.attr("xs").I, reverse: n.attr("reverse").I != 0}
		body := n.src.Body
		var fetches []graph.Value
		for k, v := range scanValues(body) {
			if k < s.carries || s.wanted[k] {
				if k >= s.carries && len(n.list.types[k].Shape) == 0 {
					return fmt.Errorf("exec: compile: %s: output %d is wanted, which has too many axes to be stacked", n.name(), k)
				}
				fetches = append(fetches, v)
				s.outputs = append(s.outputs, k)
			}
		}
		var err error
		if s.body, err = Compile(body, body.Inputs(), fetches, nil, c.o); err != nil {
			return fmt.Errorf("exec: compile: body of %s: %w", n.name(), err)
		}
		n.rare().scan = s
	}
	return nil
}

// scanValues are the values of a body that a Scan's outputs come from: what it returns, then every output of every node.
func scanValues(body *graph.Graph) []graph.Value {
	vs := append([]graph.Value(nil), body.Outputs()...)
	for id := range body.Len() {
		for k := range body.Node(id).Types {
			vs = append(vs, body.Value(id, k))
		}
	}
	return vs
}

// A scan is a bound Scan: an instance of its body and memory for two values of each carry, one read and one written.
type scan struct {
	*scanCode
	x    *instance
	axes []int
	bufs [][2][]byte
}

// bindScan runs the body on the caller, iteration by iteration; inside of one, the pool shares the work.
func bindScan(b *bound) {
	s := &scan{scanCode: b.n.scan}
	s.axes = make([]int, len(s.body.axes))
	s.bufs = make([][2][]byte, s.carries)
	b.size = func() {
		b.whole(0)
		b.sizeErr = s.fit(b)
	}
	b.run = func(int, *worker) { b.err = s.run(b) }
}

// fit finds an instance of the body for the sizes of now.
func (s *scan) fit(b *bound) error {
	for i := range s.axes {
		s.axes[i] = -1
	}
	for i, in := range b.in {
		dims := in.dims
		if i >= s.carries && i < s.carries+s.xs {
			dims = dims[1:]
		}
		for k, d := range s.body.feedDims[i] {
			if d.axis >= 0 {
				s.axes[d.axis] = dims[k] - d.n
			}
		}
	}
	for i, a := range s.axes { // an axis that only the inside of the body names is one of the graph around it
		if a < 0 {
			s.axes[i] = b.x.sizeOf(graph.Axis(s.body.axes[i]))
		}
	}
	x, err := s.body.acquire(s.axes)
	if err != nil {
		return err
	}
	if s.x != nil {
		s.body.release(s.x)
	}
	s.x = x
	for k := range s.bufs {
		n := b.in[k].n * b.in[k].dt.Size()
		for j := range s.bufs[k] {
			if len(s.bufs[k][j]) < n {
				s.bufs[k][j] = alignedBytes(n)
			}
		}
	}
	return nil
}

func (s *scan) run(b *bound) error {
	x := s.x
	length := b.in[s.carries].dims[0]
	if length == 0 {
		for k := range s.carries {
			if s.wanted[k] {
				copy(b.out[k].bytes(), b.in[k].bytes())
			}
		}
		return nil
	}
	defer x.forget()
	x.run, x.ready = b.x.run, nil
	x.path = append(append(x.path[:0], b.x.path...), b.n.src.ID, 0)
	for i := range length {
		t := i
		if s.reverse {
			t = length - 1 - i
		}
		x.path[len(x.path)-1] = t
		s.point(b, i, t, i == length-1)
		x.follow(x.views)
		x.failed.Store(false)
		x.err = nil
		if err := x.exec(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// point makes the body's feeds and fetches lie where iteration i, which is index t, finds and leaves them.
func (s *scan) point(b *bound, i, t int, last bool) {
	for k, in := range b.in {
		switch f := s.x.feeds[k]; {
		case k < s.carries && i > 0:
			f.p = start(s.bufs[k][i&1])
		case k >= s.carries && k < s.carries+s.xs:
			f.p = in.at(t, f)
		default:
			f.p = in.p
		}
	}
	for j, k := range s.outputs {
		switch l := &s.x.lands[j]; {
		case k >= s.carries:
			l.out.p = b.out[k].at(t, l.dims)
		case last && s.wanted[k]:
			l.out.p = b.out[k].p
		default:
			l.out.p = start(s.bufs[k][(i+1)&1])
		}
	}
}

// at is where index t of axis 0 begins, a slice as large as part.
func (s *slot) at(t int, part *slot) unsafe.Pointer {
	if s.p == nil {
		return nil
	}
	return unsafe.Add(s.p, t*part.n*part.dt.Size())
}

func start(p []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(p)) }
