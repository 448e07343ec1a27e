package exec

import (
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// A dim is a graph.Dim with its axis as a number: size n, more than axis axis if that is not negative.
type dim struct{ axis, n int }

// internAxes numbers the named axes and rewrites every type with the numbers.
func (p *Program) internAxes() {
	index := map[string]int{}
	intern := func(s graph.Shape) []dim {
		dims := make([]dim, len(s))
		for i, d := range s {
			dims[i] = dim{-1, d.N}
			if d.Fixed() {
				continue
			}
			k, ok := index[d.Name]
			if !ok {
				k = len(p.axes)
				index[d.Name] = k
				p.axes = append(p.axes, d.Name)
			}
			dims[i].axis = k
		}
		return dims
	}
	for _, l := range p.lists {
		l.dims = make([][]dim, len(l.types))
		for i, t := range l.types {
			l.dims[i] = intern(t.Shape)
		}
	}
	for _, n := range p.nodes {
		if n.op == opFeed {
			for len(p.feedDims) <= n.feed {
				p.feedDims = append(p.feedDims, nil)
			}
			p.feedDims[n.feed] = n.list.dims[0]
		}
		if n.op == "Size" {
			intern(n.attr("of").Shape)
		}
	}
}

// bindAxes writes to axes what the feeds say about their sizes.
func (p *Program) bindAxes(axes []int, feeds []*tensor.Tensor) error {
	for i := range axes {
		axes[i] = -1
	}
	if len(feeds) != len(p.feeds) {
		return fmt.Errorf("exec: run: %d feeds, want %d", len(feeds), len(p.feeds))
	}
	for i, t := range feeds {
		want := p.g.TypeOf(p.feeds[i])
		if t == nil {
			return fmt.Errorf("exec: run: feed %d (%v) is missing, want %v", i, p.feeds[i], want)
		}
		if t.DType() != want.DType || t.Rank() != len(want.Shape) {
			return fmt.Errorf("exec: run: feed %d (%v) is %v%v, want %v", i, p.feeds[i], t.DType(), t.Shape(), want)
		}
		for k, d := range p.feedDims[i] {
			size := t.Dim(k)
			if d.axis < 0 {
				if size != d.n {
					return fmt.Errorf("exec: run: feed %d (%v), axis %d: want %d, given %d", i, p.feeds[i], k, d.n, size)
				}
				continue
			}
			size -= d.n
			if old := axes[d.axis]; size < 0 || old >= 0 && old != size {
				return fmt.Errorf("exec: run: feed %d (%v), axis %d (%v): want %d, given %d", i, p.feeds[i], k, want.Shape[k], max(old, 0)+d.n, size+d.n)
			}
			axes[d.axis] = size
		}
	}
	return nil
}

// sizes are what dims are for these axes; -1 for an axis that no feed gives.
func (p *Program) sizes(dst []int, dims []dim, axes []int) error {
	for i, d := range dims {
		dst[i] = d.n
		if d.axis >= 0 {
			if axes[d.axis] < 0 {
				return fmt.Errorf("axis %d: no feed gives its size", i)
			}
			dst[i] += axes[d.axis]
		}
		if dst[i] < 0 {
			return fmt.Errorf("axis %d would have %d elements, as axis %q has %d", i, dst[i], p.axes[d.axis], axes[d.axis])
		}
	}
	return nil
}

// sizeOf is the size of a graph.Dim in this instance; -1 where no feed gives it.
func (x *instance) sizeOf(d graph.Dim) int {
	if d.Fixed() {
		return d.N
	}
	if k := slices.Index(x.p.axes, d.Name); k >= 0 && x.axes[k] >= 0 {
		return max(x.axes[k]+d.N, -1)
	}
	return -1
}
