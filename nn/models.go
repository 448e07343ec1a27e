package nn

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// A layered model is a Net that can draw its scores again, for export.
type layered struct {
	*Net
	draw func(b *graph.Builder, x source) graph.Value
	in   trivium.InputSpec
}

func (m *layered) Scores(b *graph.Builder, inputs map[string]graph.Value) (graph.Value, error) {
	x, ok := inputs[m.in.Name]
	if !ok {
		return x, fmt.Errorf("nn: the graph has no input %q", m.in.Name)
	}
	return m.draw(b, source{dense: x}), b.Err()
}

// A source is where a model's first layer reads: dense rows, or the three parts of sparse ones.
type source struct {
	dense                   graph.Value
	indptr, indices, values graph.Value
}

// matmul is x·w.
func (x source) matmul(w graph.Value) graph.Value {
	if x.dense.IsZero() {
		return graph.SparseMatMul(x.indptr, x.indices, x.values, w)
	}
	return graph.MatMul(flat(x.dense), w)
}

// flat makes rows of more than one axis rows of one.
func flat(x graph.Value) graph.Value {
	s := x.Shape()
	if len(s) <= 2 { // 0: there is no value, for a reason that the builder knows
		return x
	}
	n, _ := s[1:].Elements()
	return graph.Reshape(x, s[0], graph.N(n))
}

// newSource declares the inputs for in.
func newSource(b *graph.Builder, in trivium.InputSpec) source {
	if in.Form == trivium.CSR {
		entries := graph.Axis(in.Name + ".entries")
		return source{
			indptr:  b.Input(in.Name+".indptr", graph.I64, graph.Axis("batch").Plus(1)),
			indices: b.Input(in.Name+".indices", graph.I32, entries),
			values:  b.Input(in.Name+".values", graph.F32, entries),
		}
	}
	return source{dense: b.Input(in.Name, graph.F32, append(graph.Shape{graph.Axis("batch")}, graph.Of(in.Shape...)...)...)}
}

// newLayered builds a net from a model's layers: softmax cross-entropy for classes, squared error summed over the row for real labels.
func newLayered(s trivium.Schema, cpu *tensor.CPU, in trivium.InputSpec, draw func(*graph.Builder, source) graph.Value, init func(uint64, trivium.Params)) (trivium.Model, error) {
	b := graph.NewBuilder()
	scores := draw(b, newSource(b, in))
	spec := NetSpec{Scores: scores, Init: init}
	switch s.Labels.Kind {
	case trivium.Class:
		spec.Task = trivium.MultiClass
		spec.Loss = graph.SoftmaxCrossEntropy(scores, b.Input("label", graph.I32, graph.Axis("batch")))
	case trivium.Real:
		label := b.Input("label", graph.F32, graph.Axis("batch"), graph.N(s.Labels.Width))
		spec.Loss = graph.Sum(graph.Square(graph.Sub(scores, label)), []int{1}, false)
	}
	n, err := FromGraph(cpu, spec)
	if err != nil {
		return nil, err
	}
	return &layered{n, draw, in}, nil
}

// classesOrReal refuses labels that layered models do not learn.
func classesOrReal(l trivium.LabelSpec) error {
	if l.Kind == trivium.Class && l.Width >= 2 || l.Kind == trivium.Real && l.Width >= 1 {
		return nil
	}
	return badLabels("takes labels of 2 or more classes, or real numbers; the data has %s", labelsOf(l))
}

// Softmax is multinomial logistic regression: one layer, all zero at first.
func Softmax(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
	if err := noArguments(args); err != nil {
		return nil, err
	}
	if s.Labels.Kind != trivium.Class {
		return nil, noClasses("classes", s.Labels)
	}
	return perceptron(nil, s, cpu)
}

// MLP is a multilayer perceptron: hidden layers of the given sizes (by default one of 100) with ReLU, then a linear layer.
func MLP(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
	hidden, err := sizes(args, "the size of a hidden layer")
	if err != nil {
		return nil, err
	}
	if len(hidden) == 0 {
		hidden = []int{100}
	}
	return perceptron(hidden, s, cpu)
}

