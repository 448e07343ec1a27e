package exec

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// mlp is a perceptron with its gradients, written by hand: what autodiff makes of the loss.
type mlp struct {
	g      *graph.Graph
	x, y   graph.Value
	loss   graph.Value
	grads  []graph.Value
	vars   []*graph.Variable
	widths []int
}

func newMLP(t testing.TB, dt graph.DType, widths ...int) mlp {
	return newMLPOf(t, graph.Axis("batch"), dt, widths...)
}

// newMLPOf is newMLP for batches of such a size.
func newMLPOf(t testing.TB, batch graph.Dim, dt graph.DType, widths ...int) mlp {
	b := graph.NewBuilder()
	m := mlp{widths: widths}
	m.x = b.Input("x", dt, batch, graph.N(widths[0]))
	m.y = b.Input("y", graph.I64, batch)
	var ws, hs []graph.Value
	h := m.x
	for i := range len(widths) - 1 {
		w := b.Variable(name("w", i), dt, []int{widths[i], widths[i+1]}, graph.GlorotUniform())
		c := b.Variable(name("b", i), dt, []int{widths[i+1]}, graph.Uniform(-.1, .1))
		m.vars = append(m.vars, w, c)
		ws, hs = append(ws, w.Read()), append(hs, h)
		h = graph.Add(graph.MatMul(h, ws[i]), c.Read())
		if i < len(widths)-2 {
			h = graph.ReLU(h)
		}
	}
	losses := graph.SoftmaxCrossEntropy(h, m.y)
	m.loss = graph.Sum(losses, nil, false)
	dy := graph.BroadcastTo(b.Scalar(dt, 1), batch)
	d := graph.SoftmaxCrossEntropyGrad(h, m.y, dy)
	m.grads = make([]graph.Value, len(m.vars))
	for i := len(ws) - 1; i >= 0; i-- {
		m.grads[2*i+1] = graph.SumTo(d, graph.N(widths[i+1]))
		m.grads[2*i] = graph.MatMulT(hs[i], d, true, false)
		if i > 0 {
			d = graph.ReLUGrad(graph.MatMulT(d, ws[i], false, true), hs[i])
		}
	}
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	m.g = g
	return m
}

func name(s string, i int) string { return s + string(rune('0'+i)) }

func (m mlp) data(rows int, dt graph.DType) []*tensor.Tensor {
	r := rand.New(rand.NewPCG(1, 2))
	x, y := tensor.New(dt, rows, m.widths[0]), tensor.New(tensor.I64, rows)
	fillRandom(x, r)
	for i := range tensor.Flat[int64](y) {
		tensor.Flat[int64](y)[i] = int64(r.IntN(m.widths[len(m.widths)-1]))
	}
	return []*tensor.Tensor{x, y}
}

func fillRandom(t *tensor.Tensor, r *rand.Rand) {
	switch t.DType() {
	case tensor.F32:
		for i := range tensor.Flat[float32](t) {
			tensor.Flat[float32](t)[i] = r.Float32()*2 - 1
		}
	case tensor.F64:
		for i := range tensor.Flat[float64](t) {
			tensor.Flat[float64](t)[i] = r.Float64()*2 - 1
		}
	}
}

func (m mlp) compile(t testing.TB, o Options) *Program {
	p, err := Compile(m.g, []graph.Value{m.x, m.y}, append([]graph.Value{m.loss}, m.grads...), nil, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestMLPSameBitsOnAnyThreads(t *testing.T) {
	for _, dt := range []graph.DType{graph.F32, graph.F64} {
		m := newMLP(t, dt, 100, 64, 10)
		feeds := m.data(70, dt)
		s := NewState(StateOptions{Seed: 5})
		if err := s.Init(m.g); err != nil {
			t.Fatal(err)
		}
		var want []*tensor.Tensor
		for _, o := range []Options{{Serial: true, Plain: true}, {Serial: true}, {}, {CPU: cpu(t, 1)}, {CPU: cpu(t, 2), Grain: 100}, {CPU: cpu(t, 7), Grain: 10}} {
			p := m.compile(t, o)
			for range 20 {
				got, err := p.Run(context.Background(), s, feeds...)
				if err != nil {
					t.Fatal(err)
				}
				if want == nil {
					want = got
				}
				for i := range got {
					if string(got[i].Bytes()) != string(want[i].Bytes()) {
						t.Fatalf("%v: result %d differs", o, i)
					}
				}
			}
		}
	}
}

func cpu(t testing.TB, threads int) *tensor.CPU {
	c := &tensor.CPU{ISA: kernel.Best(), Pool: tensor.NewPool(threads)}
	t.Cleanup(c.Close)
	return c
}
