package onnx

import (
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium/graph"
)

func softmaxCrossEntropy(e *exporter, n *graph.Node) ([]string, error) {
	logs := e.op("LogSoftmax", []string{e.in(n, 0)}, intAttr("axis", -1))
	label := e.op("Unsqueeze", []string{e.index(n, 1), e.ints(1)})
	chosen := e.op("GatherElements", []string{logs, label}, intAttr("axis", 1))
	return one(e.op("Neg", []string{e.op("Squeeze", []string{chosen, e.ints(1)})}))
}

// sigmoidCrossEntropy is softplus(x) − x·t, which is max(x,0) − x·t + log(1+e^−|x|).
func sigmoidCrossEntropy(e *exporter, n *graph.Node) ([]string, error) {
	loss := e.op("Sub", []string{e.op("Softplus", []string{e.in(n, 0)}), e.op("Mul", e.all(n))})
	var others []int
	for i := 1; i < len(n.Inputs[0].Shape()); i++ {
		others = append(others, i)
	}
	if len(others) > 0 {
		loss = e.op("ReduceSum", []string{loss, e.ints(others...)}, intAttr("keepdims", 0))
	}
	return one(loss)
}

func (e *exporter) transpose(v string, perm ...int) string {
	return e.op("Transpose", []string{v}, intsAttr("perm", perm))
}

// windowAttrs are strides and pads; ONNX has both beginnings before both ends.
func windowAttrs(n *graph.Node) []attr {
	p := n.Ints("pads")
	return []attr{intsAttr("strides", n.Ints("strides")), intsAttr("pads", []int{p[0], p[2], p[1], p[3]})}
}

// conv goes from our NHWC to ONNX's NCHW and back; runtimes cancel transposes that meet.
func conv(e *exporter, n *graph.Node) ([]string, error) {
	in := []string{e.transpose(e.in(n, 0), 0, 3, 1, 2), e.transpose(e.in(n, 1), 3, 2, 0, 1)}
	if len(n.Inputs) == 3 {
		in = append(in, e.in(n, 2))
	}
	y := e.activate(n, e.op("Conv", in, windowAttrs(n)...))
	return one(e.transpose(y, 0, 2, 3, 1))
}

func maxPool(e *exporter, n *graph.Node) ([]string, error) {
	attrs := append(windowAttrs(n), intsAttr("kernel_shape", n.Ints("window")))
	y := e.op("MaxPool", []string{e.transpose(e.in(n, 0), 0, 3, 1, 2)}, attrs...)
	return one(e.transpose(y, 0, 2, 3, 1))
}

// lstm writes the cell's formulas; ONNX has only whole recurrences.
func lstm(e *exporter, n *graph.Node) ([]string, error) {
	z := e.op("Gemm", []string{e.in(n, 0), e.in(n, 3), e.in(n, 5)})
	z = e.op("Add", []string{z, e.op("MatMul", []string{e.in(n, 1), e.in(n, 4)})})
	gates := make([]string, 4)
	for i := range gates {
		gates[i] = e.claim(fmt.Sprintf("%s.gate%d", n.Name, i))
	}
	e.emit("Split", []string{z}, gates, intAttr("axis", 1))
	for i, f := range []string{"Sigmoid", "Sigmoid", "Tanh", "Sigmoid"} {
		gates[i] = e.op(f, []string{gates[i]})
	}
	kept, added := e.op("Mul", []string{gates[1], e.in(n, 2)}), e.op("Mul", []string{gates[0], gates[2]})
	c := e.op("Add", []string{kept, added})
	h := e.op("Mul", []string{gates[3], e.op("Tanh", []string{c})})
	return []string{h, c}, nil
}

// scan writes ONNX's Scan, whose body is a graph that sees captured values by their names around it.
func scan(e *exporter, n *graph.Node) ([]string, error) {
	carries, xs := n.Int("carries"), n.Int("xs")
	if len(n.Body.Outputs()) == 0 { // only what it saved is used, and ONNX's Scan saves nothing
		return nil, nil
	}
	body := &exporter{g: n.Body, o: e.o, root: e.root, names: map[graph.Value]string{}}
	for i, v := range n.Body.Inputs() {
		if i >= carries+xs {
			body.names[v] = e.in(n, i)
			continue
		}
		name := e.claim(n.Name + "/" + n.Body.Node(v.Node()).Name)
		body.names[v] = name
		body.input(name, n.Body.TypeOf(v))
	}
	needed := body.needed(n.Body.Outputs())
	for m := range n.Body.Nodes() {
		if !needed[m.ID] {
			continue
		}
		inner := *m
		inner.Name = n.Name + "/" + m.Name
		if err := body.node(&inner); err != nil {
			return nil, err
		}
	}
	out := make([]string, len(n.Body.Outputs()))
	for i, v := range n.Body.Outputs() {
		from, ok := body.names[v]
		if !ok {
			return nil, fmt.Errorf("result %d of the body is not computed in inference", i)
		}
		body.at = n
		body.output(e.claim(fmt.Sprintf("%s/result%d", n.Name, i)), v, from)
		out[i] = e.claim(fmt.Sprintf("%s.%d", n.Name, i))
	}
	directions := slices.Repeat([]int{n.Int("reverse")}, xs)
	backward := slices.Repeat([]int{n.Int("reverse")}, len(out)-carries)
	attrs := []attr{graphAttr("body", body.graphProto(n.Name+"/body")), intAttr("num_scan_inputs", xs), intsAttr("scan_input_directions", directions)}
	if len(backward) > 0 {
		attrs = append(attrs, intsAttr("scan_output_directions", backward))
	}
	e.emit("Scan", e.all(n)[:carries+xs], out, attrs...)
	return out, nil
}
