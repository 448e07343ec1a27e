package nn_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/graphtest"
	"github.com/trivium-ml/trivium/graph/onnx"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
)

var batchAxis = graph.Axis("batch")

// matrix is a Variable of a net, read.
func matrix(b *graph.Builder, name string, shape ...int) graph.Value {
	return b.Variable(name, graph.F32, shape, graph.GlorotUniform()).Read()
}

// csr declares the parts of sparse input "x".
func csr(b *graph.Builder) (indptr, indices, values graph.Value) {
	entries := graph.Axis("entries")
	return b.Input("x.indptr", graph.I64, batchAxis.Plus(1)), b.Input("x.indices", graph.I32, entries), b.Input("x.values", graph.F32, entries)
}

// netOf makes a net of classes of what scores draws.
func netOf(t *testing.T, scores func(b *graph.Builder) graph.Value) (*nn.Net, error) {
	t.Helper()
	cpu := tensor.NewCPU(1, true)
	t.Cleanup(cpu.Close)
	b := graph.NewBuilder()
	s := scores(b)
	loss := graph.SoftmaxCrossEntropy(s, b.Input("label", graph.I32, batchAxis))
	return nn.FromGraph(cpu, nn.NetSpec{Loss: loss, Scores: s, Task: trivium.MultiClass})
}

// denseInput declares the rows of in as export does, and says what they are in a batch of so many rows.
func denseInput(b *graph.Builder, in trivium.Input, rows int) (graph.Value, graphtest.Array) {
	a := graphtest.Zeros(append([]int{rows}, in.Shape...)...)
	cols := in.RowLen()
	for i := range in.Values {
		if in.Form == trivium.Dense {
			a.Data[i] = float64(in.Values[i])
		} else {
			row, _ := slices.BinarySearch(in.Ptr, int64(i+1))
			a.Data[(row-1)*cols+int(in.Index[i])] = float64(in.Values[i])
		}
	}
	return b.Input(in.Name, graph.F32, append(graph.Shape{batchAxis}, graph.Of(in.Shape...)...)...), a
}

// TestScoresAreThoseOfPredict: what a net of a program's own draws for export computes from dense rows of the data's shape the scores that
// the net predicts, from the parameters at hand, for any number of rows, and can be written as ONNX.
func TestScoresAreThoseOfPredict(t *testing.T) {
	for name, c := range map[string]struct {
		in     trivium.InputSpec
		scores func(b *graph.Builder) graph.Value
	}{
		"perceptron": {trivium.InputSpec{Name: "x", Shape: []int{3, 4}}, func(b *graph.Builder) graph.Value {
			x := b.Input("x", graph.F32, batchAxis, graph.N(12))
			b.With(graph.Scope{Name: "hidden"}, func() {
				x = graph.Dense(x, matrix(b, "w", 12, 5), matrix(b, "b", 5), graph.WithTanh)
			})
			w := b.Variable("w", graph.F32, []int{5, 3}, graph.GlorotUniform())
			return graph.Add(graph.MatMul(graph.Exp(x), w.Read()), graph.MatMul(graph.Square(x), w.Read()))
		}},
		"embedding": {trivium.InputSpec{Name: "x", Shape: []int{2}}, func(b *graph.Builder) graph.Value {
			x := b.Input("x", graph.F32, batchAxis, graph.N(2))
			number := graph.Cast(graph.Square(graph.Mul(x, b.Scalar(graph.F32, 2))), graph.I32) // of [−1, 1): 0 to 4
			rows := graph.Gather(matrix(b, "table", 6, 4), number)
			return graph.MatMul(graph.Tanh(graph.Reshape(rows, batchAxis, graph.N(8))), matrix(b, "w", 8, 3))
		}},
		"sparse": {trivium.InputSpec{Name: "x", Form: trivium.CSR, Shape: []int{9}}, func(b *graph.Builder) graph.Value {
			indptr, indices, values := csr(b)
			v := matrix(b, "v", 12, 3) // for more columns than the data has
			sums := graph.SparseMatMul(indptr, indices, values, v)
			return graph.Add(graph.Square(sums), graph.SparseMatMul(indptr, indices, graph.Square(values), graph.Square(v)))
		}},
		"recurrent": {trivium.InputSpec{Name: "x", Shape: []int{5, 3}}, func(b *graph.Builder) graph.Value {
			x := b.Input("x", graph.F32, batchAxis, graph.N(5), graph.N(3))
			steps := graph.Transpose(x, 1, 0, 2)
			zero := graph.BroadcastTo(b.Scalar(graph.F32, 0), batchAxis, graph.N(4))
			wx, wh, bias := matrix(b, "wx", 3, 16), matrix(b, "wh", 4, 16), matrix(b, "b", 16)
			start := []graph.Value{zero, zero}
			last, hs := graph.Scan(start, []graph.Value{steps}, func(c, x []graph.Value) (next, y []graph.Value) {
				h, cell := graph.LSTMCell(x[0], c[0], c[1], wx, wh, bias)
				return []graph.Value{h, cell}, []graph.Value{h}
			})
			return graph.Concat(1, last[1], graph.Mean(hs[0], []int{0}, false))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := netOf(t, c.scores)
			if err != nil {
				t.Fatal(err)
			}
			p := trivium.NewParams(m.Layout())
			for i := range p.Flat {
				p.Flat[i] = draw.Unit(3, draw.Stream("scores test"), uint64(i))
			}
			b := graph.NewBuilder()
			s := trivium.Schema{Inputs: []trivium.InputSpec{c.in}, Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 3}}
			whole := newBatch(s, testRows)
			x, _ := denseInput(b, whole.Inputs[0], testRows)
			scores, err := m.Scores(b, map[string]graph.Value{"x": x})
			if err != nil {
				t.Fatal(err)
			}
			g, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			machine, values := graphtest.NewMachine(), map[string]*tensor.Tensor{}
			for i := range p.Layout.Tensors() {
				spec := p.Layout.Spec(i)
				if values[spec.Name], err = tensor.Of(p.Tensor(i), spec.Shape...); err != nil {
					t.Fatal(err)
				}
				machine.Vars[spec.Name] = graphtest.FromTensor(values[spec.Name])
			}
			for _, rows := range []int{1, testRows} {
				batch := newBatch(s, rows)
				want := make([]float32, rows*m.Outputs().Width)
				if err := m.Predict(t.Context(), p, batch, want); err != nil {
					t.Fatal(err)
				}
				_, fed := denseInput(graph.NewBuilder(), batch.Inputs[0], rows)
				have, err := machine.Run(g, graphtest.Feeds{x: fed}, scores)
				if err != nil {
					t.Fatal(err)
				}
				if len(have[0].Data) != len(want) || slices.Max(want) == slices.Min(want) {
					t.Fatalf("%d rows: %d scores, want %d that differ", rows, len(have[0].Data), len(want))
				}
				for i, w := range want {
					if h := have[0].Data[i]; !(math.Abs(h-float64(w)) <= 1e-4*max(1, math.Abs(h))) {
						t.Fatalf("%d rows: score %d is %v, and the net predicts %v", rows, i, h, w)
					}
				}
			}
			var file bytes.Buffer
			if err := onnx.Write(&file, g, onnx.Options{Outputs: []graph.Value{scores}, Names: []string{"scores"}, Variables: values}); err != nil {
				t.Error(err)
			}
			for i := range p.Layout.Tensors() {
				var raw []byte
				for _, v := range p.Tensor(i) {
					raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
				}
				if !bytes.Contains(file.Bytes(), raw) {
					t.Errorf("the file does not hold %q", p.Layout.Spec(i).Name)
				}
			}
		})
	}
}

