package graphtest

import (
	"fmt"
	"math"

	"github.com/trivium-ml/trivium/graph"
)

func activate(act string, x float64) float64 {
	switch graph.Activation(act) {
	case graph.WithReLU:
		return math.Max(x, 0)
	case graph.WithTanh:
		return math.Tanh(x)
	case graph.WithSigma:
		return sigmoid(x)
	}
	return x
}

var linearKernels = map[string]kernel{
	"MatMul": func(c *call) ([]Array, error) { return out(matmul(c.in[0], c.in[1], c.n.Bool("ta"), c.n.Bool("tb"))) },
	"Dense": func(c *call) ([]Array, error) {
		return out(finish(matmul(c.in[0], c.in[1], false, false), c.in[2:], c.n.Str("act")))
	},
	"SparseMatMul": func(c *call) ([]Array, error) {
		w := c.in[3]
		y := Zeros(len(c.in[0].Data)-1, w.Shape[1])
		return []Array{y}, entries(c.in[0], len(c.in[1].Data), func(r, j int) error {
			k := int(c.in[1].Data[j])
			if k < 0 || k >= w.Shape[0] {
				return fmt.Errorf("index %d outside [0,%d)", k, w.Shape[0])
			}
			for n := range w.Shape[1] {
				y.Data[r*w.Shape[1]+n] += c.in[2].Data[j] * w.Data[k*w.Shape[1]+n]
			}
			return nil
		})
	},
	"SparseMatMulGradRows": func(c *call) ([]Array, error) {
		values, dy := c.in[1], c.in[2]
		n := dy.Shape[1]
		y := Zeros(len(values.Data), n)
		return []Array{y}, entries(c.in[0], len(values.Data), func(r, j int) error {
			for k := range n {
				y.Data[j*n+k] = values.Data[j] * dy.Data[r*n+k]
			}
			return nil
		})
	},
	"SparseMatMulGradWeights": func(c *call) ([]Array, error) {
		dy := c.in[3]
		n := dy.Shape[1]
		y := Zeros(c.n.Int("rows"), n)
		return []Array{y}, entries(c.in[0], len(c.in[1].Data), func(r, j int) error {
			i := int(c.in[1].Data[j])
			if i < 0 || i >= y.Shape[0] {
				return fmt.Errorf("index %d outside [0,%d)", i, y.Shape[0])
			}
			for k := range n {
				y.Data[i*n+k] += c.in[2].Data[j] * dy.Data[r*n+k]
			}
			return nil
		})
	},
	"SparseMatMulGradValues": func(c *call) ([]Array, error) {
		w, dy := c.in[2], c.in[3]
		n := dy.Shape[1]
		y := Zeros(len(c.in[1].Data))
		return []Array{y}, entries(c.in[0], len(y.Data), func(r, j int) error {
			i := int(c.in[1].Data[j])
			for k := range n {
				y.Data[j] += w.Data[i*n+k] * dy.Data[r*n+k]
			}
			return nil
		})
	},
}

// entries calls f with the row and number of each entry of a CSR matrix. Row pointers may start above 0, for a run of rows.
func entries(indptr Array, total int, f func(row, j int) error) error {
	for r := range len(indptr.Data) - 1 {
		lo, hi := int(indptr.Data[r]), int(indptr.Data[r+1])
		if lo < 0 || hi < lo || hi > total {
			return fmt.Errorf("row %d: entries %d to %d of %d", r, lo, hi, total)
		}
		for j := lo; j < hi; j++ {
			if err := f(r, j); err != nil {
				return err
			}
		}
	}
	return nil
}

func matmul(a, b Array, ta, tb bool) Array {
	at := func(m Array, t bool, i, j int) float64 {
		if t {
			i, j = j, i
		}
		return m.Data[i*m.Shape[1]+j]
	}
	m, k, n := a.Shape[0], a.Shape[1], b.Shape[1]
	if ta {
		m, k = k, m
	}
	if tb {
		n = b.Shape[0]
	}
	y := Zeros(m, n)
	for i := range m {
		for j := range n {
			for l := range k {
				y.Data[i*n+j] += at(a, ta, i, l) * at(b, tb, l, j)
			}
		}
	}
	return y
}

// finish adds a bias, if there is one, along the last axis and applies an activation.
func finish(y Array, bias []Array, act string) Array {
	for i := range y.Data {
		if len(bias) > 0 {
			y.Data[i] += bias[0].Data[i%len(bias[0].Data)]
		}
		y.Data[i] = activate(act, y.Data[i])
	}
	return y
}

