// Package onnx writes the inference part of a graph as an ONNX model (operator set 17).
//
// The function is Write. It takes what outputs need, up to inputs; Variables become initialisers, Dropout goes away, SparseMatMul becomes
// a product with a dense input, and a Scan becomes ONNX's Scan:
//
//	err := onnx.Write(file, g, onnx.Options{Outputs: []graph.Value{probabilities}, Names: []string{"probabilities"}, Variables: values})
//
// Axes keep their names, so a model exported with axis "batch" takes batches of any size.
package onnx

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// Opset is the version of ONNX's operators that Write uses; irVersion is that of the file format which belongs to it.
const (
	Opset     = 17
	irVersion = 8
)

// Options of Write. Outputs are required; every Variable that they read must have a value.
type Options struct {
	Outputs   []graph.Value
	Names     []string                  // of the outputs; default: those of their nodes. One that is an input's too gets a number behind it
	Variables map[string]*tensor.Tensor // by name
	// Dense names the dense input that replaces the three inputs of a CSR matrix, by the name of the one with its values; default: that
	// name. Its shape is [rows, columns].
	Dense    map[string]string
	Metadata map[string]string // for readers of the file
	Producer string            // version of the program that writes; may be empty
}

// Write writes the model. The error names every operation that ONNX has no counterpart for.
func Write(w io.Writer, g *graph.Graph, o Options) error {
	if err := o.validate(g); err != nil {
		return err
	}
	e := &exporter{
		g: g, o: o, names: map[graph.Value]string{}, taken: map[string]bool{}, axes: map[string]axis{}, variables: map[int]string{},
		sparse: map[graph.Value]csr{}, entries: map[graph.Value]bool{},
	}
	e.root = e
	if err := e.model(); err != nil {
		return err
	}
	file := e.file()
	if err := fits("the model takes", len(file)); err != nil {
		return err
	}
	if _, err := w.Write(file); err != nil {
		return fmt.Errorf("onnx: %w", err)
	}
	return nil
}

// fits refuses what is too large for a file.
func fits(what string, bytes int) error {
	if bytes > math.MaxInt32 {
		return fmt.Errorf("onnx: %s %d bytes; a protocol buffer holds at most %d", what, bytes, math.MaxInt32)
	}
	return nil
}

func (o Options) validate(g *graph.Graph) error {
	var errs []error
	if len(o.Outputs) == 0 {
		errs = append(errs, errors.New("onnx: no Outputs"))
	}
	if len(o.Names) > 0 && len(o.Names) != len(o.Outputs) {
		errs = append(errs, fmt.Errorf("onnx: %d Names for %d Outputs", len(o.Names), len(o.Outputs)))
	}
	for i, name := range o.Names {
		if slices.Contains(o.Names[:i], name) {
			errs = append(errs, fmt.Errorf("onnx: two Outputs are named %q", name))
		}
	}
	for i, v := range o.Outputs {
		if !g.Contains(v) || g.Node(v.Node()).Types == nil {
			errs = append(errs, fmt.Errorf("onnx: output %d is not a value of the graph", i))
		}
	}
	return errors.Join(errs...)
}

// exporter writes one GraphProto: the model's, or the body of a Scan, which sees the names around it.
type exporter struct {
	g      *graph.Graph
	o      Options
	nodes  message                // NodeProtos
	inits  message                // initialisers
	inputs message                // ValueInfoProtos
	names  map[graph.Value]string // of values in ONNX
	outs   message                // ValueInfoProtos
	at     *graph.Node            // being written

	// Of the root:
	root      *exporter
	taken     map[string]bool      // names
	axes      map[string]axis      // where the size of a named axis can be read
	variables map[int]string       // initialisers, by resource
	sparse    map[graph.Value]csr  // by their values
	entries   map[graph.Value]bool // indptr, indices and values of CSR matrices, and what is computed from values entry by entry
}

// A csr is what a sparse matrix is besides its values.
type csr struct {
	indptr, indices graph.Value
	columns         graph.Dim
}

// axis is a place in an input's shape.
type axis struct {
	input       string
	position, n int // n: how much longer than the named axis it is
}

// model writes the nodes that the outputs need.
func (e *exporter) model() error {
	needed := e.needed(e.o.Outputs)
	if err := e.weigh(needed); err != nil {
		return err
	}
	if err := e.declare(needed); err != nil {
		return err
	}
	names := e.outputNames() // before those of nodes: who reads the model finds its outputs by them
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(needed)) {
		if err := e.node(e.g.Node(id)); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for i, v := range e.o.Outputs {
		e.output(names[i], v, e.names[v])
	}
	return nil
}

