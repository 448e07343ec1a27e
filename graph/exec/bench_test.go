package exec

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

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

// BenchmarkStepOverKernels reports a step's time over the sum of its kernels' on one thread: the least of many rounds, taken in turn.
func BenchmarkStepOverKernels(b *testing.B) {
	for _, batch := range []int{32, 100, 500} {
		for _, widths := range [][]int{{784, 10}, {784, 100, 10}, {784, 128, 10}, {784, 128, 32, 10}} {
			b.Run(fmt.Sprintf("%v/%d", widths[1:], batch), func(b *testing.B) { stepOverKernels(b, widths, batch) })
		}
	}
}

func stepOverKernels(b *testing.B, widths []int, batch int) {
	m := newMLP(b, graph.F32, widths...)
	s := NewState(StateOptions{})
	if err := s.Init(m.g); err != nil {
		b.Fatal(err)
	}
	feeds := m.data(batch, graph.F32)
	run := []func(){kernelsOf(widths, batch)}
	for threads := 1; threads <= runtime.GOMAXPROCS(0); threads++ {
		p := m.compile(b, Options{CPU: cpu(b, threads)})
		dst, err := p.Run(context.Background(), s, feeds...)
		if err != nil {
			b.Fatal(err)
		}
		run = append(run, func() {
			if err := p.RunInto(context.Background(), s, feeds, dst, nil); err != nil {
				b.Fatal(err)
			}
		})
	}
	least := make([]time.Duration, len(run))
	for b.Loop() {
		for i, f := range run {
			for range 5 {
				begun := time.Now()
				f()
				if took := time.Since(begun); least[i] == 0 || took < least[i] {
					least[i] = took
				}
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(least[0].Nanoseconds())/1000, "µs-kernels")
	for i, t := range least[1:] {
		b.ReportMetric(float64(t.Nanoseconds())/1000, fmt.Sprintf("µs-%dthreads", i+1))
	}
	b.ReportMetric(float64(least[1])/float64(least[0]), "ratio")
	b.ReportMetric(float64(batch)/least[len(least)-1].Seconds(), "samples/s")
}

// kernelsOf is the kernels of a perceptron's step, called one after the other.
func kernelsOf(widths []int, rows int) func() {
	w := &kernel.Workspace[float32]{}
	isa := kernel.Best()
	r := rand.New(rand.NewPCG(1, 2))
	mk := func(n int) []float32 {
		x := tensor.Aligned[float32](n)
		for i := range x {
			x[i] = r.Float32() - .5
		}
		return x
	}
	layers := len(widths) - 1
	hs, ws, bs, dws, dbs, dhs := [][]float32{mk(rows * widths[0])}, [][]float32{}, [][]float32{}, [][]float32{}, [][]float32{}, [][]float32{nil}
	for i := range layers {
		in, out := widths[i], widths[i+1]
		hs, dhs = append(hs, mk(rows*out)), append(dhs, mk(rows*out))
		ws, bs, dws, dbs = append(ws, mk(in*out)), append(bs, mk(out)), append(dws, mk(in*out)), append(dbs, mk(out))
	}
	labels, loss := make([]int32, rows), mk(rows)
	return func() {
		for i := range layers {
			in, out := widths[i], widths[i+1]
			ep := kernel.Epilogue[float32]{Bias: bs[i], Act: kernel.ActReLU}
			if i == layers-1 {
				ep.Act = kernel.ActNone
			}
			kernel.Gemm(isa, false, false, rows, out, in, hs[i], in, ws[i], out, hs[i+1], out, ep, w)
		}
		kernel.SoftmaxCrossEntropy(isa, loss, dhs[layers], hs[layers], labels, nil, widths[layers])
		kernel.Sum(isa, loss)
		for i := layers - 1; i >= 0; i-- {
			in, out := widths[i], widths[i+1]
			kernel.Gemm(isa, true, false, in, out, rows, hs[i], in, dhs[i+1], out, dws[i], out, kernel.Epilogue[float32]{}, w)
			kernel.ColSums(isa, dbs[i], dhs[i+1], rows, out)
			if i > 0 {
				kernel.Gemm(isa, false, true, rows, in, out, dhs[i+1], out, ws[i], out, dhs[i], in, kernel.Epilogue[float32]{}, w)
				kernel.ReLUGrad(isa, dhs[i], dhs[i], hs[i])
			}
		}
	}
}
