package onnx_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/graphtest"
	"github.com/trivium-ml/trivium/graph/onnx"
	"github.com/trivium-ml/trivium/tensor"
)

// dir is for compare/onnx_check.py, which needs Python: go test ./graph/onnx -dir DIR writes a folder for each model there.
var dir = flag.String("dir", "", "where to write models with inputs and expected outputs")

// model is a graph being built, with what it is fed and its Variables' values.
type model struct {
	b     *graph.Builder
	rng   *rand.Rand
	feeds graphtest.Feeds
	vars  map[string]*tensor.Tensor
	// replaced has, by name, what ONNX is fed instead of some inputs; an empty Array takes an input away.
	replaced map[string]graphtest.Array
}

func (m *model) random(sizes ...int) graphtest.Array {
	a := graphtest.Zeros(sizes...)
	for i := range a.Data {
		a.Data[i] = float64(float32(m.rng.NormFloat64()))
	}
	return a
}

func (m *model) in(name string, s graph.Shape, sizes ...int) graph.Value {
	x := m.b.Input(name, graph.F32, s...)
	m.feeds[x] = m.random(sizes...)
	return x
}

func (m *model) ints(name string, limit int, s graph.Shape, sizes ...int) graph.Value {
	x := m.b.Input(name, graph.I64, s...)
	a := graphtest.Zeros(sizes...)
	for i := range a.Data {
		a.Data[i] = float64(m.rng.IntN(limit))
	}
	m.feeds[x] = a
	return x
}

func (m *model) weight(name string, sizes ...int) graph.Value {
	v := m.b.Variable(name, graph.F32, sizes, graph.GlorotUniform())
	a := m.random(sizes...)
	for i := range a.Data {
		a.Data[i] = float64(float32(a.Data[i] / 3))
	}
	m.vars[name] = a.Tensor(graph.F32)
	return v.Read()
}

var batch = graph.Axis("batch")

