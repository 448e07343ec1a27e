package onnx

import (
	"errors"
	"fmt"
	"math"

	"github.com/trivium-ml/trivium/graph"
)

// writer writes one of our operations as ONNX nodes and returns the names of its results, as many as inference uses.
type writer func(e *exporter, n *graph.Node) ([]string, error)

// writers finds an operation's writer. Scan is not in the table because it writes a graph of its own.
func writers(op string) (writer, bool) {
	if op == "Scan" {
		return scan, true
	}
	w, ok := table[op]
	return w, ok
}

var table = map[string]writer{
	"Add":          same("Add"),
	"Sub":          same("Sub"),
	"Mul":          same("Mul"),
	"Div":          same("Div"),
	"Neg":          same("Neg"),
	"Exp":          same("Exp"),
	"Log":          same("Log"),
	"Sqrt":         same("Sqrt"),
	"Tanh":         same("Tanh"),
	"Sigmoid":      same("Sigmoid"),
	"ReLU":         same("Relu"),
	"Max":          same("Max"),
	"Where":        same("Where"),
	"Less":         less,
	"Equal":        same("Equal"),
	"StopGradient": same("Identity"),
	"Dropout":      same("Identity"),
	"Square": func(e *exporter, n *graph.Node) ([]string, error) {
		return one(e.op("Mul", []string{e.in(n, 0), e.in(n, 0)}))
	},
	"Cast": func(e *exporter, n *graph.Node) ([]string, error) {
		return one(e.cast(e.in(n, 0), n.DType("dtype")))
	},

	"MatMul": matmul,
	"Dense":  dense,
	"SparseMatMul": func(e *exporter, n *graph.Node) ([]string, error) {
		if e != e.root {
			return nil, errors.New("a sparse product in the body of a Scan has no dense input")
		}
		return one(e.op("MatMul", []string{e.in(n, 2), e.in(n, 3)}))
	},
	"Transpose": func(e *exporter, n *graph.Node) ([]string, error) {
		return one(e.op("Transpose", e.all(n), intsAttr("perm", n.Ints("perm"))))
	},

	"Sum": func(e *exporter, n *graph.Node) ([]string, error) {
		if len(n.Ints("axes")) == 0 {
			return one(e.op("Identity", e.all(n)))
		}
		return one(e.op("ReduceSum", []string{e.in(n, 0), e.ints(n.Ints("axes")...)}, keepAttr(n)))
	},
	"Mean":      reduction("ReduceMean"),
	"ReduceMax": reduction("ReduceMax"),
	"ArgMax": func(e *exporter, n *graph.Node) ([]string, error) {
		return one(e.op("ArgMax", e.all(n), intAttr("axis", n.Int("axis")), keepAttr(n)))
	},
	"SumTo": sumTo,

	"Const": func(e *exporter, n *graph.Node) ([]string, error) {
		return one(e.constant(n.Name, *n.Literal("value")))
	},
	"Size":    size,
	"Reshape": reshape,
	"BroadcastTo": func(e *exporter, n *graph.Node) ([]string, error) {
		s, err := e.shape(n.Shape("shape"))
		return []string{e.op("Expand", []string{e.in(n, 0), s})}, err
	},
	"Concat": func(e *exporter, n *graph.Node) ([]string, error) {
		return one(e.op("Concat", e.all(n), intAttr("axis", n.Int("axis"))))
	},
	"Slice":  slice,
	"OneHot": oneHot,

	"Gather": func(e *exporter, n *graph.Node) ([]string, error) {
		return one(e.op("Gather", []string{e.in(n, 0), e.index(n, 1)}, intAttr("axis", 0)))
	},
	"ScatterAdd": func(e *exporter, n *graph.Node) ([]string, error) {
		idx := e.op("Unsqueeze", []string{e.index(n, 1), e.ints(-1)})
		return one(e.op("ScatterND", []string{e.in(n, 0), idx, e.in(n, 2)}, stringAttr("reduction", "add")))
	},

	"Softmax": func(e *exporter, n *graph.Node) ([]string, error) {
		return one(e.op("Softmax", e.all(n), intAttr("axis", -1)))
	},
	"SoftmaxCrossEntropy": softmaxCrossEntropy,
	"SigmoidCrossEntropy": sigmoidCrossEntropy,
	"Conv2D":              conv,
	"MaxPool":             maxPool,
	"LSTMCell":            lstm,

	"Read": read,
}

func one(name string) ([]string, error) { return []string{name}, nil }

func same(kind string) writer {
	return func(e *exporter, n *graph.Node) ([]string, error) { return one(e.op(kind, e.all(n))) }
}

// less compares bools as numbers, since ONNX's does not order them.
func less(e *exporter, n *graph.Node) ([]string, error) {
	in := e.all(n)
	if n.Inputs[0].DType() == graph.Bool {
		for i := range in {
			in[i] = e.cast(in[i], graph.I32)
		}
	}
	return one(e.op("Less", in))
}

// in is the name of an operand.
func (e *exporter) in(n *graph.Node, i int) string { return e.names[n.Inputs[i]] }

func (e *exporter) all(n *graph.Node) []string {
	names := make([]string, len(n.Inputs))
	for i := range names {
		names[i] = e.in(n, i)
	}
	return names
}

// index is an operand that indexes, as i64.
func (e *exporter) index(n *graph.Node, i int) string {
	if n.Inputs[i].DType() == graph.I64 {
		return e.in(n, i)
	}
	return e.cast(e.in(n, i), graph.I64)
}

func (e *exporter) cast(v string, dt graph.DType) string {
	return e.op("Cast", []string{v}, intAttr("to", elementType(dt)))
}

func keepAttr(n *graph.Node) attr { return intAttr("keepdims", n.Int("keep")) }

