package graphtest

import (
	"fmt"
	"math"
	"slices"

	"github.com/trivium-ml/trivium/graph"
)

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

var elementKernels = map[string]kernel{
	"Add":          binary(func(a, b float64) float64 { return a + b }),
	"Sub":          binary(func(a, b float64) float64 { return a - b }),
	"Mul":          binary(func(a, b float64) float64 { return a * b }),
	"Div":          binary(func(a, b float64) float64 { return a / b }),
	"Max":          binary(func(a, b float64) float64 { return max(a, b) }), // of an infinity and NaN, math.Max gives the infinity
	"Less":         binary(func(a, b float64) float64 { return truth(a < b) }),
	"Equal":        binary(func(a, b float64) float64 { return truth(a == b) }),
	"Neg":          unary(func(a float64) float64 { return -a }),
	"Exp":          unary(math.Exp),
	"Log":          unary(math.Log),
	"Sqrt":         unary(math.Sqrt),
	"Square":       unary(func(a float64) float64 { return a * a }),
	"Tanh":         unary(math.Tanh),
	"Sigmoid":      unary(sigmoid),
	"ReLU":         unary(func(a float64) float64 { return math.Max(a, 0) }),
	"StopGradient": unary(func(a float64) float64 { return a }),
	"ReLUGrad": binary(func(dy, y float64) float64 {
		if y > 0 {
			return dy
		}
		return 0 // also where dy is not finite
	}),
	"TanhGrad":    binary(func(dy, y float64) float64 { return dy * (1 - y*y) }),
	"SigmoidGrad": binary(func(dy, y float64) float64 { return dy * y * (1 - y) }),
	"Cast": func(c *call) ([]Array, error) {
		dt := c.n.DType("dtype")
		return unary(func(x float64) float64 { return cast(x, dt) })(c)
	},
	"Where": func(c *call) ([]Array, error) {
		return out(zip(func(v []float64) float64 {
			if v[0] != 0 {
				return v[1]
			}
			return v[2]
		}, c.in...))
	},
}

func unary(f func(float64) float64) kernel {
	return func(c *call) ([]Array, error) {
		return out(zip(func(v []float64) float64 { return f(v[0]) }, c.in...))
	}
}

func binary(f func(a, b float64) float64) kernel {
	return func(c *call) ([]Array, error) {
		return out(zip(func(v []float64) float64 { return f(v[0], v[1]) }, c.in...))
	}
}

// zip computes f of the broadcast operands' elements.
func zip(f func(v []float64) float64, in ...Array) Array {
	s := graph.Shape{}
	for _, a := range in {
		s, _ = graph.Broadcast(s, graph.Of(a.Shape...))
	}
	shape, _ := s.Fixed()
	y, v := Zeros(shape...), make([]float64, len(in))
	each(shape, func(i int, at []int) {
		for k, a := range in {
			v[k] = a.Data[offset(a.Shape, at)]
		}
		y.Data[i] = f(v)
	})
	return y
}

var shapeKernels = map[string]kernel{
	"Const": func(c *call) ([]Array, error) { return out(FromLiteral(c.n.Literal("value"))) },
	"Size": func(c *call) ([]Array, error) {
		s, err := c.sizes("of")
		return []Array{Scalar(float64(product(s)))}, err
	},
	"Reshape": func(c *call) ([]Array, error) {
		s, err := c.n.Types[0].Shape.Sizes(c.axes)
		return []Array{{s, c.in[0].Data}}, err
	},
	"BroadcastTo": func(c *call) ([]Array, error) {
		s, err := c.sizes("shape")
		if err != nil {
			return nil, err
		}
		y := Zeros(s...)
		each(s, func(i int, at []int) { y.Data[i] = c.in[0].Data[offset(c.in[0].Shape, at)] })
		return out(y)
	},
	"SumTo": func(c *call) ([]Array, error) {
		s, err := c.sizes("shape")
		if err != nil {
			return nil, err
		}
		y := Zeros(s...)
		each(c.in[0].Shape, func(i int, at []int) { y.Data[offset(s, at)] += c.in[0].Data[i] })
		return out(y)
	},
	"Transpose": func(c *call) ([]Array, error) {
		a, perm := c.in[0], c.n.Ints("perm")
		s := make([]int, len(perm))
		for i, p := range perm {
			s[i] = a.Shape[p]
		}
		y, from := Zeros(s...), make([]int, len(perm))
		each(s, func(i int, at []int) {
			for k, p := range perm {
				from[p] = at[k]
			}
			y.Data[i] = a.Data[offset(a.Shape, from)]
		})
		return out(y)
	},
	"Concat":    concat,
	"Slice":     func(c *call) ([]Array, error) { return slice(c, c.in[0].Shape) },
	"SliceGrad": func(c *call) ([]Array, error) { s, _ := c.sizes("shape"); return slice(c, s) },
	"OneHot": func(c *call) ([]Array, error) {
		depth := c.n.Int("depth")
		y := Zeros(append(slices.Clone(c.in[0].Shape), depth)...)
		for i, x := range c.in[0].Data {
			if x < 0 || int(x) >= depth {
				return nil, fmt.Errorf("index %v outside [0,%d)", x, depth)
			}
			y.Data[i*depth+int(x)] = 1
		}
		return out(y)
	},
	"Gather": func(c *call) ([]Array, error) {
		table, idx := c.in[0], c.in[1]
		y := Zeros(append(slices.Clone(idx.Shape), table.Shape[1:]...)...)
		return []Array{y}, rows(table, idx, func(i, r, size int) { copy(y.Data[i*size:(i+1)*size], table.Data[r*size:]) })
	},
	"ScatterAdd": func(c *call) ([]Array, error) {
		y, v := c.in[0].Clone(), c.in[2]
		return []Array{y}, rows(y, c.in[1], func(i, r, size int) {
			for k := range size {
				y.Data[r*size+k] += v.Data[i*size+k]
			}
		})
	},
	"Sum":  reduction(func(sum float64, v []float64) float64 { return sum }),
	"Mean": reduction(func(sum float64, v []float64) float64 { return sum / float64(len(v)) }),
	"ReduceMax": reduction(func(sum float64, v []float64) float64 {
		if len(v) == 0 {
			return math.Inf(-1)
		}
		return slices.Max(v)
	}),
	"ArgMax": func(c *call) ([]Array, error) {
		y := foldAxes(c.in[0], []int{c.n.Int("axis")}, c.n.Bool("keep"), func(v []float64) float64 {
			at := -1
			for i, x := range v {
				if at < 0 || x > v[at] || x != x && v[at] == v[at] {
					at = i
				}
			}
			return float64(at)
		})
		return out(y)
	},
}