func perceptron(hidden []int, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
	in, err := oneInput(s)
	if err := errors.Join(err, classesOrReal(s.Labels)); err != nil {
		return nil, err
	}
	if in.Form == trivium.Ragged {
		return nil, fmt.Errorf("takes dense or sparse rows, input %q is ragged", in.Name)
	}
	widths := append(append([]int{in.Columns()}, hidden...), s.Labels.Width)
	draw := func(b *graph.Builder, x source) graph.Value { return stack(b, x, widths) }
	init := func(seed uint64, p trivium.Params) {
		clear(p.Flat)
		if len(hidden) > 0 {
			initLayers(seed, p, 0, 1, widths)
		}
	}
	return newLayered(s, cpu, in, draw, init)
}

// stack is dense layers of the given widths, the input's first: Variables w1, b1, w2, …, with ReLU after all but the last.
func stack(b *graph.Builder, x source, widths []int) graph.Value {
	var h graph.Value
	for i := range widths[1:] {
		n := strconv.Itoa(i + 1)
		w := b.Variable("w"+n, graph.F32, widths[i:i+2], graph.Zeros()).Read()
		bias := b.Variable("b"+n, graph.F32, widths[i+1:i+2], graph.Zeros()).Read()
		h = graph.Add(x.matmul(w), bias)
		if i+2 < len(widths) {
			h = graph.ReLU(h)
		}
		x = source{dense: h}
	}
	return h
}

// initLayers draws the weights of dense layers: tensors from first on, a matrix and a bias each, numbered from layer on.
func initLayers(seed uint64, p trivium.Params, first, layer int, widths []int) {
	for i := range widths[1:] {
		w := p.Tensor(first + 2*i)
		if i+2 < len(widths) {
			heUniform(w, seed, layer+i, widths[i])
		} else {
			glorotUniform(w, seed, layer+i, widths[i], widths[i+1])
		}
	}
}

// lenet is the convolutional net of LeCun et al. (1998) in the sizes of Caffe's and MXNet's example, with ReLU.
var lenet = []int{20, 50, 500}

// filter is the height and width of a CNN's filters, and pool those of its pooling windows.
const filter, pool = 5, 2

// CNN is a convolutional net in LeNet's style on images: for each size but the last a convolution of 5×5 filters with ReLU and 2×2
// max-pooling, then a dense layer of the last size with ReLU, then a linear layer. By default 20,50,500.
func CNN(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
	layers, err := sizes(args, "the size of a layer")
	if err != nil {
		return nil, err
	}
	if len(layers) == 0 {
		layers = lenet
	}
	if len(layers) < 2 {
		return nil, wrongArguments("takes sizes of convolutions and of one dense layer, such as %v; found %v", lenet, layers)
	}
	in, err := oneInput(s)
	if err := errors.Join(err, classesOrReal(s.Labels)); err != nil {
		return nil, err
	}
	shape := in.Shape
	if len(shape) == 2 {
		shape = []int{shape[0], shape[1], 1}
	}
	if in.Form != trivium.Dense || len(shape) != 3 {
		return nil, fmt.Errorf("takes images of shape [height width channels]; input %q is %v of shape %v", in.Name, in.Form, in.Shape)
	}
	convs, dense := layers[:len(layers)-1], layers[len(layers)-1]
	height, width, channels := shape[0], shape[1], shape[2]
	for range convs {
		height, width = (height-filter+1)/pool, (width-filter+1)/pool
		if height < 1 || width < 1 {
			return nil, fmt.Errorf("images of %d×%d are too small for %d convolutions of %d×%d with pooling", shape[0], shape[1], len(convs), filter, filter)
		}
	}
	depths := append([]int{channels}, convs...)
	widths := []int{height * width * convs[len(convs)-1], dense, s.Labels.Width}

	draw := func(b *graph.Builder, x source) graph.Value {
		h := x.dense
		if len(h.Shape()) != 4 {
			h = graph.Reshape(h, h.Shape()[0], graph.N(shape[0]), graph.N(shape[1]), graph.N(shape[2]))
		}
		for i := range convs {
			n := strconv.Itoa(i + 1)
			w := b.Variable("conv"+n, graph.F32, []int{filter, filter, depths[i], depths[i+1]}, graph.Zeros()).Read()
			bias := b.Variable("conv"+n+"b", graph.F32, depths[i+1:i+2], graph.Zeros()).Read()
			h = graph.MaxPool(graph.Conv2D(h, w, bias, graph.WithReLU, graph.Window{}), pool, pool, graph.Window{})
		}
		return stack(b, source{dense: h}, widths)
	}
	init := func(seed uint64, p trivium.Params) {
		clear(p.Flat)
		for i := range convs {
			heUniform(p.Tensor(2*i), seed, 1+i, filter*filter*depths[i])
		}
		initLayers(seed, p, 2*len(convs), 1+len(convs), widths)
	}
	return newLayered(s, cpu, in, draw, init)
}

