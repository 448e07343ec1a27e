package server_test

import (
	"context"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train/server"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestRowsOfOtherIds: rows of a table that are read by the labels are not taken for the columns of an input that is as wide, nor the columns of one
// input for those of another: each step computes with what the servers have.
func TestRowsOfOtherIds(t *testing.T) {
	const columns, others, k, rows = 1 << 14, 1<<14 + 100, 4, 100
	open := func(context.Context, trivium.Data) (*data.Splits, error) {
		schema := trivium.Schema{
			Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.CSR, Shape: []int{columns}}, {Name: "z.y", Form: trivium.CSR, Shape: []int{others}}},
			Labels: trivium.LabelSpec{Kind: trivium.Class, Width: columns},
		}
		part := func(n int) data.Dataset {
			x := trivium.Input{Name: "x", Form: trivium.CSR, Shape: []int{columns}, Ptr: []int64{0}}
			z := trivium.Input{Name: "z.y", Form: trivium.CSR, Shape: []int{others}, Ptr: []int64{0}}
			b := trivium.Batch{Rows: n, Labels: trivium.Labels{Kind: trivium.Class, Width: columns}}
			for r := range n {
				x.Index, x.Values = append(x.Index, int32(r%50), int32(100+r%30)), append(x.Values, 1, 1)
				z.Index, z.Values = append(z.Index, others-1-int32(r%7)), append(z.Values, 2)
				x.Ptr, z.Ptr = append(x.Ptr, int64(len(x.Index))), append(z.Ptr, int64(len(z.Index)))
				b.Labels.Class = append(b.Labels.Class, int32(8000+r%20))
			}
			b.Inputs = []trivium.Input{x, z}
			return data.Memory(schema, b)
		}
		return &data.Splits{Train: part(rows), Test: part(50), Checksum: "rows of other ids"}, nil
	}
	build := func(_ string, _ trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
		b := graph.NewBuilder()
		batch := graph.Axis("batch")
		product := func(input, table string, width int) graph.Value {
			entries := graph.Axis(input + " entries")
			indptr, indices := b.Input(input+".indptr", graph.I64, batch.Plus(1)), b.Input(input+".indices", graph.I32, entries)
			w := b.Variable(table, graph.F32, []int{width, k}, graph.Constant(0.5))
			return graph.SparseMatMul(indptr, indices, b.Input(input+".values", graph.F32, entries), w.Read())
		}
		hidden := graph.Add(product("x", "by x", columns), product("z.y", "by z", others))
		up := b.Variable("up", graph.F32, []int{k, columns}, graph.GlorotUniform())
		label := b.Input("label", graph.I32, batch)
		doubt := b.Variable("by label", graph.F32, []int{columns, 1}, graph.Constant(0.1)) // of each class: loss·e^-doubt + doubt
		scores := graph.MatMul(hidden, up.Read())
		of := graph.Sum(graph.Gather(doubt.Read(), label), []int{1}, false)
		loss := graph.Add(graph.Mul(graph.SoftmaxCrossEntropy(scores, label), graph.Exp(graph.Neg(of))), of)
		return nn.FromGraph(cpu, nn.NetSpec{Loss: loss, Scores: scores, Task: trivium.MultiClass})
	}
	env := traintest.Env(t, 1, true)
	env.Models, env.Sources = nn.Models{"mine": build}, data.Sources{"mine": open}
	j := job()
	j.Model, j.Data, j.Batch, j.Epochs, j.Metrics = "mine", trivium.Data{Source: "mine"}, 20, 2, []string{"accuracy"}
	j.Optimizer = trivium.OptimizerSpec{Name: "sgd", Rate: 0.01}
	want := alone(t, env, j)
	l := want.Params.Layout
	for name, columns := range map[string]string{"by x": "x", "by z": "z.y", "by label": ""} {
		if s := l.Spec(l.Index(name)); !s.RowSparse || s.Columns != columns {
			t.Errorf("%s is row-sparse: %t, by the columns of %q, want those of %q", name, s.RowSparse, s.Columns, columns)
		}
	}
	for _, mode := range []ps.Mode{ps.SSP, ps.BSP, ps.ESSP} {
		if testing.Short() && mode != ps.SSP {
			break // all in the full run
		}
		got, err := (&crew{env: env, workers: 1, servers: 1, o: server.Options{Mode: mode}}).Train(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		for i := range l.Tensors() {
			if !slices.Equal(got.Params.Tensor(i), want.Params.Tensor(i)) {
				t.Errorf("%v: %s is not what one process makes of it", mode, l.Spec(i).Name)
			}
		}
	}
}

// unnamed is a model that does not say which rows a batch reads.
type unnamed struct {
	trivium.Model
	l *trivium.Layout
}

func (m *unnamed) Layout() *trivium.Layout { return m.l }

func (m *unnamed) Descend(p trivium.Params, b trivium.Batch, rate float32) (lossSum, weightSum float64, err error) {
	return m.Model.(interface {
		Descend(p trivium.Params, b trivium.Batch, rate float32) (lossSum, weightSum float64, err error)
	}).Descend(p, b, rate)
}

// TestRowsUnnamed: where only the model knows the rows of a batch, all are read, and all travel of which it does not say that they changed.
func TestRowsUnnamed(t *testing.T) {
	env := traintest.Env(t, 1, true)
	env.Models = nn.Models{"mine": func(_ string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
		m, err := nn.Logistic("", s, cpu)
		if err != nil {
			return nil, err
		}
		specs := []trivium.Spec{m.Layout().Spec(0), m.Layout().Spec(1)}
		if specs[0].Columns != s.Inputs[0].Name || !specs[0].RowSparse {
			t.Errorf("the layout is %+v", specs)
		}
		specs[0].Columns = ""
		l, err := trivium.NewLayout(specs...)
		return &unnamed{m, l}, err
	}}
	j := job()
	j.Model, j.Data = "mine", trivium.Data{Source: "wide", Rows: 300, Train: "0:240", Test: "240:"}
	j.Batch, j.Epochs, j.Optimizer = 1, 1, trivium.OptimizerSpec{Name: "sgd", Rate: 0.05}
	want := alone(t, env, j)
	for _, o := range []server.Options{{}, {OptimizerAt: server.AtWorker, Clocks: 10}} {
		got, err := (&crew{env: env, workers: 1, servers: 1, o: o}).Train(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range got.Params.Flat {
			if d := x - want.Params.Flat[i]; d > 1e-5 || d < -1e-5 {
				t.Fatalf("%+v: cell %d is %v, one process has %v", o, i, x, want.Params.Flat[i])
			}
		}
	}
}