// outputNames claims the names of the outputs: first those that are free, so that none is taken by a number behind another.
func (e *exporter) outputNames() []string {
	names := slices.Clone(e.o.Names)
	if len(names) == 0 {
		for _, v := range e.o.Outputs {
			names = append(names, v.String())
		}
	}
	var taken []int
	for i, name := range names {
		if e.taken[name] {
			taken = append(taken, i)
		}
		e.taken[name] = true
	}
	for _, i := range taken {
		names[i] = e.fresh(names[i])
	}
	return names
}

// output adds a graph output under a name that was claimed.
func (e *exporter) output(name string, v graph.Value, from string) {
	e.emit("Identity", []string{from}, []string{name})
	e.outs.message(12, valueInfo(name, e.g.TypeOf(v)))
}

// needed is what outputs depend on. Operands of a Dropout's or MaxPool's second result count too; using it is refused later.
func (e *exporter) needed(outputs []graph.Value) map[int]bool {
	need := map[int]bool{}
	var visit func(v graph.Value)
	visit = func(v graph.Value) {
		if need[v.Node()] {
			return
		}
		need[v.Node()] = true
		for _, in := range e.g.Node(v.Node()).Inputs {
			visit(in)
		}
	}
	for _, v := range outputs {
		visit(v)
	}
	return need
}

// weigh adds up the Variables before they are copied, as they are several times on their way into the file.
func (e *exporter) weigh(needed map[int]bool) error {
	sizes := map[int]int{} // by resource
	for id := range needed {
		for _, r := range e.g.Node(id).Resources {
			if t := e.o.Variables[e.g.Resources()[r].Name]; t != nil {
				sizes[r] = len(t.Bytes())
			}
		}
	}
	total := 0
	for _, n := range sizes {
		total += n
	}
	return fits("the Variables take", total)
}

// declare writes the inputs. The three of a CSR matrix become one.
func (e *exporter) declare(needed map[int]bool) error {
	for _, id := range slices.Sorted(maps.Keys(needed)) {
		if n := e.g.Node(id); n.Op.Name == "SparseMatMul" {
			if err := e.dense(n); err != nil {
				return err
			}
		}
	}
	for _, v := range e.g.Inputs() {
		if needed[v.Node()] && !e.entries[v] {
			name := e.g.Node(v.Node()).Name
			if e.taken[name] {
				return fmt.Errorf("onnx: input %q has the name that Options.Dense gives the input of a sparse product", name)
			}
			e.taken[name] = true
			e.names[v] = name
			e.input(name, e.g.TypeOf(v))
		}
	}
	return nil
}

// entrywise says which operations do the same to the entries of a sparse matrix as to all of its cells: those that leave zeros alone.
func entrywise(op string) bool {
	switch op {
	case "Square", "Neg", "Tanh", "ReLU", "Sqrt", "Cast", "StopGradient", "Dropout":
		return true
	}
	return false
}

// dense declares the dense input in place of the operands of a SparseMatMul.
func (e *exporter) dense(n *graph.Node) error {
	values := n.Inputs[2]
	for entrywise(e.g.Node(values.Node()).Op.Name) {
		values = e.g.Node(values.Node()).Inputs[0]
	}
	for _, v := range []graph.Value{n.Inputs[0], n.Inputs[1], values} {
		if e.g.Node(v.Node()).Op.Name != "Input" {
			return fmt.Errorf("onnx: %s: operand %v of a sparse product is computed; want inputs of the graph", n.Name, v)
		}
		e.entries[v] = true
	}
	w := e.g.TypeOf(n.Inputs[3])
	is := csr{n.Inputs[0], n.Inputs[1], w.Shape[0]}
	if was, done := e.sparse[values]; done {
		if was != is {
			return fmt.Errorf("onnx: %s: the values %v are those of another sparse matrix too; want one for each", n.Name, values)
		}
		return nil
	}
	e.sparse[values] = is
	name := e.g.Node(values.Node()).Name
	if other := e.o.Dense[name]; other != "" {
		name = other
	}
	if e.taken[name] {
		return fmt.Errorf("onnx: %s: its input %q has the name of another sparse product's; Options.Dense gives it one", n.Name, name)
	}
	e.taken[name] = true
	e.names[values] = name
	e.input(name, graph.Type{DType: e.g.TypeOf(values).DType, Shape: graph.Shape{n.Types[0].Shape[0], w.Shape[0]}})
	return nil
}

// sparseUse refuses what a dense input would change the meaning of.
func (e *exporter) sparseUse(n *graph.Node) error {
	for i, v := range n.Inputs {
		if !e.root.entries[v] {
			continue
		}
		switch {
		case n.Op.Name == "SparseMatMul" && i < 3:
		case entrywise(n.Op.Name):
			e.root.entries[e.g.Value(n.ID, 0)] = true
		default:
			return fmt.Errorf("onnx: %s (%s): uses the entries of sparse input %v, which is dense in ONNX", n.Op.Name, n.Name, v)
		}
	}
	return nil
}