var networkKernels = map[string]kernel{
	"Softmax": func(c *call) ([]Array, error) {
		y := c.in[0].Clone()
		eachRow(y, func(_ int, v []float64) { copy(v, softmax(v)) })
		return out(y)
	},
	"SoftmaxGrad": func(c *call) ([]Array, error) {
		g, n := c.in[0].Clone(), 0
		eachRow(g, func(_ int, dy []float64) {
			y := c.in[1].Data[n : n+len(dy)]
			n += len(dy)
			s := 0.0
			for i := range dy {
				s += dy[i] * y[i]
			}
			for i := range dy {
				dy[i] = y[i] * (dy[i] - s)
			}
		})
		return out(g)
	},
	"SoftmaxCrossEntropy": func(c *call) ([]Array, error) {
		loss := Zeros(c.in[0].Shape[0])
		return []Array{loss}, labelled(c, func(r int, v []float64, label int) {
			_, largest, sum := exps(v)
			loss.Data[r] = math.Log(sum) + largest - v[label]
		})
	},
	"SoftmaxCrossEntropyGrad": func(c *call) ([]Array, error) {
		g := Zeros(c.in[0].Shape...)
		return []Array{g}, labelled(c, func(r int, v []float64, label int) {
			p := softmax(v)
			p[label]--
			for i := range p {
				g.Data[r*len(p)+i] = p[i] * c.in[2].Data[r]
			}
		})
	},
	"SigmoidCrossEntropy": func(c *call) ([]Array, error) {
		x, t := c.in[0], c.in[1]
		loss := Zeros(x.Shape[0])
		for i, v := range x.Data {
			loss.Data[i/(len(x.Data)/x.Shape[0])] += math.Max(v, 0) - v*t.Data[i] + math.Log1p(math.Exp(-math.Abs(v)))
		}
		return out(loss)
	},
	"SigmoidCrossEntropyGrad": func(c *call) ([]Array, error) {
		g := c.in[0].Clone()
		for i, v := range g.Data {
			g.Data[i] = c.in[2].Data[i/(len(g.Data)/g.Shape[0])] * (sigmoid(v) - c.in[1].Data[i])
		}
		return out(g)
	},
	"Conv2D": func(c *call) ([]Array, error) {
		s, err := c.n.Types[0].Shape.Sizes(c.axes)
		y := Zeros(s...)
		windows(c, c.in[0].Shape, c.in[1].Shape[:2], s, func(o, i, k int) {
			f := c.in[1]
			ic, oc := f.Shape[2], f.Shape[3]
			for a := range ic {
				for b := range oc {
					y.Data[o*oc+b] += c.in[0].Data[i*ic+a] * f.Data[(k*ic+a)*oc+b]
				}
			}
		})
		return []Array{finish(y, c.in[2:], c.n.Str("act"))}, err
	},
	"Conv2DGradInput": func(c *call) ([]Array, error) {
		s, err := c.sizes("shape")
		dx, dy, f := Zeros(s...), c.in[0], c.in[1]
		ic, oc := f.Shape[2], f.Shape[3]
		windows(c, s, f.Shape[:2], dy.Shape, func(o, i, k int) {
			for a := range ic {
				for b := range oc {
					dx.Data[i*ic+a] += dy.Data[o*oc+b] * f.Data[(k*ic+a)*oc+b]
				}
			}
		})
		return []Array{dx}, err
	},
	"Conv2DGradFilter": func(c *call) ([]Array, error) {
		s, err := c.sizes("shape")
		x, dy, df := c.in[0], c.in[1], Zeros(s...)
		ic, oc := s[2], s[3]
		windows(c, x.Shape, s[:2], dy.Shape, func(o, i, k int) {
			for a := range ic {
				for b := range oc {
					df.Data[(k*ic+a)*oc+b] += x.Data[i*ic+a] * dy.Data[o*oc+b]
				}
			}
		})
		return []Array{df}, err
	},
	"MaxPool": func(c *call) ([]Array, error) {
		x := c.in[0]
		s, err := c.n.Types[0].Shape.Sizes(c.axes)
		y, arg := Zeros(s...), Zeros(s...)
		for i := range y.Data {
			y.Data[i], arg.Data[i] = math.Inf(-1), -1
		}
		image := product(x.Shape[1:])
		windows(c, x.Shape, c.n.Ints("window"), s, func(o, i, _ int) {
			for ch := range x.Shape[3] {
				from, to := i*x.Shape[3]+ch, o*x.Shape[3]+ch
				if v := x.Data[from]; v > y.Data[to] || v != v && y.Data[to] == y.Data[to] || arg.Data[to] < 0 {
					y.Data[to], arg.Data[to] = v, float64(from%image)
				}
			}
		})
		return []Array{y, arg}, err
	},
	"MaxPoolGrad": func(c *call) ([]Array, error) {
		s, err := c.sizes("shape")
		dx, dy := Zeros(s...), c.in[0]
		image, pooled := product(s[1:]), product(dy.Shape[1:])
		for i, v := range dy.Data {
			dx.Data[i/pooled*image+int(c.in[1].Data[i])] += v
		}
		return []Array{dx}, err
	},
	"Dropout": func(c *call) ([]Array, error) {
		rate := c.n.Float("rate")
		key := graph.Key(c.m.Seed, c.m.Step, c.m.Shard, c.n.ID, c.path...)
		y, mask := c.in[0].Clone(), Zeros(c.in[0].Shape...)
		for i := range mask.Data {
			if graph.Keep(key, i, rate) {
				mask.Data[i] = 1 / (1 - rate)
			}
			y.Data[i] *= mask.Data[i]
		}
		return []Array{y, mask}, nil
	},
	"LSTMCell":     lstm,
	"LSTMCellGrad": lstmGrad,
}