// read makes a Variable an initialiser, once.
func read(e *exporter, n *graph.Node) ([]string, error) {
	if name, ok := e.root.variables[n.Resources[0]]; ok {
		return one(name)
	}
	r := e.root.g.Resources()[n.Resources[0]]
	t := e.o.Variables[r.Name]
	if t == nil {
		return nil, fmt.Errorf("Variable %q has no value", r.Name)
	}
	want, _ := r.Types[0].Shape.Fixed()
	if have := graph.Of(t.Shape()...); t.DType() != r.Types[0].DType || !have.Equal(graph.Of(want...)) {
		return nil, fmt.Errorf("Variable %q is %v, its value %v%v", r.Name, r.Types[0], t.DType(), have)
	}
	name := e.constant(r.Name, graph.Literal{DType: t.DType(), Shape: want, Data: t.Bytes()})
	e.root.variables[n.Resources[0]] = name
	return one(name)
}

func matmul(e *exporter, n *graph.Node) ([]string, error) {
	if !n.Bool("ta") && !n.Bool("tb") {
		return one(e.op("MatMul", e.all(n)))
	}
	return one(e.op("Gemm", e.all(n), intAttr("transA", n.Int("ta")), intAttr("transB", n.Int("tb"))))
}

// activate applies the function that Dense and Conv2D end with.
func (e *exporter) activate(n *graph.Node, v string) string {
	switch graph.Activation(n.Str("act")) {
	case graph.WithReLU:
		return e.op("Relu", []string{v})
	case graph.WithTanh:
		return e.op("Tanh", []string{v})
	case graph.WithSigma:
		return e.op("Sigmoid", []string{v})
	}
	return v
}

func dense(e *exporter, n *graph.Node) ([]string, error) {
	kind := "MatMul"
	if len(n.Inputs) == 3 {
		kind = "Gemm"
	}
	return one(e.activate(n, e.op(kind, e.all(n))))
}

func reduction(kind string) writer {
	return func(e *exporter, n *graph.Node) ([]string, error) {
		if len(n.Ints("axes")) == 0 {
			return one(e.op("Identity", e.all(n)))
		}
		return one(e.op(kind, e.all(n), intsAttr("axes", n.Ints("axes")), keepAttr(n)))
	}
}

func sumTo(e *exporter, n *graph.Node) ([]string, error) {
	from, to := n.Inputs[0].Shape(), n.Shape("shape")
	front := len(from) - len(to)
	var axes []int
	for i, d := range from {
		if i < front || to[i-front] != d {
			axes = append(axes, i)
		}
	}
	v := e.in(n, 0)
	if len(axes) > 0 {
		v = e.op("ReduceSum", []string{v, e.ints(axes...)}, intAttr("keepdims", 1))
	}
	if front == 0 {
		return one(e.op("Identity", []string{v}))
	}
	drop := make([]int, front)
	for i := range drop {
		drop[i] = i
	}
	return one(e.op("Squeeze", []string{v, e.ints(drop...)}))
}

func size(e *exporter, n *graph.Node) ([]string, error) {
	s, err := e.shape(n.Shape("of"))
	if err != nil {
		return nil, err
	}
	return one(e.cast(e.op("ReduceProd", []string{s}, intAttr("keepdims", 0)), n.DType("dtype")))
}

// reshape leaves at most one axis open, which ONNX works out.
func reshape(e *exporter, n *graph.Node) ([]string, error) {
	to := n.Types[0].Shape
	sizes, open, empty := make([]int, len(to)), 0, false
	for i, d := range to {
		if sizes[i] = d.N; !d.Fixed() {
			sizes[i] = -1
			open++
		} else if d.N == 0 {
			empty = true
		}
	}
	if open == 0 || open == 1 && !empty { // beside an axis of size 0 any size fits: -1 is refused there
		return one(e.op("Reshape", []string{e.in(n, 0), e.ints(sizes...)}, intAttr("allowzero", 1)))
	}
	s, err := e.shape(to)
	if err != nil {
		return nil, err
	}
	return one(e.op("Reshape", []string{e.in(n, 0), s}, intAttr("allowzero", 1)))
}

func slice(e *exporter, n *graph.Node) ([]string, error) {
	start, stop, step := n.Ints("start"), n.Ints("stop"), n.Ints("step")
	axes, ends := make([]int, len(start)), make([]int, len(start))
	for i := range axes {
		axes[i], ends[i] = i, stop[i]
		if stop[i] == graph.End {
			ends[i] = math.MaxInt64
		}
	}
	if len(axes) == 0 {
		return one(e.op("Identity", e.all(n)))
	}
	return one(e.op("Slice", []string{e.in(n, 0), e.ints(start...), e.ints(ends...), e.ints(axes...), e.ints(step...)}))
}

func oneHot(e *exporter, n *graph.Node) ([]string, error) {
	values := e.constant(n.Name+".values", pair(n.DType("dtype")))
	index := e.index(n, 0)
	scalar := len(n.Inputs[0].Shape()) == 0 // of which ONNX takes none
	if scalar {
		index = e.op("Unsqueeze", []string{index, e.ints(0)})
	}
	hot := e.op("OneHot", []string{index, e.ints(n.Int("depth")), values}, intAttr("axis", -1))
	if scalar {
		hot = e.op("Squeeze", []string{hot, e.ints(0)})
	}
	return one(hot)
}

// pair is 0 and 1.
func pair(dt graph.DType) graph.Literal {
	zero, unit := graph.Fill(dt, 0, 1), graph.Fill(dt, 1, 1)
	return graph.Literal{DType: dt, Shape: []int{2}, Data: append(zero.Data, unit.Data...)}
}
