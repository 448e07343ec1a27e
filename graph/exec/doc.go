// Package exec runs a graph on one machine, every node as soon as its inputs are ready.
//
// [Compile] turns a graph, the values to be fed and the values wanted into a [Program]: nodes pruned, folded, merged and fused. For
// each size of the named axes the program plans its memory once; after that a step allocates nothing. A [State] holds what outlives a
// step: Variables with versions, queues, accumulators. The loop that a caller writes:
//
//	p, err := exec.Compile(g, []graph.Value{x, y}, grads, nil, exec.Options{CPU: cpu})
//	s := exec.NewState(exec.StateOptions{})
//	err = s.Bind(w, tensorOverParams)
//	for ... {
//		err = p.RunInto(ctx, s, []*tensor.Tensor{xs, ys}, gradients, ready)
//	}
//
// No thread of the pool ever waits for another participant: a node that may have to (Recv, Dequeue, AccumTake) is a continuation of the
// goroutine that called Run, and every wait has a deadline.
package exec
