package exec

import (
	"context"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// Evaluate compiles and runs a graph once, on the caller: for checks and small computations, and what autodiff.CheckNumeric asks for. Whoever
// runs a graph often compiles it once.
func Evaluate(g *graph.Graph, feeds map[graph.Value]*tensor.Tensor, fetches []graph.Value) ([]*tensor.Tensor, error) {
	var vs []graph.Value
	var ts []*tensor.Tensor
	for v, t := range feeds {
		vs, ts = append(vs, v), append(ts, t)
	}
	p, err := Compile(g, vs, fetches, nil, Options{Plain: true})
	if err != nil {
		return nil, err
	}
	return p.Run(context.Background(), nil, ts...)
}