// models covers every operation that can be written.
var models = map[string]func(m *model) []graph.Value{
	"mlp": func(m *model) []graph.Value {
		x := m.in("x", graph.Shape{batch, graph.N(6)}, 4, 6)
		h := graph.Dense(x, m.weight("w1", 6, 5), m.weight("b1", 5), graph.WithReLU)
		h = graph.Dropout(graph.Dense(h, m.weight("w2", 5, 4), graph.Value{}, graph.WithTanh), 0.5)
		return []graph.Value{graph.Softmax(graph.Dense(h, m.weight("w3", 4, 3), m.weight("b3", 3), graph.WithSigma)), graph.ArgMax(h, 1, false)}
	},
	"transform": func(m *model) []graph.Value {
		x := m.in("columns", graph.Shape{batch, graph.N(3)}, 5, 3)
		kind := m.ints("kind", 4, graph.Shape{batch}, 5)
		mean, scale := graph.ConstOf(m.b, []float32{1, 2, 3}, 3), graph.ConstOf(m.b, []float32{0.5, 2, 4}, 3)
		known := graph.Where(graph.Less(x, m.b.Scalar(graph.F32, 0)), mean, x)
		row := graph.Concat(1, graph.Div(graph.Sub(known, mean), scale), graph.OneHot(kind, 4, graph.F32))
		return []graph.Value{graph.MatMulT(row, m.weight("w", 2, 7), false, true), graph.Cast(graph.Equal(kind, m.b.Scalar(graph.I64, 1)), graph.I32)}
	},
	"cnn": func(m *model) []graph.Value {
		x := m.in("pixels", graph.Shape{batch, graph.N(64)}, 3, 64)
		h := graph.Reshape(x, batch, graph.N(8), graph.N(8), graph.N(1))
		h = graph.Conv2D(h, m.weight("f1", 5, 5, 1, 4), m.weight("c1", 4), graph.WithReLU, graph.Window{Same: true})
		h = graph.MaxPool(h, 2, 2, graph.Window{})
		h = graph.Conv2D(h, m.weight("f2", 3, 2, 4, 5), graph.Value{}, graph.Linear, graph.Window{Strides: [2]int{2, 1}, Pads: [4]int{1, 0, 0, 1}})
		h = graph.MaxPool(h, 2, 3, graph.Window{Strides: [2]int{1, 1}, Pads: [4]int{0, 1, 1, 0}})
		n := h.Shape()[1].N * h.Shape()[2].N * h.Shape()[3].N
		return []graph.Value{graph.MatMul(graph.Reshape(h, batch, graph.N(-1)), m.weight("w", n, 10))}
	},
	"lstm": func(m *model) []graph.Value {
		x := m.in("x", graph.Shape{batch, graph.N(7), graph.N(3)}, 2, 7, 3)
		steps := graph.Transpose(x, 1, 0, 2)
		zero := graph.BroadcastTo(m.b.Scalar(graph.F32, 0), batch, graph.N(4))
		wx, wh, bias := m.weight("wx", 3, 16), m.weight("wh", 4, 16), m.weight("b", 16)
		last, hs := graph.Scan([]graph.Value{zero, zero}, []graph.Value{steps}, func(c, x []graph.Value) (next, y []graph.Value) {
			h, cell := graph.LSTMCell(x[0], c[0], c[1], wx, wh, bias)
			return []graph.Value{h, cell}, []graph.Value{h}
		})
		return []graph.Value{graph.MatMul(last[0], m.weight("out", 4, 2)), hs[0]}
	},
	"reverse scan": func(m *model) []graph.Value {
		x := m.in("x", graph.Shape{graph.Axis("time"), batch}, 5, 2)
		s := graph.OpenScan([]graph.Value{graph.BroadcastTo(m.b.Scalar(graph.F32, 1), batch)}, []graph.Value{x})
		sum := graph.Add(graph.Mul(s.Carries()[0], m.b.Scalar(graph.F32, 0.5)), s.Xs()[0])
		ones := graph.BroadcastTo(m.b.Scalar(graph.F32, 1), batch)
		last, ys := s.Close([]graph.Value{sum}, []graph.Value{graph.Add(sum, ones), s.Carries()[0]}, true)
		return append(last, ys...)
	},
	"idle scan": func(m *model) []graph.Value { // its body has nodes that nothing needs, of which one is for training alone
		x := m.in("x", graph.Shape{graph.Axis("time"), batch}, 5, 2)
		_, ys := graph.Scan(nil, []graph.Value{x}, func(_, x []graph.Value) (next, ys []graph.Value) {
			graph.ReLUGrad(x[0], x[0])
			graph.Scan(nil, x, func(_, _ []graph.Value) (next, ys []graph.Value) { return nil, nil })
			return nil, []graph.Value{graph.Exp(x[0])}
		})
		return ys
	},
	"sparse": func(m *model) []graph.Value {
		indptr, indices := m.b.Input("x.indptr", graph.I64, batch.Plus(1)), m.b.Input("x.indices", graph.I64, graph.Axis("entries"))
		values := m.b.Input("x.values", graph.F32, graph.Axis("entries"))
		m.feeds[indptr], m.feeds[indices] = graphtest.Of([]float64{0, 2, 2, 5}, 4), graphtest.Of([]float64{0, 3, 1, 2, 4}, 5)
		m.feeds[values] = graphtest.Of([]float64{1, -2, 3, 0.5, 4}, 5)
		m.replaced = map[string]graphtest.Array{
			"x.indptr": {}, "x.indices": {}, "x.values": {},
			"x": graphtest.Of([]float64{1, 0, 0, -2, 0, 0, 0, 0, 0, 0, 0, 3, 0.5, 0, 4}, 3, 5),
		}
		v := m.weight("v", 5, 3)
		first := graph.SparseMatMul(indptr, indices, values, v)
		second := graph.SparseMatMul(indptr, indices, graph.Square(values), graph.Square(v))
		pairs := graph.Mul(m.b.Scalar(graph.F32, 0.5), graph.Sum(graph.Sub(graph.Square(first), second), []int{1}, true))
		ones := graph.BroadcastTo(m.b.Scalar(graph.F32, 1), batch, graph.N(1))
		return []graph.Value{graph.Add(pairs, ones)}
	},
	"the rest": func(m *model) []graph.Value {
		x, z := m.in("x", graph.Shape{batch, graph.N(3), graph.N(2)}, 4, 3, 2), m.in("z", graph.Shape{batch, graph.N(4)}, 4, 4)
		idx, label := m.ints("idx", 3, graph.Shape{graph.N(2), graph.N(2)}, 2, 2), m.ints("label", 4, graph.Shape{batch}, 4)
		positive := graph.Add(graph.Square(x), m.b.Scalar(graph.F32, 0.1))
		table := m.weight("table", 3, 2)
		return []graph.Value{
			graph.Exp(graph.Neg(x)), graph.Log(positive), graph.Sqrt(positive), graph.Sigmoid(graph.Tanh(x)), graph.ReLU(x),
			graph.Max(x, m.b.Scalar(graph.F32, 0.3)), graph.StopGradient(x),
			graph.Sum(x, []int{0, 2}, false), graph.Mean(x, nil, false), graph.ReduceMax(x, []int{-1}, true), graph.ArgMax(x, 2, true),
			graph.SumTo(x, graph.N(3), graph.N(1)), graph.SumTo(x, x.Shape()...), m.b.Size(graph.F32, batch, graph.N(3)),
			graph.Reshape(graph.Transpose(x, 1, 0, 2), graph.N(3), graph.N(2), batch),
			graph.BroadcastTo(graph.Slice(x, graph.Range{Start: -1}), graph.N(2), graph.N(1), graph.N(3), graph.N(2)),
			graph.Slice(x, graph.Range{Start: 1}, graph.Range{Start: 0, Stop: 3, Step: 2}, graph.Range{Start: -1}),
			graph.Gather(table, idx), graph.ScatterAdd(table, idx, graph.Gather(table, idx)),
			graph.MatMulT(z, z, true, false), graph.SoftmaxCrossEntropy(z, label), graph.SigmoidCrossEntropy(z, graph.Sigmoid(z)),
			graph.Cast(graph.Cast(x, graph.I64), graph.F32), graph.Cast(graph.Equal(label, idxAt(m, label)), graph.F32),
			graph.Reshape(graph.Slice(x, graph.Range{Start: 0, Stop: 1}), graph.N(3), graph.N(2)),
			graph.OneHot(graph.Reshape(graph.Slice(idx, graph.Range{Stop: 1}, graph.Range{Start: 1})), 3, graph.F32),
			graph.Cast(graph.Less(graph.Less(z, m.b.Scalar(graph.F32, 0)), graph.Equal(idxAt(m, graph.Reshape(label, batch, graph.N(1))), m.b.Scalar(graph.I64, 1))), graph.I32),
		}
	},
}

