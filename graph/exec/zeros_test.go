package exec

import (
	"math"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// TestFedZeros: products with what is fed, mostly zeros, leave those out, and have the bits of products with the same numbers computed, for
// every number of threads. That they are left out shows where they would meet an infinity.
func TestFedZeros(t *testing.T) {
	const rows, in, out = 90, 130, 70
	f32s := func(f func(i int) float64, n int, shape ...int) *tensor.Tensor {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(f(i))
		}
		made, err := tensor.Of(x, shape...)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	images := f32s(func(i int) float64 {
		if i%in == 0 || i*7919%11 > 1 {
			return 0
		}
		return float64(i%251) / 255
	}, rows*in, rows, 10, 13)
	wave := func(i int) float64 { return math.Sin(float64(i)) }
	w, dy, bias := f32s(wave, in*out, in, out), f32s(wave, rows*out, rows, out), f32s(wave, out, out)
	infinite := f32s(func(i int) float64 {
		if i < out { // where all images are zero
			return math.Inf(1)
		}
		return wave(i)
	}, in*out, in, out)
	one := f32s(func(int) float64 { return 1 }, 1, 1)

	b := graph.NewBuilder()
	input := func(name string, t *tensor.Tensor) graph.Value {
		return b.Input(name, graph.F32, graph.Of(t.Shape()...)...)
	}
	x, wv, dv, bv, ov := input("images", images), input("w", w), input("dy", dy), input("bias", bias), input("one", one)
	fed := graph.Reshape(x, graph.N(rows), graph.N(in))
	computed := graph.Mul(fed, ov)
	var fetches []graph.Value
	for _, a := range []graph.Value{fed, computed} {
		fetches = append(fetches, graph.MatMul(a, wv), graph.ReLU(graph.Add(graph.MatMul(a, wv), bv)), graph.MatMulT(a, dv, true, false))
	}
	g := build(t, b)
	for _, threads := range []int{1, 2, 7} {
		p := compile(t, g, []graph.Value{x, wv, dv, bv, ov}, fetches, nil, Options{CPU: cpu(t, threads), Grain: 1})
		got, err := p.Run(ctx, nil, images, w, dy, bias, one)
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"product", "layer", "gradient"} {
			if !slices.Equal(tensor.Flat[float32](got[i]), tensor.Flat[float32](got[3+i])) {
				t.Errorf("%d threads: the %s of fed numbers differs from that of computed ones", threads, name)
			}
		}
		got, err = p.Run(ctx, nil, images, infinite, dy, bias, one)
		if err != nil {
			t.Fatal(err)
		}
		if y := tensor.Flat[float32](got[0]); slices.ContainsFunc(y, func(v float32) bool { return v != v }) {
			t.Errorf("%d threads: a zero met an infinity", threads)
		}
		if y := tensor.Flat[float32](got[3]); y[0] == y[0] {
			t.Errorf("%d threads: of computed numbers a zero and an infinity gave %v, want no number", threads, y[0])
		}
	}
}