func (e *exporter) input(name string, t graph.Type) {
	e.inputs.message(11, valueInfo(name, t))
	for i, d := range t.Shape {
		if _, ok := e.root.axes[d.Name]; !d.Fixed() && !ok && e == e.root {
			e.axes[d.Name] = axis{name, i, d.N}
		}
	}
}

// node writes one node and names its outputs.
func (e *exporter) node(n *graph.Node) error {
	if n.Op.Name == "Input" {
		return nil
	}
	write, ok := writers(n.Op.Name)
	if !ok {
		return fmt.Errorf("onnx: %s (%s): not part of an inference graph that ONNX can hold", n.Op.Name, n.Name)
	}
	for _, v := range n.Inputs {
		if _, ok := e.names[v]; !ok && n.Op.Name != "SparseMatMul" {
			return fmt.Errorf("onnx: %s (%s): operand %v is not computed in inference", n.Op.Name, n.Name, v)
		}
	}
	if err := e.sparseUse(n); err != nil {
		return err
	}
	e.at = n
	out, err := write(e, n)
	if err != nil {
		return fmt.Errorf("onnx: %s (%s): %w", n.Op.Name, n.Name, err)
	}
	for i, name := range out {
		e.names[e.g.Value(n.ID, i)] = name
	}
	return nil
}

// claim makes a name unique.
func (e *exporter) claim(name string) string {
	if e.root.taken[name] {
		return e.fresh(name)
	}
	e.root.taken[name] = true
	return name
}

func (e *exporter) fresh(name string) string {
	for k := 1; ; k++ {
		if other := fmt.Sprintf("%s.%d", name, k); !e.root.taken[other] {
			e.root.taken[other] = true
			return other
		}
	}
}

// op writes an ONNX node with one output and returns its name.
func (e *exporter) op(kind string, in []string, attrs ...attr) string {
	out := e.claim(e.at.Name)
	e.emit(kind, in, []string{out}, attrs...)
	return out
}

func (e *exporter) emit(kind string, in, out []string, attrs ...attr) {
	var n message
	for _, s := range in {
		n.string(1, s)
	}
	for _, s := range out {
		n.string(2, s)
	}
	n.string(3, out[0])
	n.string(4, kind)
	for _, a := range attrs {
		n.message(5, a.encode())
	}
	e.nodes.message(1, n)
}

// ints writes a constant of i64 numbers on one axis.
func (e *exporter) ints(v ...int) string {
	flat := make([]int64, len(v))
	for i, x := range v {
		flat[i] = int64(x)
	}
	l, _ := graph.LiteralOf(flat, len(flat)) // i64 of the right length: cannot fail
	return e.constant(e.at.Name+".const", l)
}

func (e *exporter) constant(name string, l graph.Literal) string {
	name = e.claim(name)
	e.inits.message(5, tensorProto(name, l))
	return name
}

// size writes what gives the length of an axis, as i64 on one axis.
func (e *exporter) size(d graph.Dim) (string, error) {
	if d.Fixed() {
		return e.ints(d.N), nil
	}
	a, ok := e.root.axes[d.Name]
	if !ok {
		return "", fmt.Errorf("no input has the axis %q", d.Name)
	}
	s := e.op("Gather", []string{e.op("Shape", []string{a.input}), e.ints(a.position)})
	if k := d.N - a.n; k != 0 {
		s = e.op("Add", []string{s, e.ints(k)})
	}
	return s, nil
}

// shape writes what gives a shape, as i64 on one axis.
func (e *exporter) shape(s graph.Shape) (string, error) {
	if sizes, fixed := s.Fixed(); fixed {
		return e.ints(sizes...), nil
	}
	parts := make([]string, len(s))
	for i, d := range s {
		var err error
		if parts[i], err = e.size(d); err != nil {
			return "", err
		}
	}
	return e.op("Concat", parts, intAttr("axis", 0)), nil
}

// graphProto puts the pieces together.
func (e *exporter) graphProto(name string) message {
	var m message
	m = append(m, e.nodes...)
	m.string(2, name)
	m = append(m, e.inits...)
	m = append(m, e.inputs...)
	return append(m, e.outs...)
}

// file is the ModelProto.
func (e *exporter) file() []byte {
	var m, opset message
	m.int(1, irVersion)
	m.string(2, "trivium")
	m.string(3, e.o.Producer)
	m.message(7, e.graphProto("trivium"))
	opset.string(1, "")
	opset.int(2, Opset)
	m.message(8, opset)
	for _, k := range slices.Sorted(maps.Keys(e.o.Metadata)) {
		var entry message
		entry.string(1, k)
		entry.string(2, e.o.Metadata[k])
		m.message(14, entry)
	}
	return m
}