func eachRow(a Array, f func(r int, v []float64)) {
	n := a.Shape[len(a.Shape)-1]
	for r := 0; n > 0 && r < len(a.Data)/n; r++ {
		f(r, a.Data[r*n:(r+1)*n])
	}
}

// exps is e^(v−max), the maximum, and the sum.
func exps(v []float64) (e []float64, largest, sum float64) {
	largest = math.Inf(-1)
	for _, x := range v {
		largest = math.Max(largest, x)
	}
	for _, x := range v {
		e = append(e, math.Exp(x-largest))
		sum += math.Exp(x - largest)
	}
	return e, largest, sum
}

func softmax(v []float64) []float64 {
	e, _, sum := exps(v)
	for i := range e {
		e[i] /= sum
	}
	return e
}

// labelled calls f with each row of logits and its label.
func labelled(c *call, f func(r int, v []float64, label int)) (err error) {
	eachRow(c.in[0], func(r int, v []float64) {
		label := int(c.in[1].Data[r])
		if label < 0 || label >= len(v) {
			err = fmt.Errorf("row %d: label %d outside [0,%d)", r, label, len(v))
			return
		}
		f(r, v, label)
	})
	return err
}

// windows calls f for each output pixel o, input pixel i and window cell k that meet, in row-major order of windows and cells.
func windows(c *call, x, k, y []int, f func(o, i, k int)) {
	strides, pads := c.n.Ints("strides"), c.n.Ints("pads")
	each(y[:3], func(o int, at []int) {
		each(k[:2], func(cell int, in []int) {
			h, w := at[1]*strides[0]+in[0]-pads[0], at[2]*strides[1]+in[1]-pads[2]
			if h >= 0 && h < x[1] && w >= 0 && w < x[2] {
				f(o, (at[0]*x[1]+h)*x[2]+w, cell)
			}
		})
	})
}

func lstm(c *call) ([]Array, error) {
	x, h, cell := c.in[0], c.in[1], c.in[2]
	z := matmul(x, c.in[3], false, false)
	zh := matmul(h, c.in[4], false, false)
	u := h.Shape[1]
	nh, nc := Zeros(h.Shape...), Zeros(h.Shape...)
	for r := range h.Shape[0] {
		for j := range 4 * u {
			p := &z.Data[r*4*u+j]
			*p += zh.Data[r*4*u+j] + c.in[5].Data[j]
			if j/u == 2 {
				*p = math.Tanh(*p)
			} else {
				*p = sigmoid(*p)
			}
		}
		for j := range u {
			g := z.Data[r*4*u:]
			nc.Data[r*u+j] = g[u+j]*cell.Data[r*u+j] + g[j]*g[2*u+j]
			nh.Data[r*u+j] = g[3*u+j] * math.Tanh(nc.Data[r*u+j])
		}
	}
	return []Array{nh, nc, z}, nil
}

func lstmGrad(c *call) ([]Array, error) {
	gates, cell, next, dh, dn := c.in[0], c.in[1], c.in[2], c.in[3], c.in[4]
	u := cell.Shape[1]
	dz, dc := Zeros(gates.Shape...), Zeros(cell.Shape...)
	for r := range cell.Shape[0] {
		for j := range u {
			g, d, at := gates.Data[r*4*u:], dz.Data[r*4*u:], r*u+j
			i, f, a, o := g[j], g[u+j], g[2*u+j], g[3*u+j]
			t := math.Tanh(next.Data[at])
			s := dn.Data[at] + dh.Data[at]*o*(1-t*t)
			d[j] = s * a * i * (1 - i)
			d[u+j] = s * cell.Data[at] * f * (1 - f)
			d[2*u+j] = s * i * (1 - a*a)
			d[3*u+j] = dh.Data[at] * t * o * (1 - o)
			dc.Data[at] = s * f
		}
	}
	return []Array{dz, dc}, nil
}
