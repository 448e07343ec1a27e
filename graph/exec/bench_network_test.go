package exec

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// networks are graphs with a loss and its gradients: a convolutional net like LeNet and a recurrent one, on images of 28×28.
var networks = map[string]func(b *graph.Builder, x, y graph.Value) (loss graph.Value, params []graph.Value){
	"lenet": func(b *graph.Builder, x, y graph.Value) (graph.Value, []graph.Value) {
		var ps []graph.Value
		p := func(name string, shape ...int) graph.Value {
			v := b.Variable(name, graph.F32, shape, graph.GlorotUniform()).Read()
			ps = append(ps, v)
			return v
		}
		h := graph.Reshape(x, graph.Axis("batch"), graph.N(28), graph.N(28), graph.N(1))
		h = graph.MaxPool(graph.Conv2D(h, p("f1", 5, 5, 1, 8), p("c1", 8), graph.WithReLU, graph.Window{Same: true}), 2, 2, graph.Window{})
		h = graph.MaxPool(graph.Conv2D(h, p("f2", 5, 5, 8, 16), p("c2", 16), graph.WithReLU, graph.Window{Same: true}), 2, 2, graph.Window{})
		h = graph.Reshape(h, graph.Axis("batch"), graph.N(7*7*16))
		h = graph.Dense(h, p("w3", 784, 128), p("b3", 128), graph.WithReLU)
		return sum(graph.SoftmaxCrossEntropy(graph.Dense(h, p("w4", 128, 10), p("b4", 10), graph.Linear), y)), ps
	},
	"lstm64": func(b *graph.Builder, x, y graph.Value) (graph.Value, []graph.Value) {
		var ps []graph.Value
		p := func(name string, shape ...int) graph.Value {
			v := b.Variable(name, graph.F32, shape, graph.GlorotUniform()).Read()
			ps = append(ps, v)
			return v
		}
		wx, wh, c := p("wx", 28, 256), p("wh", 64, 256), p("b", 256)
		zero := graph.BroadcastTo(b.Scalar(graph.F32, 0), graph.Axis("batch"), graph.N(64))
		rows := graph.Transpose(graph.Reshape(x, graph.Axis("batch"), graph.N(28), graph.N(28)), 1, 0, 2)
		last, _ := graph.Scan([]graph.Value{zero, zero}, []graph.Value{rows}, func(s, x []graph.Value) (next, ys []graph.Value) {
			h, cell := graph.LSTMCell(x[0], s[0], s[1], wx, wh, c)
			return []graph.Value{h, cell}, nil
		})
		return sum(graph.SoftmaxCrossEntropy(graph.Dense(last[0], p("w", 64, 10), p("d", 10), graph.Linear), y)), ps
	},
}

func BenchmarkNetwork(b *testing.B) {
	for _, name := range []string{"lenet", "lstm64"} {
		for threads := 1; threads <= runtime.GOMAXPROCS(0); threads++ {
			b.Run(fmt.Sprintf("%s/100/threads=%d", name, threads), func(b *testing.B) { benchmarkNetwork(b, name, threads) })
		}
	}
}

func benchmarkNetwork(b *testing.B, name string, threads int) {
	const batch = 100
	g := graph.NewBuilder()
	x, y := g.Input("x", graph.F32, graph.Axis("batch"), graph.N(784)), g.Input("y", graph.I64, graph.Axis("batch"))
	loss, ps := networks[name](g, x, y)
	all := append([]graph.Value{loss}, grads(loss, ps...)...)
	gr := build(b, g)
	p := compile(b, gr, []graph.Value{x, y}, all, nil, Options{CPU: cpu(b, threads)})
	s := NewState(StateOptions{})
	if err := s.Init(gr); err != nil {
		b.Fatal(err)
	}
	in := tensor.New(graph.F32, batch, 784)
	fillRandom(in, rand.New(rand.NewPCG(1, 2)))
	feeds := []*tensor.Tensor{in, tensor.New(graph.I64, batch)}
	dst, err := p.Run(context.Background(), s, feeds...)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.RunInto(context.Background(), s, feeds, dst, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(batch*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}