// TestScoresRefuses: a graph for export has no effects, and no entries of sparse rows; what stands in its way is named.
func TestScoresRefuses(t *testing.T) {
	dense := func(b *graph.Builder) graph.Value {
		return graph.MatMul(b.Input("x", graph.F32, batchAxis, graph.N(5)), matrix(b, "w", 5, 3))
	}
	sparse := func(change func(values graph.Value) graph.Value) func(b *graph.Builder) graph.Value {
		return func(b *graph.Builder) graph.Value {
			indptr, indices, values := csr(b)
			return graph.SparseMatMul(indptr, indices, change(values), matrix(b, "w", 5, 3))
		}
	}
	for name, c := range map[string]struct {
		scores func(b *graph.Builder) graph.Value
		input  trivium.Input // of the data
		want   string
	}{
		"effect": {func(b *graph.Builder) (scores graph.Value) {
			seen := b.Variable("seen", graph.F32, []int{1}, graph.Zeros())
			counted := seen.AssignAdd(graph.ConstOf(b, []float32{1}, 1))
			b.With(graph.Scope{Control: []graph.Value{counted}}, func() { scores = dense(b) })
			return scores
		}, trivium.Input{Name: "x", Shape: []int{5}}, "nn: AssignAdd (AssignAdd): the scores depend on its effect (write)"},
		"entries": {
			sparse(graph.Exp),
			trivium.Input{Name: "x", Form: trivium.CSR, Shape: []int{5}},
			`nn: Exp (Exp): it uses the entries (x.values) of sparse input "x"`,
		},
		"other entries": {sparse(func(v graph.Value) graph.Value {
			return graph.BroadcastTo(v.Builder().Scalar(graph.F32, 1), v.Shape()...)
		}), trivium.Input{Name: "x", Form: trivium.CSR, Shape: []int{5}}, "nn: SparseMatMul (SparseMatMul): its operands are not"},
		"columns": {
			sparse(graph.Tanh),
			trivium.Input{Name: "x", Form: trivium.CSR, Shape: []int{6}},
			`nn: SparseMatMul (SparseMatMul): input "x" has 6 columns, and the net weights for 5`,
		},
		"shape":   {dense, trivium.Input{Name: "x", Shape: []int{6}}, "[batch,5] does not hold as many elements as [batch,6]"},
		"another": {dense, trivium.Input{Name: "y", Shape: []int{5}}, `nn: Input (x): the graph has no input "x"`},
	} {
		m, err := netOf(t, c.scores)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b := graph.NewBuilder()
		x, _ := denseInput(b, c.input, 1)
		if _, err := m.Scores(b, map[string]graph.Value{c.input.Name: x}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestFromGraphRefusesScoresOfLabels: nobody has labels who predicts or exports.
func TestFromGraphRefusesScoresOfLabels(t *testing.T) {
	b := graph.NewBuilder()
	label := b.Input("label", graph.F32, batchAxis, graph.N(1))
	scores := graph.MatMul(graph.Concat(1, b.Input("x", graph.F32, batchAxis, graph.N(2)), label), matrix(b, "w", 3, 1))
	loss := graph.Sum(graph.Square(graph.Sub(scores, label)), []int{1}, false)
	_, err := nn.FromGraph(tensor.NewCPU(1, false), nn.NetSpec{Loss: loss, Scores: scores, Task: trivium.Regression})
	if err == nil || !strings.Contains(err.Error(), `depend on its input "label"`) {
		t.Error(err)
	}
}
