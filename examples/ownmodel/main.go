// Command ownmodel is trivium with a data source and two models of its own, a circle by hand and a net by the graph builder:
// ownmodel train net --data rings --rate 0.01 --epochs 20 --workers 2 --processes
package main

import (
	"context"
	"math"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/app"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
)

func main() {
	models := nn.Standard()
	models["circle"] = func(string, trivium.Schema, *tensor.CPU) (trivium.Model, error) {
		l, err := trivium.NewLayout(trivium.Spec{Name: "slope and bias", Shape: []int{2}})
		return circle{l}, err
	}
	models["net"] = func(_ string, _ trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
		b := graph.NewBuilder()
		w1, b1 := b.Variable("w1", graph.F32, []int{2, 16}, graph.GlorotUniform()), b.Variable("b1", graph.F32, []int{16}, graph.Zeros())
		w2 := b.Variable("w2", graph.F32, []int{16, 2}, graph.GlorotUniform())
		z := graph.MatMul(graph.Dense(b.Input("x", graph.F32, graph.Axis("batch"), graph.N(2)), w1.Read(), b1.Read(), graph.WithReLU), w2.Read())
		return nn.FromGraph(cpu, nn.NetSpec{Loss: graph.SoftmaxCrossEntropy(z, b.Input("label", graph.I32, graph.Axis("batch"))), Scores: z, Task: trivium.MultiClass})
	}
	app.Main(app.Options{Models: models, Sources: data.Sources{"rings": rings}})
}

type circle struct{ l *trivium.Layout } // score, the log-odds of class 1 = slope · |x|² + bias. Rows count alike: b.Weights is left out

func (c circle) Layout() *trivium.Layout         { return c.l }
func (c circle) Init(_ uint64, p trivium.Params) { clear(p.Flat) }
func (c circle) Grad(_ context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (loss, weight float64, err error) {
	g.Zero()
	for i := range b.Rows {
		x, y, sign := b.Inputs[0].Values[2*i], b.Inputs[0].Values[2*i+1], float64(2*b.Labels.Class[i]-1)
		z := sign * float64(p.Flat[0]*(x*x+y*y)+p.Flat[1])
		loss += math.Log1p(math.Exp(-z))
		d := float32(-sign / (1 + math.Exp(z)))
		g.Flat[0], g.Flat[1] = g.Flat[0]+d*(x*x+y*y), g.Flat[1]+d
	}
	if ready != nil {
		ready(0)
	}
	return loss, float64(b.Rows), nil
}

func rings(_ context.Context, d trivium.Data) (*data.Splits, error) {
	if err := data.RefuseSettings(d); err != nil { // such as --scale, which would do nothing here
		return nil, err
	}
	b := trivium.Batch{Rows: 2000, Inputs: []trivium.Input{{Name: "x", Shape: []int{2}}}, Labels: trivium.Labels{Kind: trivium.Class, Width: 2}}
	for i := range b.Rows { // one golden angle further each; class 1 lies outside
		x := []float32{float32(math.Cos(float64(i)*2.39996)) * float32(1+i%2), float32(math.Sin(float64(i)*2.39996)) * float32(1+i%2)}
		b.Inputs[0].Values, b.Labels.Class = append(b.Inputs[0].Values, x...), append(b.Labels.Class, int32(i%2))
	}
	labels := trivium.LabelSpec{Kind: trivium.Class, Width: 2, Names: []string{"inner", "outer"}}
	return &data.Splits{Train: data.Memory(trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{2}}}, Labels: labels}, b)}, nil
}
