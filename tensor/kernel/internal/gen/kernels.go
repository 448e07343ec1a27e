package main

// The element-wise kernels. Each f equals the Go loop of the function of that name in package kernel.

func binary(name string, op func(b *body, x, y val) val) loop {
	return loop{
		name: name, ins: []string{"a", "b"}, outs: []string{"dst"}, f64: true, stream: true,
		f: func(b *body, in []val, _ val) []val { return []val{op(b, in[0], in[1])} },
	}
}

func unary(name string, op func(b *body, x val) val) loop {
	return loop{
		name: name, ins: []string{"x"}, outs: []string{"dst"}, f64: true, stream: true,
		f: func(b *body, in []val, _ val) []val { return []val{op(b, in[0])} },
	}
}

func scalar(name string, op func(b *body, x, s val) val) loop {
	return loop{
		name: name, ins: []string{"x"}, outs: []string{"dst"}, f64: true, stream: true, scalar: true,
		f: func(b *body, in []val, s val) []val { return []val{op(b, in[0], s)} },
	}
}

// function is an element-wise function of float32 alone: the float64 twin is in Go.
func function(name string, op func(b *body, x val) val) loop {
	l := unary(name, op)
	l.f64, l.long = false, true
	return l
}

// widened is a function that computes in float64.
func widened(name string, op func(b *body, x val) val) loop {
	l := function(name, op)
	l.wide = true
	return l
}

// output is a gradient that takes the output y, or the input, of its function.
func output(name string, op func(b *body, dy, y val) val) loop {
	l := binary(name, op)
	l.ins = []string{"dy", "y"}
	return l
}

