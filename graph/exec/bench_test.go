package exec

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

func BenchmarkStep(b *testing.B) {
	models := []struct {
		name   string
		widths []int
	}{{"softmax", []int{784, 10}}, {"mlp100", []int{784, 100, 10}}, {"mlp128_32", []int{784, 128, 32, 10}}, {"mlp128", []int{784, 128, 10}}}
	for _, m := range models {
		for _, batch := range []int{32, 100, 500} {
			for threads := 1; threads <= runtime.GOMAXPROCS(0); threads++ {
				b.Run(fmt.Sprintf("%s/%d/threads=%d", m.name, batch, threads), func(b *testing.B) { benchmarkStep(b, m.widths, batch, threads) })
			}
		}
	}
}

func benchmarkStep(b *testing.B, widths []int, batch, threads int) {
	m := newMLP(b, graph.F32, widths...)
	p := m.compile(b, Options{CPU: cpu(b, threads)})
	s := NewState(StateOptions{})
	if err := s.Init(m.g); err != nil {
		b.Fatal(err)
	}
	feeds := m.data(batch, graph.F32)
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
	b.ReportMetric(float64(batch)*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}

// BenchmarkScalarChain is the cost of a node.
func BenchmarkScalarChain(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			const n = 1000
			p, in := scalarChain(b, n, Options{CPU: cpu(b, threads)})
			dst := []*tensor.Tensor{tensor.Scalar[float32](0)}
			b.ReportAllocs()
			for b.Loop() {
				if err := p.RunInto(context.Background(), nil, in, dst, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/node")
		})
	}
}

func scalarChain(t testing.TB, n int, o Options) (*Program, []*tensor.Tensor) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F32)
	v, w := x, x
	for i := range n {
		if i%2 == 0 {
			v, w = graph.Add(v, w), v
		} else {
			v, w = graph.Sub(v, w), v
		}
	}
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compile(g, []graph.Value{x}, []graph.Value{v}, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	return p, []*tensor.Tensor{tensor.Scalar[float32](1)}
}

// BenchmarkKernels is the kernels of a perceptron's step, called one after the other: what a step is compared with.
func BenchmarkKernels(b *testing.B) {
	const in, hid, out, rows = 784, 128, 10, 32
	var w kernel.Workspace[float32]
	isa := kernel.Best()
	mk := func(n int) []float32 { return tensor.Aligned[float32](n) }
	x, w0, b0, h, w1, b1, z, loss, dz := mk(rows*in), mk(in*hid), mk(hid), mk(rows*hid), mk(hid*out), mk(out), mk(rows*out), mk(rows), mk(rows*out)
	dw1, db1, dh, dw0, db0 := mk(hid*out), mk(out), mk(rows*hid), mk(in*hid), mk(hid)
	labels := make([]int32, rows)
	for b.Loop() {
		kernel.Gemm(isa, false, false, rows, hid, in, x, in, w0, hid, h, hid, kernel.Epilogue[float32]{Bias: b0, Act: kernel.ActReLU}, &w)
		kernel.Gemm(isa, false, false, rows, out, hid, h, hid, w1, out, z, out, kernel.Epilogue[float32]{Bias: b1}, &w)
		kernel.SoftmaxCrossEntropy(isa, loss, dz, z, labels, nil, out)
		kernel.Gemm(isa, true, false, hid, out, rows, h, hid, dz, out, dw1, out, kernel.Epilogue[float32]{}, &w)
		kernel.ColSums(isa, db1, dz, rows, out)
		kernel.Gemm(isa, false, true, rows, hid, out, dz, out, w1, out, dh, hid, kernel.Epilogue[float32]{}, &w)
		kernel.ReLUGrad(isa, dh, dh, h)
		kernel.Gemm(isa, true, false, in, hid, rows, x, in, dh, hid, dw0, hid, kernel.Epilogue[float32]{}, &w)
		kernel.ColSums(isa, db0, dh, rows, hid)
	}
}
