package exec_test

import (
	"context"
	"fmt"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/autodiff"
	"github.com/trivium-ml/trivium/graph/exec"
	"github.com/trivium-ml/trivium/tensor"
)

// A line is fitted to four points. Every step builds its own graph, with as many layers of arithmetic as Go code likes; steps of equal
// structure share one program.
func ExampleLazy() {
	state := exec.NewState(exec.StateOptions{})
	z := exec.NewLazy(state, exec.Options{})
	xs, _ := tensor.Of([]float32{0, 1, 2, 3}, 4)
	ys, _ := tensor.Of([]float32{1, 3, 5, 7}, 4)
	var loss []*tensor.Tensor
	for range 500 {
		z.Reset()
		b := z.Builder()
		x, y := z.Input(xs), z.Input(ys)
		slope, offset := b.Variable("slope", graph.F32, nil, graph.Zeros()), b.Variable("offset", graph.F32, nil, graph.Zeros())
		w, c := slope.Read(), offset.Read()
		l := graph.Mean(graph.Square(graph.Sub(graph.Add(graph.Mul(x, w), c), y)), nil, false)
		g := autodiff.Gradients(l, []graph.Value{w, c}, autodiff.Options{Dense: true})
		rate := b.Scalar(graph.F32, -.1)
		var err error
		loss, err = z.Eval(context.Background(), l, slope.AssignAdd(graph.Mul(rate, g[0].Dense)), offset.AssignAdd(graph.Mul(rate, g[1].Dense)))
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	z.Reset()
	b := z.Builder()
	fit, err := z.Eval(context.Background(), b.Variable("slope", graph.F32, nil, graph.Zeros()).Read(), b.Variable("offset", graph.F32, nil, graph.Zeros()).Read())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("loss %.4f, slope %.3f, offset %.3f, programs compiled: %d\n", tensor.Flat[float32](loss[0])[0], tensor.Flat[float32](fit[0])[0], tensor.Flat[float32](fit[1])[0], z.Stats().Compiled)
	// Output: loss 0.0000, slope 2.000, offset 1.000, programs compiled: 2
}

// A graph is compiled once and run with feeds of any batch size.
func ExampleCompile() {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F32, graph.Axis("batch"), graph.N(2))
	w := b.Variable("w", graph.F32, []int{2, 1}, graph.Zeros())
	y := graph.Sigmoid(graph.MatMul(x, w.Read()))
	g, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := exec.Compile(g, []graph.Value{x}, []graph.Value{y}, nil, exec.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	params, _ := tensor.Of([]float32{1, -1}, 2, 1)
	s := exec.NewState(exec.StateOptions{})
	if err := s.Bind(w, params); err != nil { // the Variable lives in the caller's memory
		fmt.Println(err)
		return
	}
	batch, _ := tensor.Of([]float32{3, 3, 5, 1, 0, 0}, 3, 2)
	out, err := p.Run(context.Background(), s, batch)
	fmt.Printf("%.3f %v\n", tensor.Flat[float32](out[0]), err)
	// Output: [0.500 0.982 0.500] <nil>
}