var loops = []loop{
	binary("add", (*body).add),
	binary("sub", (*body).sub),
	binary("mul", (*body).mul),
	binary("div", (*body).div),
	binary("max", func(b *body, x, y val) val { return b.nanOr(x, b.max(x, y)) }),
	binary("min", func(b *body, x, y val) val { return b.nanOr(x, b.min(x, y)) }),

	unary("neg", func(b *body, x val) val { return b.xor(x, b.signBit()) }),
	unary("abs", (*body).magnitude),
	unary("square", func(b *body, x val) val { return b.mul(x, x) }),
	unary("sqrt", (*body).sqrt),

	scalar("addScalar", (*body).add),
	scalar("scalarSub", func(b *body, x, s val) val { return b.sub(s, x) }),
	scalar("scale", (*body).mul),
	scalar("divScalar", (*body).div),
	scalar("scalarDiv", func(b *body, x, s val) val { return b.div(s, x) }),
	scalar("maxScalar", func(b *body, x, s val) val { return b.max(s, x) }),
	scalar("clip", func(b *body, x, s val) val { return b.max(b.xor(s, b.signBit()), b.min(s, x)) }),
	{
		name: "triad", ins: []string{"a", "b"}, outs: []string{"dst"}, f64: true, stream: true, scalar: true,
		f: func(b *body, in []val, s val) []val { return []val{b.add(in[0], b.mul(s, in[1]))} },
	},

	function("exp", (*body).exp),
	function("log", (*body).log),
	function("tanh", (*body).tanh),
	function("gelu", (*body).gelu),
	function("sigmoid", func(b *body, x val) val { s, _ := b.sigmoid(x); return s }),

	widened("erf", (*body).erf),

	{
		name: "geluGrad", ins: []string{"dy", "x"}, outs: []string{"dst"}, wide: true,
		f: func(b *body, in []val, _ val) []val { return []val{b.mul(in[0], b.geluSlope(in[1]))} },
	},
	output("reluGrad", func(b *body, dy, y val) val { return b.only(b.cmp(above, y, b.num(0)), dy) }),
	output("tanhGrad", func(b *body, dy, y val) val { return b.mul(dy, b.sub(b.num(1), b.mul(y, y))) }),
	output("sigmoidGrad", func(b *body, dy, y val) val { return b.mul(dy, b.mul(y, b.sub(b.num(1), y))) }),
	{
		name: "softmaxGrad", ins: []string{"dy", "y"}, outs: []string{"dst"}, f64: true, scalar: true,
		f: func(b *body, in []val, s val) []val { return []val{b.mul(in[1], b.sub(in[0], s))} },
	},

	{
		name: "sigmoidLoss", ins: []string{"x", "y"}, outs: []string{"loss", "dx"},
		f: func(b *body, in []val, _ val) []val { l, d := b.sigmoidLoss(in[0], in[1]); return []val{l, d} },
	},

	step("sgd", nil, func(b *body, r val, _ []val) []val { return []val{b.mul(b.param(4), r)} }),
	step("momentum", []string{"v"}, func(b *body, r val, s []val) []val {
		v := b.settle(b.add(b.mul(s[0], b.param(5)), r), settled)
		return []val{b.mul(v, b.param(4)), v}
	}),
	step("nesterov", []string{"v"}, func(b *body, r val, s []val) []val {
		v := b.settle(b.add(b.mul(s[0], b.param(5)), r), settled)
		return []val{b.mul(b.add(r, b.mul(v, b.param(5))), b.param(4)), v}
	}),
	step("adaGrad", []string{"s"}, func(b *body, r val, s []val) []val {
		v := b.add(s[0], b.mul(r, r))
		return []val{b.div(b.mul(r, b.param(4)), b.add(b.sqrt(v), b.param(5))), v}
	}),
	step("rmsProp", []string{"s"}, func(b *body, r val, s []val) []val {
		v := b.settle(b.add(b.mul(s[0], b.param(6)), b.mul(b.mul(r, r), b.param(7))), settledSquare)
		return []val{b.div(b.mul(r, b.param(4)), b.add(b.sqrt(v), b.param(5))), v}
	}),
	step("adam", []string{"m", "v"}, func(b *body, r val, s []val) []val {
		m := b.settle(b.add(b.mul(s[0], b.param(6)), b.mul(r, b.param(7))), settled)
		v := b.settle(b.add(b.mul(s[1], b.param(8)), b.mul(b.mul(r, r), b.param(9))), settledSquare)
		d := b.add(b.mul(b.sqrt(v), b.param(10)), b.param(5))
		return []val{b.div(b.mul(m, b.param(4)), d), m, v}
	}),
	{
		name: "ftrl", ins: []string{"p", "grad", "z", "sq"}, outs: []string{"u", "z", "sq"}, params: true,
		f: func(b *body, in []val, _ val) []val {
			p, g, z, n := in[0], in[1], in[2], in[3]
			n2 := b.add(n, b.mul(g, g))
			root := b.sqrt(n2)
			sigma := b.div(b.sub(root, b.sqrt(n)), b.param(0))
			z = b.add(z, b.sub(g, b.mul(sigma, p)))
			shrunk := b.sub(b.or(b.and(z, b.signBit()), b.param(2)), z) // sign(z)·L1 - z
			w := b.div(shrunk, b.add(b.div(b.add(root, b.param(1)), b.param(0)), b.param(3)))
			w = b.only(b.cmp(notAtMost, b.magnitude(z), b.param(2)), w)
			return []val{b.sub(w, p), z, n2}
		},
	},
	{
		name: "ftrlPart", ins: []string{"p", "grad", "z", "sq", "last", "product"}, outs: []string{"u", "z", "sq", "last", "product"}, params: true, turns: true,
		f: func(b *body, in []val, _ val) []val {
			p, g, z, n, c := in[0], in[1], in[2], in[3], in[5]
			n = b.add(n, b.mul(g, g))
			c = b.add(c, b.mul(g, in[4]))
			mean := b.min(n, b.add(b.mul(n, b.param(4)), b.mul(b.max(b.num(0), c), b.param(5))))
			k := b.add(b.mul(b.add(b.sqrt(b.mul(mean, b.param(6))), b.param(1)), b.param(0)), b.param(3))
			away := b.cmp(differs, p, b.num(0))
			d := b.mul(g, b.choose(away, b.param(7), b.param(8)))
			placed := b.sub(b.xor(b.mul(p, k), b.signBit()), b.or(b.and(p, b.signBit()), b.param(2))) // -p·k - sign(p)·L1
			z = b.add(b.choose(away, placed, z), d)
			stays := b.cmp(less, b.mul(p, z), b.num(0))
			shrunk := b.sub(b.or(b.and(z, b.signBit()), b.param(2)), z) // sign(z)·L1 - z
			w := b.div(b.choose(stays, b.xor(d, b.signBit()), shrunk), k)
			u := b.choose(stays, w, b.sub(w, p))
			u = b.choose(b.cmp(notAtMost, b.magnitude(z), b.param(2)), u, b.sub(b.num(0), p))
			return []val{u, z, n, g, c}
		},
	},
	partRemember(false),
	partRemember(true),
	{
		name: "partScale", ins: []string{"u", "sq", "product"}, outs: []string{"u"}, params: true, turns: true,
		f: func(b *body, in []val, _ val) []val {
			u, v := in[0], in[1]
			of := b.add(b.mul(v, b.param(0)), b.mul(b.max(b.num(0), in[2]), b.param(1)))
			root := b.sqrt(b.div(v, of))
			root = b.choose(b.cmp(above, of, b.num(0)), root, b.num(1))
			root = b.choose(b.cmp(less, of, v), root, b.num(1))
			return []val{b.mul(u, b.mul(root, b.param(2)))}
		},
	},
}

