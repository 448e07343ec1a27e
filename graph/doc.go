// Package graph describes a symbolic computation: nodes, shapes, Variables and control dependencies. A graph can be printed, checked,
// encoded and differentiated (package autodiff); it cannot be run (package exec does that).
//
// The types: a Builder grows a Graph; a Graph is an immutable list of Nodes in creation order; a Value is one output of one node; a
// Variable is a named tensor that lives between steps. The loop that a caller writes:
//
//	b := graph.NewBuilder()
//	x := b.Input("x", graph.F32, graph.Axis("batch"), graph.N(784))
//	w := b.Variable("w", graph.F32, []int{784, 10}, graph.GlorotUniform())
//	y := b.Input("y", graph.I64, graph.Axis("batch"))
//	loss := graph.SoftmaxCrossEntropy(graph.MatMul(x, w.Read()), y) // one value a row
//	g, err := b.Build()                                             // the first mistake, with its line
//
// Operations are functions over Values. They return no error: the builder keeps the first one and Build returns it.
package graph