func idxAt(m *model, label graph.Value) graph.Value {
	return graph.Cast(graph.Mul(graph.Cast(label, graph.F32), m.b.Scalar(graph.F32, 1)), graph.I64)
}

func build(t *testing.T, name string) (m *model, g *graph.Graph, o onnx.Options) {
	m = &model{b: graph.NewBuilder(), rng: rand.New(rand.NewPCG(5, 6)), feeds: graphtest.Feeds{}, vars: map[string]*tensor.Tensor{}}
	o = onnx.Options{Outputs: models[name](m), Variables: m.vars, Dense: map[string]string{"x.values": "x"}, Metadata: map[string]string{"model": name}}
	for i := range o.Outputs {
		o.Names = append(o.Names, fmt.Sprintf("out%d", i))
	}
	g, err := m.b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return m, g, o
}

// inference evaluates as ONNX is meant to: Dropout keeps everything.
func inference(t *testing.T, m *model, g *graph.Graph, outputs []graph.Value) []graphtest.Array {
	machine := graphtest.NewMachine()
	for name, v := range m.vars {
		machine.Vars[name] = graphtest.FromTensor(v)
	}
	feeds := graphtest.Feeds{}
	for v, a := range m.feeds {
		feeds[v] = a
	}
	for n := range g.Nodes() {
		if n.Op.Name == "Dropout" {
			kept, err := machine.Run(g, feeds, n.Inputs[0])
			if err != nil {
				t.Fatal(err)
			}
			feeds[g.Value(n.ID, 0)] = kept[0]
		}
	}
	out, err := machine.Run(g, feeds, outputs...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestModelsAreWellFormed(t *testing.T) {
	for name := range models {
		t.Run(name, func(t *testing.T) {
			m, g, o := build(t, name)
			var file, again bytes.Buffer
			if err := onnx.Write(&file, g, o); err != nil {
				t.Fatal(err)
			}
			if err := onnx.Write(&again, g, o); err != nil || !bytes.Equal(file.Bytes(), again.Bytes()) {
				t.Fatalf("the same graph gives other bytes: %v", err)
			}
			checkModel(t, file.Bytes(), o.Names)
			expected := inference(t, m, g, o.Outputs)
			if *dir != "" {
				save(t, filepath.Join(*dir, strings.ReplaceAll(name, " ", "_")), m, g, o, file.Bytes(), expected)
			}
		})
	}
}

// TestReshapeOfNothing: ONNX refuses an axis that follows from the others where one of these is 0.
func TestReshapeOfNothing(t *testing.T) {
	b := graph.NewBuilder()
	y := graph.Reshape(b.Input("x", graph.F32, batch, graph.N(0), graph.N(2)), batch, graph.N(0))
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := onnx.Write(&file, g, onnx.Options{Outputs: []graph.Value{y}, Names: []string{"y"}}); err != nil {
		t.Fatal(err)
	}
	checkModel(t, file.Bytes(), []string{"y"})
	if sizes := append(bytes.Repeat([]byte{0xff}, 8), make([]byte, 8)...); bytes.Contains(file.Bytes(), sizes) {
		t.Error("it is reshaped to -1, 0")
	}
}

// TestOperandsThatONNXRefuses: its OneHot takes no scalar, and its Less no bools; ours do.
func TestOperandsThatONNXRefuses(t *testing.T) {
	b := graph.NewBuilder()
	i, x := b.Input("i", graph.I64), b.Input("x", graph.F32, graph.N(2))
	positive := graph.Less(b.Scalar(graph.F32, 0), x)
	for want, y := range map[string]graph.Value{
		"Unsqueeze OneHot Squeeze Identity": graph.OneHot(i, 3, graph.F32),
		"Less Cast Cast Less Identity":      graph.Less(positive, positive),
	} {
		g, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := onnx.Write(&file, g, onnx.Options{Outputs: []graph.Value{y}, Names: []string{"y"}}); err != nil {
			t.Fatal(err)
		}
		var ops []string
		for _, f := range get(fields(t, get(fields(t, file.Bytes()), 7)[0].bytes), 1) {
			ops = append(ops, string(get(fields(t, f.bytes), 4)[0].bytes))
		}
		if got := strings.Join(ops, " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestNamesOfOutputs: an output that is called as an input, of which there are as many as a table has columns, gets a number; no other
// output loses its name to that.
func TestNamesOfOutputs(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("scores", graph.F32, batch)
	y, z := graph.Exp(x), graph.Neg(x)
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := onnx.Write(&file, g, onnx.Options{Outputs: []graph.Value{y, z}, Names: []string{"scores", "scores.1"}}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range get(fields(t, get(fields(t, file.Bytes()), 7)[0].bytes), 12) {
		names = append(names, string(get(fields(t, f.bytes), 1)[0].bytes))
	}
	if want := []string{"scores.2", "scores.1"}; !slices.Equal(names, want) {
		t.Errorf("outputs %q, want %q", names, want)
	}
	checkModel(t, file.Bytes(), names)
}

func TestRefusals(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", graph.F32, batch)
	v := b.Variable("v", graph.F32, []int{2}, graph.Zeros())
	read := v.Read()
	taken := graph.Slice(graph.Concat(0, read, read), graph.Range{Stop: 1})
	gradient := graph.SliceGrad(taken, graph.Of(4), []int{0}, []int{1}, []int{1})
	sparse := b.Input("values", graph.F32, graph.Axis("entries"))
	idx := b.Input("indices", graph.I64, graph.Axis("entries"))
	indptr, w := b.Input("indptr", graph.I64, batch.Plus(1)), b.Const(graph.Fill(graph.F32, 0, 3, 2))
	product := graph.SparseMatMul(indptr, idx, sparse, w)
	other := graph.Sum(graph.Exp(sparse), nil, false)
	second := graph.SparseMatMul(b.Input("more", graph.I64, batch.Plus(1)), idx, sparse, w)
	zeros := []graph.Value{graph.BroadcastTo(b.Scalar(graph.F32, 0), batch, graph.N(2))}
	saves := graph.OpenScan(nil, []graph.Value{x})
	saves.Close(nil, nil, false)
	saved := graph.Neg(b.Value(graph.Neg(x).Node()-1, 0))
	looped, _ := graph.Scan(zeros, []graph.Value{b.Input("times", graph.F32, graph.Axis("time"))}, func(c, _ []graph.Value) (next, ys []graph.Value) {
		return []graph.Value{graph.Add(c[0], graph.SparseMatMul(indptr, idx, sparse, w))}, nil
	})
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]*tensor.Tensor{"v": tensor.New(graph.F32, 2)}
	for _, c := range []struct {
		o    onnx.Options
		want string
	}{
		{onnx.Options{}, "no Outputs"},
		{onnx.Options{Outputs: []graph.Value{x}, Names: []string{"a", "b"}}, "2 Names for 1 Outputs"},
		{onnx.Options{Outputs: []graph.Value{x, x}, Names: []string{"a", "a"}}, `two Outputs are named "a"`},
		{onnx.Options{Outputs: []graph.Value{product, x}, Dense: map[string]string{"values": "x"}}, `input "x" has the name that Options.Dense gives`},
		{onnx.Options{Outputs: []graph.Value{read}}, `Variable "v" has no value`},
		{onnx.Options{Outputs: []graph.Value{read}, Variables: map[string]*tensor.Tensor{"v": nil}}, `Variable "v" has no value`},
		{onnx.Options{Outputs: []graph.Value{read}, Variables: map[string]*tensor.Tensor{"v": tensor.New(graph.F32, 3)}}, `Variable "v" is f32[2], its value f32[3]`},
		{onnx.Options{Outputs: []graph.Value{gradient}, Variables: values}, "SliceGrad (SliceGrad): not part of an inference graph"},
		{onnx.Options{Outputs: []graph.Value{product, other}}, "uses the entries of sparse input values"},
		{onnx.Options{Outputs: []graph.Value{product, second}}, "the values values are those of another sparse matrix too"},
		{onnx.Options{Outputs: looped}, "in the body of a Scan has no dense input"},
		{onnx.Options{Outputs: []graph.Value{saved}}, "operand Scan is not computed in inference"},
	} {
		var file bytes.Buffer
		if err := onnx.Write(&file, g, c.o); err == nil || !strings.Contains(err.Error(), c.want) || file.Len() > 0 {
			t.Errorf("error %v and %d bytes, want %q", err, file.Len(), c.want)
		}
	}
}

// TestTooLargeForAFile: Variables of more than 2 GiB, here all of the same memory, are refused before they are copied.
func TestTooLargeForAFile(t *testing.T) {
	const cells, copies = 1 << 20, 1 << 9
	b, values, one := graph.NewBuilder(), map[string]*tensor.Tensor{}, tensor.New(graph.F32, cells)
	var outputs []graph.Value
	for i := range copies {
		v := b.Variable(fmt.Sprint("v", i), graph.F32, []int{cells}, graph.Zeros())
		outputs, values[v.Name] = append(outputs, v.Read(), v.Read()), one
	}
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	err = onnx.Write(&file, g, onnx.Options{Outputs: outputs, Variables: values})
	if err == nil || !strings.Contains(err.Error(), "the Variables take 2147483648 bytes") || file.Len() > 0 {
		t.Errorf("error %v and %d bytes", err, file.Len())
	}
}

// save writes model.onnx, in_NAME.npy and out_NAME.npy.
func save(t *testing.T, folder string, m *model, g *graph.Graph, o onnx.Options, file []byte, expected []graphtest.Array) {
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.MkdirAll(folder, 0o755))
	check(os.WriteFile(filepath.Join(folder, "model.onnx"), file, 0o644))
	for v, a := range m.feeds {
		if name := v.String(); m.replaced[name].Data == nil && !has(m.replaced, name) {
			check(os.WriteFile(filepath.Join(folder, "in_"+name+".npy"), npy(a, g.TypeOf(v).DType), 0o644))
		}
	}
	for name, a := range m.replaced {
		if a.Data != nil {
			check(os.WriteFile(filepath.Join(folder, "in_"+name+".npy"), npy(a, graph.F32), 0o644))
		}
	}
	for i, a := range expected {
		check(os.WriteFile(filepath.Join(folder, "out_"+o.Names[i]+".npy"), npy(a, g.TypeOf(o.Outputs[i]).DType), 0o644))
	}
}

func has[V any](m map[string]V, k string) bool { _, ok := m[k]; return ok }

// npy is NumPy's file format, version 1.0.
func npy(a graphtest.Array, dt graph.DType) []byte {
	kind := map[graph.DType]string{graph.F32: "<f4", graph.I64: "<i8", graph.I32: "<i4"}[dt]
	shape := ""
	for _, n := range a.Shape {
		shape += fmt.Sprintf("%d,", n)
	}
	head := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", kind, shape)
	head += strings.Repeat(" ", 63-(10+len(head))%64) + "\n"
	p := append([]byte("\x93NUMPY\x01\x00"), byte(len(head)), byte(len(head)>>8))
	p = append(p, head...)
	for _, x := range a.Data {
		switch dt {
		case graph.F32:
			p = binary.LittleEndian.AppendUint32(p, math.Float32bits(float32(x)))
		case graph.I32:
			p = binary.LittleEndian.AppendUint32(p, uint32(int32(x)))
		default:
			p = binary.LittleEndian.AppendUint64(p, uint64(int64(x)))
		}
	}
	return p
}
