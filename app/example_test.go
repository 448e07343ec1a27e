package app_test

import (
	"context"
	"fmt"
	"os"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/app"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
)

// A model by hand and a data source of the program's own: here they train by one worker, and by two that add their gradients. A program
// calls Main in place of Run, and has worker processes too.
func ExampleRun() {
	runs, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(runs) }()
	own := app.Options{
		Models: nn.Models{"line": func(string, trivium.Schema, *tensor.CPU) (trivium.Model, error) {
			l, err := trivium.NewLayout(trivium.Spec{Name: "slope"}, trivium.Spec{Name: "offset"})
			return line{l}, err
		}},
		Sources: data.Sources{"points": points},
	}
	run := func(args ...string) {
		app.Run(context.Background(), append(args, "--out", runs), os.Stdout, os.Stdout, own)
	}
	learn := []string{"train", "line", "--data", "points", "--optimizer", "sgd", "--rate", "0.5", "--batch", "full", "--epochs", "200", "--quiet"}
	run(append(learn, "--name", "one")...)
	run(append(learn, "--name", "two", "--workers", "2")...)
	run("eval", "one")
	run("eval", "two")
	// Output:
	// test: 40 rows
	// test.loss 0.125
	// test.r2 0.8418
	// test.rmse 0.5
	// test: 40 rows
	// test.loss 0.125
	// test.r2 0.8418
	// test.rmse 0.5
}

// A line is y ≈ slope·x + offset, by half the squared error. Its source gives no sample weights; a model for any source multiplies a row's loss and
// gradient by b.Weights, where there are some, and returns their sum.
type line struct{ l *trivium.Layout }

func (m line) Layout() *trivium.Layout         { return m.l }
func (m line) Init(_ uint64, p trivium.Params) { clear(p.Flat) }

func (m line) Grad(_ context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (loss, weight float64, err error) {
	g.Zero()
	for i, x := range b.Inputs[0].Values {
		e := m.at(p, x) - b.Labels.Real[i]
		loss += float64(e*e) / 2
		g.Flat[0], g.Flat[1] = g.Flat[0]+e*x, g.Flat[1]+e
	}
	for i := 0; ready != nil && i < 2; i++ {
		ready(i)
	}
	return loss, float64(b.Rows), nil
}

func (m line) at(p trivium.Params, x float32) float32 { return p.Flat[0]*x + p.Flat[1] }

// With the next three a line is a Predictor, which eval and apply ask for.

func (m line) Outputs() trivium.Outputs { return trivium.Outputs{Task: trivium.Regression, Width: 1} }

func (m line) Predict(_ context.Context, p trivium.Params, b trivium.Batch, scores []float32) error {
	for i, x := range b.Inputs[0].Values {
		scores[i] = m.at(p, x)
	}
	return nil
}

func (m line) Loss(b trivium.Batch, scores []float32) (loss, weight float64, err error) {
	for i, y := range b.Labels.Real {
		e := float64(scores[i] - y)
		loss += e * e / 2
	}
	return loss, float64(b.Rows), nil
}

// points are rows of 2x + 1, half too low or half too high.
func points(_ context.Context, d trivium.Data) (*data.Splits, error) {
	if err := data.RefuseSettings(d); err != nil { // such as --scale, which would do nothing here
		return nil, err
	}
	b := trivium.Batch{Rows: 200, Inputs: []trivium.Input{{Name: "x", Shape: []int{1}}}, Labels: trivium.Labels{Kind: trivium.Real, Width: 1}}
	for i := range b.Rows {
		x, off := float32(i%20)/10, float32(i/20%2)-0.5
		b.Inputs[0].Values, b.Labels.Real = append(b.Inputs[0].Values, x), append(b.Labels.Real, 2*x+1+off)
	}
	schema := trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{1}}}, Labels: trivium.LabelSpec{Kind: trivium.Real, Width: 1}}
	return &data.Splits{Train: data.Memory(schema, b)}, nil
}
