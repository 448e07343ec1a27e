package nn_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
)

// A net with Dropout is refused, in the body of a Scan too: a Model is told neither the seed and step of an update, so that each would
// drop the same cells, nor whether it predicts for the training or for a user.
func TestFromGraphRefusesDropout(t *testing.T) {
	for name, drop := range map[string]func(x graph.Value) graph.Value{
		"Dropout": func(x graph.Value) graph.Value { return graph.Dropout(x, 0.5) },
		"Scan": func(x graph.Value) graph.Value {
			_, ys := graph.Scan(nil, []graph.Value{x}, func(_, x []graph.Value) (next, y []graph.Value) {
				return nil, []graph.Value{graph.Dropout(x[0], 0.5)}
			})
			return ys[0]
		},
	} {
		b := graph.NewBuilder()
		scores := drop(b.Input("x", graph.F32, graph.Axis("batch"), graph.N(2)))
		_, err := nn.FromGraph(tensor.NewCPU(1, false), nn.NetSpec{Loss: graph.Sum(scores, []int{1}, false), Scores: scores, Task: trivium.Regression})
		if err == nil || !strings.Contains(err.Error(), "nn: Dropout (Dropout) draws random numbers") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFromGraphTakesAnyGather: a wide table may be read at numbers of any type and shape, be frozen, or not be part of the loss at all; only
// of some of these can a batch's gradient name the rows.
func TestFromGraphTakesAnyGather(t *testing.T) {
	const rows = 20_000
	ids := [][]float32{{3, 7}, {19_999, 3}, {3, 3}}
	first := func(x graph.Value) graph.Value {
		return graph.Reshape(graph.Slice(x, graph.Range{}, graph.Range{Stop: 1}), x.Shape()[0])
	}
	for name, c := range map[string]struct {
		scores func(b *graph.Builder, table *graph.Variable, x graph.Value) graph.Value
		want   map[int]float32 // of the gradient, the rows that are not 0
	}{
		"one a row": {func(_ *graph.Builder, table *graph.Variable, x graph.Value) graph.Value {
			return graph.Gather(table.Read(), graph.Cast(first(x), graph.I32))
		}, map[int]float32{3: 2, 19_999: 1}},
		"two a row": {func(_ *graph.Builder, table *graph.Variable, x graph.Value) graph.Value {
			return graph.Sum(graph.Gather(table.Read(), graph.Cast(x, graph.I32)), []int{1}, false)
		}, map[int]float32{3: 4, 7: 1, 19_999: 1}},
		"i64": {func(_ *graph.Builder, table *graph.Variable, x graph.Value) graph.Value {
			return graph.Gather(table.Read(), graph.Cast(first(x), graph.I64))
		}, map[int]float32{3: 2, 19_999: 1}},
		"the same for all": {func(b *graph.Builder, table *graph.Variable, x graph.Value) graph.Value {
			same := graph.Sum(graph.Gather(table.Read(), graph.ConstOf(b, []int32{5, 6}, 2)), nil, false)
			return graph.BroadcastTo(same, x.Shape()[0], graph.N(1))
		}, map[int]float32{5: 3, 6: 3}},
		"frozen": {func(_ *graph.Builder, table *graph.Variable, x graph.Value) graph.Value {
			table.Trainable = false
			return graph.Gather(table.Read(), graph.Cast(first(x), graph.I32))
		}, nil},
		"not learnt": {func(_ *graph.Builder, table *graph.Variable, x graph.Value) graph.Value {
			return graph.StopGradient(graph.Gather(table.Read(), graph.Cast(first(x), graph.I32)))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := graph.NewBuilder()
			x := b.Input("x", graph.F32, graph.Axis("batch"), graph.N(2))
			scores := c.scores(b, b.Variable("table", graph.F32, []int{rows, 1}, graph.Constant(1)), x)
			m, err := nn.FromGraph(tensor.NewCPU(1, false), nn.NetSpec{Loss: graph.Reshape(scores, x.Shape()[0]), Scores: scores, Task: trivium.Regression})
			if err != nil {
				t.Fatal(err)
			}
			p := trivium.NewParams(m.Layout())
			m.Init(1, p)
			batch := trivium.Batch{Rows: len(ids), Inputs: []trivium.Input{{Name: "x", Shape: []int{2}, Values: slices.Concat(ids...)}}}
			g, lossSum, _ := grad(t, m, p, batch)
			if want := loss(t, m, p, batch); lossSum != want || want == 0 {
				t.Errorf("the loss is %v, and of the scores %v", lossSum, want)
			}
			for r, have := range g.Flat {
				if have != c.want[r] {
					t.Errorf("row %d of the gradient is %v, want %v", r, have, c.want[r])
				}
			}
			done := 0
			if _, _, err := m.Grad(context.Background(), p, batch, g, func(int) { done++ }); err != nil || done != 1 {
				t.Errorf("ready was called %d times for one tensor (%v)", done, err)
			}
		})
	}
}

func ExampleFromGraph() {
	b := graph.NewBuilder()
	batch := graph.Axis("batch")
	x, label := b.Input("x", graph.F32, batch, graph.N(2)), b.Input("label", graph.F32, batch, graph.N(1))
	w := b.Variable("w", graph.F32, []int{2, 1}, graph.Constant(1)).Read()
	scores := graph.MatMul(x, w)
	loss := graph.Sum(graph.Square(graph.Sub(scores, label)), []int{1}, false)
	m, err := nn.FromGraph(tensor.NewCPU(1, false), nn.NetSpec{Loss: loss, Scores: scores, Task: trivium.Regression})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, g := trivium.NewParams(m.Layout()), trivium.NewGradient(m.Layout())
	m.Init(1, p)
	lossSum, weightSum, err := m.Grad(context.Background(), p, trivium.Batch{
		Rows:   2,
		Inputs: []trivium.Input{{Name: "x", Shape: []int{2}, Values: []float32{1, 2, 3, 4}}},
		Labels: trivium.Labels{Kind: trivium.Real, Width: 1, Real: []float32{3, 5}},
	}, g, nil)
	fmt.Println(lossSum, weightSum, g.Flat, err)
	// Output: 4 2 [12 16] <nil>
}

// TestFromGraphTakesATableOfAnyRank: the rows of a wide table may be numbers, vectors or matrices.
func TestFromGraphTakesATableOfAnyRank(t *testing.T) {
	const rows = 20_000
	want := map[int]float32{3: 2, 19_999: 1} // how often each row is read
	for _, row := range [][]int{{}, {2}, {2, 3}} {
		cells := 1
		for _, n := range row {
			cells *= n
		}
		b := graph.NewBuilder()
		x := b.Input("x", graph.F32, graph.Axis("batch"), graph.N(1))
		batch := x.Shape()[0]
		table := b.Variable("table", graph.F32, append([]int{rows}, row...), graph.Constant(1))
		read := graph.Gather(table.Read(), graph.Cast(graph.Reshape(x, batch), graph.I32))
		scores := graph.Sum(graph.Reshape(read, batch, graph.N(cells)), []int{1}, true)
		m, err := nn.FromGraph(tensor.NewCPU(1, false), nn.NetSpec{Loss: graph.Reshape(scores, batch), Scores: scores, Task: trivium.Regression})
		if err != nil {
			t.Fatal(err)
		}
		if !m.Layout().Spec(0).RowSparse {
			t.Errorf("rows of shape %v: the gradient names no rows", row)
		}
		p := trivium.NewParams(m.Layout())
		m.Init(1, p)
		g, _, _ := grad(t, m, p, trivium.Batch{Rows: 3, Inputs: []trivium.Input{{Name: "x", Shape: []int{1}, Values: []float32{3, 19_999, 3}}}})
		for i, have := range g.Flat {
			if have != want[i/cells] {
				t.Fatalf("rows of shape %v: cell %d of the gradient is %v, want %v", row, i, have, want[i/cells])
			}
		}
	}
}

func TestFromGraphWantsALossOfTheScores(t *testing.T) {
	b := graph.NewBuilder()
	batch := graph.Axis("batch")
	logits := graph.MatMul(b.Input("x", graph.F32, batch, graph.N(2)), b.Variable("w", graph.F32, []int{2, 3}, graph.Zeros()).Read())
	loss := graph.SoftmaxCrossEntropy(logits, b.Input("label", graph.I32, batch))
	_, err := nn.FromGraph(tensor.NewCPU(1, false), nn.NetSpec{Loss: loss, Scores: graph.Softmax(logits), Task: trivium.MultiClass})
	if err == nil || !strings.Contains(err.Error(), "is computed from its Scores") {
		t.Error(err)
	}
}

// TestFromGraphWantsOneScoreOfTwoClasses: metrics and predictions read the first score of a binary model as the log-odds of class 1, which of
// two logits is that of the other class.
func TestFromGraphWantsOneScoreOfTwoClasses(t *testing.T) {
	for _, width := range []int{1, 2} {
		b := graph.NewBuilder()
		batch := graph.Axis("batch")
		scores := graph.MatMul(b.Input("x", graph.F32, batch, graph.N(3)), b.Variable("w", graph.F32, []int{3, width}, graph.Zeros()).Read())
		loss := graph.SigmoidCrossEntropy(scores, b.Input("label", graph.F32, batch, graph.N(width)))
		_, err := nn.FromGraph(tensor.NewCPU(1, false), nn.NetSpec{Loss: loss, Scores: scores, Task: trivium.Binary})
		if refused := err != nil && strings.Contains(err.Error(), "one a row, the log-odds of class 1 or a margin; found f32[batch,2]"); refused != (width == 2) || !refused && err != nil {
			t.Errorf("%d scores a row: %v", width, err)
		}
	}
}

// TestMargins: a net's scores of two classes may be margins, and its outputs say so; those of another task are refused.
func TestMargins(t *testing.T) {
	for _, task := range []trivium.Task{trivium.Binary, trivium.Regression} {
		b := graph.NewBuilder()
		batch := graph.Axis("batch")
		scores := graph.MatMul(b.Input("x", graph.F32, batch, graph.N(3)), b.Variable("w", graph.F32, []int{3, 1}, graph.Zeros()).Read())
		loss := graph.Reshape(graph.Mul(scores, scores), batch)
		net, err := nn.FromGraph(tensor.NewCPU(1, false), nn.NetSpec{Loss: loss, Scores: scores, Task: task, Margin: true})
		switch {
		case task == trivium.Binary && (err != nil || !net.Outputs().Margin):
			t.Errorf("%v: %v", task, err)
		case task != trivium.Binary && (err == nil || !strings.Contains(err.Error(), "margins are the scores of a net of task binary, this one is of regression")):
			t.Errorf("%v: %v", task, err)
		}
	}
}

// TestInputsOfANet: inputs that cannot be fed are refused once, with what they could be.
func TestInputsOfANet(t *testing.T) {
	for _, c := range []struct {
		name string
		dt   graph.DType
		want string
	}{
		{"label", graph.I64, `nn: input "label" is i64[batch], want i32 for classes or f32 for real labels`},
		{"weight", graph.F32, `nn: the graph of a net has no input "weight" of its own: a row's loss is multiplied by its weight afterwards`},
	} {
		b := graph.NewBuilder()
		batch := graph.Axis("batch")
		other := b.Input(c.name, c.dt, batch)
		scores := graph.MatMul(b.Input("x", graph.F32, batch, graph.N(3)), b.Variable("w", graph.F32, []int{3, 1}, graph.Zeros()).Read())
		loss := graph.Mul(graph.Reshape(scores, batch), graph.Cast(other, graph.F32))
		if _, err := nn.FromGraph(tensor.NewCPU(1, false), nn.NetSpec{Loss: loss, Scores: scores, Task: trivium.Regression}); err == nil || err.Error() != c.want {
			t.Errorf("%s of %v: %v, want %s", c.name, c.dt, err, c.want)
		}
	}
}

// TestFits: what a net cannot be fed is said of the schema, before there are rows.
func TestFits(t *testing.T) {
	b := graph.NewBuilder()
	batch := graph.Axis("batch")
	logits := graph.MatMul(b.Input("x", graph.F32, batch, graph.N(2)), b.Variable("w", graph.F32, []int{2, 3}, graph.Zeros()).Read())
	loss := graph.SoftmaxCrossEntropy(logits, b.Input("label", graph.I32, batch))
	net, err := nn.FromGraph(tensor.NewCPU(1, false), nn.NetSpec{Loss: loss, Scores: logits, Task: trivium.MultiClass})
	if err != nil {
		t.Fatal(err)
	}
	classes := func(n int) trivium.LabelSpec { return trivium.LabelSpec{Kind: trivium.Class, Width: n} }
	dense := trivium.InputSpec{Name: "x", Shape: []int{2}}
	for _, c := range []struct {
		input  trivium.InputSpec
		labels trivium.LabelSpec
		want   string // empty: it fits
	}{
		{dense, classes(3), ""},
		{dense, classes(2), ""},
		{dense, trivium.LabelSpec{}, ""}, // to predict
		{trivium.InputSpec{Name: "x", Shape: []int{2, 1}}, classes(3), ""},
		{dense, classes(4), "the data has 4 classes, and the net tells 3 apart"},
		{dense, trivium.LabelSpec{Kind: trivium.Real, Width: 1}, "the net wants class labels, and the data has real labels"},
		{trivium.InputSpec{Name: "x", Shape: []int{5}}, classes(3), `input "x": the net wants 2 values a row, and the data has 5`},
		{trivium.InputSpec{Name: "x", Form: trivium.CSR, Shape: []int{2}}, classes(3), `input "x": the data has csr rows`},
		{trivium.InputSpec{Name: "y", Shape: []int{2}}, classes(3), `the net wants an input "x", which the data does not have`},
	} {
		err := net.Fits(trivium.Schema{Inputs: []trivium.InputSpec{c.input}, Labels: c.labels})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v, %+v: %v, want %q", c.input, c.labels, err, c.want)
		}
	}
}

// TestOwnMistakes: what a program of one's own can get wrong about its models is an error, and no panic in the middle of a command.
func TestOwnMistakes(t *testing.T) {
	for want, build := range map[string]nn.Builder{
		`nn: model "mine", of this program's own, has no builder`: nil,
		`nn: model "mine": its builder returned none`: func(string, trivium.Schema, *tensor.CPU) (trivium.Model, error) {
			return nil, nil
		},
		`nn: model "mine": nn: the graph of a net has no Variables: there is nothing to train`: func(_ string, _ trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
			b := graph.NewBuilder()
			scores := b.Input("x", graph.F32, graph.Axis("batch"), graph.N(1))
			return nn.FromGraph(cpu, nn.NetSpec{Loss: graph.Sum(scores, []int{1}, false), Scores: scores, Task: trivium.Regression})
		},
	} {
		_, err := nn.Models{"mine": build}.Build("mine", trivium.Schema{}, tensor.NewCPU(1, false))
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestNilCPU: a nil CPU is the caller, as elsewhere.
func TestNilCPU(t *testing.T) {
	for _, s := range samples() {
		var sums [2]float64
		for i, cpu := range []*tensor.CPU{nil, tensor.NewCPU(1, false)} {
			m, err := nn.Standard().Build(s.model, s.schema, cpu)
			if err != nil {
				t.Fatalf("%v: %v", s, err)
			}
			p := trivium.NewParams(m.Layout())
			m.Init(1, p)
			_, sums[i], _ = grad(t, m, p, s.batch)
			sums[i] += loss(t, m, p, s.batch)
		}
		if sums[0] != sums[1] {
			t.Errorf("%v: the losses are %v, want %v", s, sums[0], sums[1])
		}
	}
}