// rows calls f with each index's place and value and a row's size.
func rows(table, idx Array, f func(i, row, size int)) error {
	size := product(table.Shape[1:])
	for i, x := range idx.Data {
		if x < 0 || int(x) >= table.Shape[0] {
			return fmt.Errorf("index %v outside [0,%d)", x, table.Shape[0])
		}
		f(i, int(x), size)
	}
	return nil
}

func reduction(f func(sum float64, v []float64) float64) kernel {
	return func(c *call) ([]Array, error) {
		return out(foldAxes(c.in[0], c.n.Ints("axes"), c.n.Bool("keep"), func(v []float64) float64 {
			s := 0.0
			for _, x := range v {
				s += x
			}
			return f(s, v)
		}))
	}
}

// foldAxes collects the elements that fall together and replaces them by f of them.
func foldAxes(a Array, axes []int, keep bool, f func(v []float64) float64) Array {
	kept := slices.Clone(a.Shape)
	for _, k := range axes {
		kept[k] = 1
	}
	groups := make([][]float64, product(kept))
	each(a.Shape, func(i int, at []int) {
		o := offset(kept, at)
		groups[o] = append(groups[o], a.Data[i])
	})
	var shape []int
	for k, s := range kept {
		if keep || !slices.Contains(axes, k) {
			shape = append(shape, s)
		}
	}
	y := Zeros(shape...)
	for i, v := range groups {
		y.Data[i] = f(v)
	}
	return y
}

func concat(c *call) ([]Array, error) {
	axis := c.n.Int("axis")
	s := slices.Clone(c.in[0].Shape)
	s[axis] = 0
	for _, a := range c.in {
		s[axis] += a.Shape[axis]
	}
	y, from := Zeros(s...), 0
	for _, a := range c.in {
		each(a.Shape, func(i int, at []int) {
			to := slices.Clone(at)
			to[axis] += from
			y.Data[place(s, to)] = a.Data[i]
		})
		from += a.Shape[axis]
	}
	return out(y)
}

// place is offset without repetition.
func place(shape, at []int) int {
	o := 0
	for k, s := range shape {
		o = o*s + at[k]
	}
	return o
}

// slice takes from an array of the whole shape, or for SliceGrad puts into one.
func slice(c *call, whole []int) ([]Array, error) {
	start, stop, step := c.n.Ints("start"), c.n.Ints("stop"), c.n.Ints("step")
	first, part := make([]int, len(whole)), make([]int, len(whole))
	for k := range whole {
		var err error
		if first[k], part[k], err = graph.ResolveSlice(start[k], stop[k], step[k], whole[k]); err != nil {
			return nil, err
		}
	}
	grad := c.n.Op.Name == "SliceGrad"
	y := Zeros(part...)
	if grad {
		y = Zeros(whole...)
	}
	each(part, func(i int, at []int) {
		from := make([]int, len(at))
		for k := range at {
			from[k] = first[k] + at[k]*step[k]
		}
		if o := place(whole, from); grad {
			y.Data[o] = c.in[0].Data[i]
		} else {
			y.Data[i] = c.in[0].Data[o]
		}
	})
	return out(y)
}