func (b *body) sigmoidLoss(x, y val) (loss, dx val) {
	s, e := b.sigmoid(x)
	loss = b.add(b.sub(b.max(b.num(0), x), b.mul(x, y)), b.log1p(e))
	return loss, b.sub(s, y)
}

// Below these the state of an optimizer is 0: see kernel/step.go, which has them too.
const (
	settled       = 0x1p-100
	settledSquare = 0x1p-120
)

// settle is x, or 0 where it is less than least on either side.
func (b *body) settle(x val, least float64) val {
	return b.only(b.cmp(notLess, b.magnitude(x), b.num(least)), x)
}

// partRemember is what is remembered of a gradient. Parameters: 0 keep, 1 take, 2 L2, 3 L1, 4 and 5 its largest and smallest value.
func partRemember(regularised bool) loop {
	l := loop{name: "partRemember", ins: []string{"grad", "last", "product"}, outs: []string{"last", "product"}, params: true}
	if regularised {
		l.name, l.ins = "partRememberReg", append(l.ins, "p")
	}
	l.f = func(b *body, in []val, _ val) []val {
		r := in[0]
		if regularised {
			r = b.regular(in[3], b.max(b.param(5), b.min(b.param(4), r)), b.param(2), b.param(3))
		}
		return []val{r, b.add(b.mul(in[2], b.param(0)), b.mul(b.mul(r, b.param(1)), in[1]))}
	}
	return l
}

// step is an optimizer's rule, after the gradient was regularised; it has a plain form for no regularisation, which reads no p.
// Parameters: 0 L2, 1 L1, 2 LR·Decay, 4 -LR, from 5 on the rule's own.
func step(name string, slots []string, rule func(b *body, r val, slots []val) []val) loop {
	return loop{
		name: name, ins: append([]string{"grad"}, slots...), outs: append([]string{"u"}, slots...), params: true, rule: true,
		stream: true,
		f:      func(b *body, in []val, _ val) []val { return rule(b, in[0], in[1:]) },
	}
}

// regularised is the form of a step that reads p: r = (g + L2·p) + L1·sign(p), and u -= LR·Decay·p at the end.
func (l loop) regularised() loop {
	rule := l.f
	l.name += "Reg"
	l.ins = append([]string{"p"}, l.ins...)
	l.f = func(b *body, in []val, s val) []val {
		p, g := in[0], in[1]
		out := rule(b, append([]val{b.regular(p, g, b.param(0), b.param(1))}, in[2:]...), s)
		out[0] = b.sub(out[0], b.mul(p, b.param(2)))
		return out
	}
	return l
}

// regular is (g + L2·p) + L1·sign(p).
func (b *body) regular(p, g, l2, l1 val) val {
	sign := b.only(b.cmp(differs, p, b.num(0)), b.or(b.and(p, b.signBit()), l1))
	return b.add(b.add(g, b.mul(p, l2)), sign)
}
