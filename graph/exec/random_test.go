package exec

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/graphtest"
	"github.com/trivium-ml/trivium/tensor"
)

// A randomProgram is a graph of matrices that reads and writes Variables, some of it in scopes with control dependencies.
type randomProgram struct {
	r      *rand.Rand
	b      *graph.Builder
	x      graph.Value
	vars   []*graph.Variable
	values fetches
	writes fetches
	losses fetches // which nothing reads
}

func newRandomProgram(seed uint64) *randomProgram {
	p := &randomProgram{r: rand.New(rand.NewPCG(seed, 5)), b: graph.NewBuilder()}
	p.x = p.b.Input("x", graph.F64, graph.Of(3, 3)...)
	p.values = fetches{p.x}
	for i := range 3 {
		p.vars = append(p.vars, p.b.Variable(fmt.Sprint("v", i), graph.F64, []int{3, 3}, graph.Uniform(-1, 1)))
	}
	for range 4 + p.r.IntN(16) {
		p.grow()
	}
	return p
}

// any is one of the values, oftener a late one.
func (p *randomProgram) any() graph.Value {
	if p.r.IntN(2) == 0 {
		return p.values[max(0, len(p.values)-1-p.r.IntN(4))]
	}
	return p.values[p.r.IntN(len(p.values))]
}

// grow adds an operation: what passes look for, and what they must not disturb. No value grows large.
func (p *randomProgram) grow() {
	add := func(vs ...graph.Value) { p.values = append(p.values, vs...) }
	v := p.vars[p.r.IntN(len(p.vars))]
	switch p.r.IntN(16) {
	case 0, 1, 2:
		add(v.Read())
	case 3, 4:
		p.writes = append(p.writes, v.Assign(p.any()))
	case 5, 6:
		p.writes = append(p.writes, v.AssignAdd(graph.Tanh(p.any())))
	case 7:
		add(graph.Mul(graph.Add(p.any(), p.any()), p.b.Scalar(graph.F64, .5)))
	case 8:
		add(graph.Neg(p.any()))
	case 9:
		add(graph.Transpose(p.any(), 1, 0))
	case 10:
		add(graph.Tanh(graph.MatMul(p.any(), p.any())))
	case 11:
		add(graph.Tanh(graph.ReLU(graph.Add(graph.MatMul(p.any(), p.any()), graph.Sum(p.any(), []int{0}, false)))))
	case 12:
		add(graph.Reshape(graph.Reshape(p.any(), graph.N(9)), graph.Of(3, 3)...))
	case 13:
		x := v.Read()
		if p.r.IntN(2) == 0 {
			x = p.any()
		}
		loss := graph.SoftmaxCrossEntropy(x, graph.ConstOf(p.b, []int32{1, 0, 2}, 3))
		p.losses = append(p.losses, loss)
		add(grads(sum(loss), x)[0])
	case 14:
		all := p.any()
		_, ys := graph.Scan(fetches{graph.Sum(p.any(), []int{0}, false)}, fetches{p.any()}, func(c, x []graph.Value) (next, ys []graph.Value) {
			return fetches{graph.Tanh(graph.Add(c[0], graph.Sum(graph.Mul(all, x[0]), []int{0}, false)))}, c
		})
		add(ys[0])
	case 15:
		if len(p.writes) > 0 {
			var neg, turned graph.Value
			p.b.With(graph.Scope{Control: fetches{p.writes[p.r.IntN(len(p.writes))]}}, func() {
				neg, turned = graph.Neg(p.any()), graph.Transpose(p.any(), 1, 0)
				add(neg, turned, graph.Mul(p.any(), p.b.Scalar(graph.F64, 1)), v.Read())
			})
			add(graph.Neg(neg), graph.Transpose(turned, 1, 0))
		}
	}
}

// run runs two steps on new Variables, which lie in memory of the caller's if bind says so. After the results come the Variables.
func (p *randomProgram) run(t *testing.T, g *graph.Graph, x *tensor.Tensor, out, targets fetches, bind bool, o Options) (got []*tensor.Tensor, err error) {
	s := NewState(StateOptions{})
	if err := s.Init(g); err != nil {
		t.Fatal(err)
	}
	for _, v := range p.vars {
		if now, _, _ := s.Get(v); bind {
			if err := s.Bind(v, now); err != nil {
				t.Fatal(err)
			}
		}
	}
	program := compile(t, g, fetches{p.x}, out, targets, o)
	for range 2 {
		if got, err = program.Run(ctx, s, x); err != nil {
			return nil, err
		}
	}
	for _, v := range p.vars {
		now, _, _ := s.Get(v)
		got = append(got, now)
	}
	return got, nil
}

// reference is what the interpreter gives for the same two steps.
func (p *randomProgram) reference(t *testing.T, g *graph.Graph, x *tensor.Tensor, out, targets fetches) (want []graphtest.Array) {
	s, m := NewState(StateOptions{}), graphtest.NewMachine()
	if err := s.Init(g); err != nil {
		t.Fatal(err)
	}
	for _, v := range p.vars {
		now, _, _ := s.Get(v)
		m.Vars[v.Name] = graphtest.FromTensor(now)
	}
	for range 2 {
		var err error
		if want, err = m.Run(g, graphtest.Feeds{p.x: graphtest.FromTensor(x)}, slices.Concat(out, targets)...); err != nil {
			t.Fatal(err)
		}
	}
	want = want[:len(out)]
	for _, v := range p.vars {
		want = append(want, m.Vars[v.Name])
	}
	return want
}

// TestRandomProgramsOnVariables runs random programs with random fetches and targets in every way: results and Variables are those of the
// interpreter, and bit for bit those of the serial run of the graph as it was written; and no pass makes of a step that may run on
// Variables in the caller's memory one that may not.
func TestRandomProgramsOnVariables(t *testing.T) {
	first, programs := rand.Uint64N(1<<40), uint64(300)
	if raceEnabled {
		programs = 30
	}
	x := f64s(l{.5, -1, 2, 0, .25, -.75, 1, 1, -2}, 3, 3)
	vs := variants(t)
	for seed := first; seed < first+programs; seed++ {
		p := newRandomProgram(seed)
		out, targets := slices.Clone(p.losses), fetches{}
		for range 1 + p.r.IntN(3) {
			out = append(out, p.any())
		}
		for _, w := range p.writes {
			if p.r.IntN(2) == 0 {
				targets = append(targets, w)
			}
		}
		g := build(t, p.b)
		plain, err := p.run(t, g, x, out, targets, false, vs[0])
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for k, want := range p.reference(t, g, x, out, targets) {
			if got := graphtest.FromTensor(plain[k]); !slices.EqualFunc(got.Data, want.Data, func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }) {
				t.Errorf("seed %d: result %d is %v, want %v", seed, k, got, want)
			}
		}
		_, refused := p.run(t, g, x, out, targets, true, vs[0])
		for i, o := range vs {
			for _, bind := range []bool{false, true} {
				got, err := p.run(t, g, x, out, targets, bind, o)
				if err != nil && !(bind && refused != nil) {
					t.Errorf("seed %d, variant %d, bound: %v: %v", seed, i, bind, err)
				}
				for k := range got {
					if string(got[k].Bytes()) != string(plain[k].Bytes()) {
						t.Errorf("seed %d, variant %d, bound: %v: result %d is %v, want %v", seed, i, bind, k, got[k], plain[k])
					}
				}
			}
		}
	}
}
