package autodiff_test

import (
	"fmt"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/autodiff"
	"github.com/trivium-ml/trivium/graph/graphtest"
)

func ExampleGradients() {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F64, graph.Axis("n"))
	y := graph.Sum(graph.Mul(x, graph.Square(x)), nil, false)
	first := autodiff.Gradients(y, []graph.Value{x}, autodiff.Options{})[0].Dense
	second := autodiff.Gradients(graph.Sum(first, nil, false), []graph.Value{x}, autodiff.Options{})[0].Dense
	g, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := graphtest.Eval(g, graphtest.Feeds{x: graphtest.Of([]float64{1, 2}, 2)}, first, second)
	fmt.Println(out[0].Data, out[1].Data, err)
	// Output: [3 12] [6 12] <nil>
}
