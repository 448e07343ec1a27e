package graphtest

import (
	"errors"
	"fmt"
)

var stateKernels = map[string]kernel{
	"Read": func(c *call) ([]Array, error) {
		a, ok := c.m.Vars[c.resource().Name]
		if !ok {
			return nil, fmt.Errorf("Variable %q has no value", c.resource().Name)
		}
		return out(a.Clone())
	},
	"Assign": func(c *call) ([]Array, error) {
		return c.write(c.in[0].Clone())
	},
	"AssignAdd": func(c *call) ([]Array, error) {
		a, ok := c.m.Vars[c.resource().Name]
		if !ok {
			return nil, fmt.Errorf("Variable %q has no value", c.resource().Name)
		}
		return c.write(zip(func(v []float64) float64 { return v[0] + v[1] }, a, c.in[0]))
	},
	"Apply":      applyRule,
	"Enqueue":    enqueue,
	"Dequeue":    dequeue,
	"AccumApply": accumApply,
	"AccumTake":  accumTake,
	"Send": func(c *call) ([]Array, error) {
		key := c.n.Str("key")
		if _, ok := c.m.Sent[key]; ok {
			return nil, fmt.Errorf("key %q was sent before", key)
		}
		c.m.Sent[key] = c.in[0]
		return nil, nil
	},
	"Recv": func(c *call) ([]Array, error) {
		a, ok := c.m.Sent[c.n.Str("key")]
		if !ok {
			return nil, fmt.Errorf("nothing was sent under %q", c.n.Str("key"))
		}
		return []Array{a}, c.n.Types[0].Shape.Bind(c.axes, a.Shape)
	},
}

// write replaces the Variable and gives its version.
func (c *call) write(a Array) ([]Array, error) {
	name := c.resource().Name
	c.m.Vars[name] = a
	c.m.Versions[name]++
	return out(Scalar(float64(c.m.Versions[name])))
}

// dense adds row-sparse rows to zeros of the resource's shape.
func (c *call) dense(idx, values Array) (Array, error) {
	shape, _ := c.resource().Types[0].Shape.Fixed()
	g := Zeros(shape...)
	return g, rows(g, idx, func(i, r, size int) {
		for k := range size {
			g.Data[r*size+k] += values.Data[i*size+k]
		}
	})
}

func applyRule(c *call) ([]Array, error) {
	rule := c.m.Rules[c.n.Str("rule")]
	if rule == nil {
		return nil, fmt.Errorf("no rule %q", c.n.Str("rule"))
	}
	g, rest := c.in[0], c.in[1:]
	if c.n.Bool("sparse") {
		var err error
		if g, err = c.dense(c.in[0], c.in[1]); err != nil {
			return nil, err
		}
		rest = c.in[2:]
	}
	var all []Array
	for _, id := range c.n.Resources {
		name := c.g.Resources()[id].Name
		a, ok := c.m.Vars[name]
		if !ok {
			return nil, fmt.Errorf("Variable %q has no value", name)
		}
		all = append(all, a.Clone())
	}
	var params []float64
	for _, a := range rest {
		params = append(params, a.Data[0])
	}
	rule(all[0], g, all[1:], params)
	for i, id := range c.n.Resources[1:] {
		c.m.Vars[c.g.Resources()[id].Name] = all[1+i]
	}
	return c.write(all[0])
}

// errFull and errEmpty stand for waiting, which one thread cannot do.
var (
	errFull  = errors.New("the queue is full")
	errEmpty = errors.New("the queue is empty")
)

func enqueue(c *call) ([]Array, error) {
	r := c.resource()
	if len(c.m.Queues[r.Name]) >= r.Capacity {
		return nil, errFull
	}
	c.m.Queues[r.Name] = append(c.m.Queues[r.Name], c.in)
	return nil, nil
}

func dequeue(c *call) ([]Array, error) {
	q := c.m.Queues[c.resource().Name]
	if len(q) == 0 {
		return nil, errEmpty
	}
	c.m.Queues[c.resource().Name] = q[1:]
	return q[0], nil
}

func (c *call) accum() *Accum {
	r := c.resource()
	a := c.m.Accums[r.Name]
	if a == nil {
		shape, _ := r.Types[0].Shape.Fixed()
		a = &Accum{Sum: Zeros(shape...)}
		if len(shape) > 0 {
			a.Rows = make([]int, shape[0])
		}
		c.m.Accums[r.Name] = a
	}
	return a
}

func accumApply(c *call) ([]Array, error) {
	a, g := c.accum(), c.in[1]
	if int(c.in[0].Data[0]) < a.Step {
		return out(Scalar(0))
	}
	touched := map[int]bool{}
	if c.n.Bool("sparse") {
		var err error
		if g, err = c.dense(c.in[1], c.in[2]); err != nil {
			return nil, err
		}
		for _, x := range c.in[1].Data {
			touched[int(x)] = true
		}
	}
	for r := range a.Rows {
		if touched[r] || !c.n.Bool("sparse") {
			a.Rows[r]++
		}
	}
	a.Sum = zip(func(v []float64) float64 { return v[0] + v[1] }, a.Sum, g)
	a.Count++
	return out(Scalar(1))
}

func accumTake(c *call) ([]Array, error) {
	a, n := c.accum(), int(c.in[0].Data[0])
	if n < 1 {
		return nil, fmt.Errorf("take(%d), want at least 1", n)
	}
	if a.Count < n {
		return nil, fmt.Errorf("%d of %d gradients are there", a.Count, n)
	}
	mean := a.Sum.Clone()
	for i := range mean.Data {
		by := a.Count
		if c.resource().MeanPerRow && len(a.Rows) > 0 {
			by = max(a.Rows[i/(len(mean.Data)/len(a.Rows))], 1)
		}
		mean.Data[i] /= float64(by)
	}
	*a = Accum{Sum: Zeros(a.Sum.Shape...), Rows: make([]int, len(a.Rows)), Step: a.Step + 1}
	return out(mean)
}