// LSTM is a classifier of sequences, rows of shape [time features]: an LSTM layer of the given units (by default 64; Hochreiter and
// Schmidhuber 1997, with forget gates that start open), whose last output goes through a linear layer.
func LSTM(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
	arg, err := sizes(args, "a number of units")
	if err != nil {
		return nil, err
	}
	units := 64
	if len(arg) == 1 {
		units = arg[0]
	} else if len(arg) > 1 {
		return nil, wrongArguments("takes one number of units, found %q", args)
	}
	in, err := oneInput(s)
	if err := errors.Join(err, classesOrReal(s.Labels)); err != nil {
		return nil, err
	}
	shape := in.Shape
	if len(shape) == 3 && shape[2] == 1 { // an image of one channel is read line by line
		shape = shape[:2]
	}
	if in.Form != trivium.Dense || len(shape) != 2 {
		return nil, fmt.Errorf("takes sequences of shape [time features]; input %q is %v of shape %v", in.Name, in.Form, in.Shape)
	}
	features, width := shape[1], s.Labels.Width

	draw := func(b *graph.Builder, x source) graph.Value {
		seq := x.dense
		batch := seq.Shape()[0]
		if len(seq.Shape()) != 3 {
			seq = graph.Reshape(seq, batch, graph.N(shape[0]), graph.N(shape[1]))
		}
		wx := b.Variable("wx", graph.F32, []int{features, 4 * units}, graph.Zeros()).Read()
		wh := b.Variable("wh", graph.F32, []int{units, 4 * units}, graph.Zeros()).Read()
		bias := b.Variable("b", graph.F32, []int{4 * units}, graph.Zeros()).Read()
		zero := graph.BroadcastTo(b.Scalar(graph.F32, 0), batch, graph.N(units))
		if b.Err() != nil { // there is nothing to scan
			return zero
		}
		last, _ := graph.Scan([]graph.Value{zero, zero}, []graph.Value{graph.Transpose(seq, 1, 0, 2)},
			func(carry, x []graph.Value) (next, y []graph.Value) {
				h, c := graph.LSTMCell(x[0], carry[0], carry[1], wx, wh, bias)
				return []graph.Value{h, c}, nil
			})
		w := b.Variable("w1", graph.F32, []int{units, width}, graph.Zeros()).Read()
		wb := b.Variable("b1", graph.F32, []int{width}, graph.Zeros()).Read()
		return graph.Add(graph.MatMul(last[0], w), wb)
	}
	init := func(seed uint64, p trivium.Params) {
		clear(p.Flat)
		glorotUniform(p.Tensor(0), seed, 1, features, 4*units)
		glorotUniform(p.Tensor(1), seed, 2, units, 4*units)
		for i := range units { // gates are input, forget, cell, output
			p.Tensor(2)[units+i] = 1
		}
		glorotUniform(p.Tensor(3), seed, 3, units, width)
	}
	return newLayered(s, cpu, in, draw, init)
}
