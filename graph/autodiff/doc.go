// Package autodiff adds gradient nodes to a graph: one rule per operation, one reverse walk.
//
// The function is Gradients; a Grad is a gradient, dense or row-sparse; CheckNumeric compares every rule that a graph uses with central
// differences. A gradient is made of ordinary nodes, so that it is placed, optimised and differentiated again like everything else. What a
// caller writes:
//
//	loss := graph.Sum(graph.SoftmaxCrossEntropy(logits, labels), nil, false)
//	for i, g := range autodiff.Gradients(loss, weights, autodiff.Options{Dense: true}) {
//		variables[i].AssignAdd(graph.Mul(g.Dense, minusRate))
//	}
package autodiff
