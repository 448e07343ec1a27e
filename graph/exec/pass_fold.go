package exec

import (
	"fmt"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// fold computes now what depends on constants alone, where the result is at most foldLimit bytes.
func (c *compiler) fold() error {
	for _, n := range c.all() {
		if n.fwd != nil || n.op == "Const" || n.op == opFeed || n.effect() != graph.Pure || len(n.list.types) != 1 || len(n.after) > 0 {
			continue
		}
		if !constant(n) {
			continue
		}
		if err := c.foldNode(n); err != nil {
			return fmt.Errorf("exec: compile: %s (%s): %w", n.name(), n.op, err)
		}
	}
	return nil
}

// constant says whether all operands are constants and the result has a known, moderate size.
func constant(n *node) bool {
	if kernels[n.op].bind == nil || n.op == "Scan" { // whose body is not compiled yet
		return false
	}
	for i, r := range n.in {
		n.in[i] = r.end()
		if n.in[i].n.op != "Const" || len(n.in[i].n.after) > 0 {
			return false
		}
	}
	if n.op == "Size" {
		if _, fixed := n.attr("of").Shape.Fixed(); !fixed {
			return false
		}
	}
	size, ok := n.list.types[0].Shape.Elements()
	return ok && size*n.list.types[0].DType.Size() <= foldLimit
}

// foldNode makes n a Const. A kernel that panics (an index out of range) makes that an error of Compile.
func (c *compiler) foldNode(n *node) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("constant folding: %v", r)
		}
	}()
	if err := kernels[n.op].check(n); err != nil {
		return err
	}
	sizes, _ := n.list.types[0].Shape.Fixed()
	out := tensor.New(n.list.types[0].DType, sizes...)
	x := &instance{p: c.Program, threads: 1, workers: []*worker{{}}}
	b := &bound{n: n, x: x, isa: c.isa}
	for _, r := range n.in {
		b.in = append(b.in, slotOf(r.n.constant()))
	}
	b.out = []*slot{slotOf(out)}
	kernels[n.op].bind(b)
	b.resize()
	for t := range b.tiles {
		b.run(t, x.workers[0])
	}
	if b.finish != nil {
		b.finish()
	}
	if b.err != nil {
		return b.err
	}
	n.op, n.rare().value, n.in, n.ewise, n.sig = "Const", out, nil, false, [2]uint64{}
	return nil
}

func slotOf(t *tensor.Tensor) *slot {
	return &slot{p: pointer(t), n: t.Len(), dims: append([]int(nil), t.Shape()...), dt: t.DType()}
}
