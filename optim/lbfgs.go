package optim

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// LBFGS minimises a loss over all rows by limited-memory BFGS (Nocedal and Wright 2006, algorithms 7.4 and 7.5) with a line search
// for the strong Wolfe conditions (3.5 and 3.6). It is driven: each call of Step asks for the loss and its gradient at a few points.
//
// Its memory is the gradient, a direction and two vectors for each pair of its history: with the parameters (3 + 2·history) × their
// size. The point and gradient at which a search starts lie in the places of the pair that the search will make.
type LBFGS struct {
	layout  *trivium.Layout
	isa     kernel.ISA
	pool    *tensor.Pool
	l2      float64
	history int
	tries   int     // evaluations in one line search
	first   float64 // the length that a search tries first, of the quasi-Newton step
	c1, c2  float64

	grad  trivium.Gradient
	dir   []float32
	s, y  [][]float32 // steps and changes of the gradient, oldest first; up to history
	rho   []float64   // 1 / (s·y)
	alpha []float64

	loss  float64 // at the parameters, if known
	known bool    // loss and grad are those of the parameters

	parts []float64
	// The vector operation under way.
	a, b    []float32
	factor  float32
	onDot   func(i, worker int)
	onAxpy  func(i, worker int)
	onScale func(i, worker int)
}

// An Objective computes the mean loss at p and writes to g the sum of the gradient, whose weight sum it returns.
type Objective func(p trivium.Params, g trivium.Gradient) (lossSum, weightSum float64, err error)

func lbfgsDefaults() map[string]float64 {
	return map[string]float64{"history": 10, "evaluations": 25, "c1": 1e-4, "c2": 0.9}
}

// NewLBFGS returns the optimizer that spec, of name lbfgs, describes, or every mistake in it. It takes l2, rate (1: the
// length that a search tries first), and params history (10), evaluations (25, of one search), c1 (1e-4) and c2 (0.9, of the Wolfe
// conditions).
func NewLBFGS(spec trivium.OptimizerSpec, l *trivium.Layout, cpu *tensor.CPU) (*LBFGS, error) {
	if err := CheckLBFGS(spec); err != nil {
		return nil, err
	}
	params, err := merge(spec.Name, lbfgsDefaults(), spec.Params)
	if err != nil {
		return nil, err
	}
	o := &LBFGS{
		layout: l, isa: kernel.Best(), l2: spec.L2,
		history: int(params["history"]), first: spec.Rate, tries: int(params["evaluations"]), c1: params["c1"], c2: params["c2"],
		grad: trivium.NewGradient(l), dir: tensor.Aligned[float32](l.Len()),
		parts: make([]float64, (l.Len()+blockCells-1)/blockCells),
	}
	if o.first == 0 {
		o.first = 1
	}
	if cpu != nil {
		o.isa, o.pool = cpu.ISA, cpu.Pool
	}
	if l.Len() < forkCells {
		o.pool = nil
	}
	o.alpha = make([]float64, o.history)
	o.onDot, o.onAxpy, o.onScale = o.dotBlock, o.axpyBlock, o.scaleBlock
	return o, nil
}

// CheckLBFGS reports every mistake in spec that can be seen without a layout.
func CheckLBFGS(spec trivium.OptimizerSpec) error {
	var errs []error
	if spec.Name != "lbfgs" {
		errs = append(errs, mistaken("name", "%q is not lbfgs", spec.Name))
	}
	params, err := merge("lbfgs", lbfgsDefaults(), spec.Params)
	errs = append(errs, err)
	if !(spec.Rate >= 0 && spec.Rate <= 1e6) {
		errs = append(errs, mistaken("rate", "lbfgs: rate: want a number from 0 to 1e+06, found %v", spec.Rate))
	}
	if !(spec.L2 >= 0 && spec.L2 <= math.MaxFloat32) {
		errs = append(errs, mistaken("l2", "lbfgs: l2: want a number from 0 to %.2g, found %v", math.MaxFloat32, spec.L2))
	}
	if err == nil && params["c1"] >= params["c2"] {
		errs = append(errs, mistaken("params", "lbfgs: c1 %g must be below c2 %g", params["c1"], params["c2"]))
	}
	for _, f := range []struct {
		name, why string
		set       bool
	}{
		{"schedule", "its line search finds the length of each step", spec.Schedule != ""},
		{"l1", "it wants a loss with a gradient everywhere; ftrl takes l1", spec.L1 != 0},
		{"decay", "it takes l2, which is part of the loss", spec.Decay != 0},
		{"clip_value", "a clipped gradient is not that of the loss", spec.ClipValue != 0},
		{"clip_norm", "a clipped gradient is not that of the loss", spec.ClipNorm != 0},
	} {
		if f.set {
			errs = append(errs, mistaken(f.name, "lbfgs takes no %s: %s", f.name, f.why))
		}
	}
	return errors.Join(errs...)
}

// ErrConverged says that no step makes the loss smaller, as far as float32 can tell.
var ErrConverged = errors.New("optim: lbfgs: converged")

// ErrTooLarge says that there may be a lower loss, and no way to search for it: how steep it falls along its gradient is not known.
var ErrTooLarge = errors.New("optim: lbfgs: the gradient times itself is beyond what float32 holds, 3.4e38; columns of numbers that large, such as times in nanoseconds, want scaling")

// Step makes one update of p: a direction, then a line search along it. It returns the loss before the update, with its L2 term, and
// how often it asked f. After ErrConverged p is what it was.
func (o *LBFGS) Step(p trivium.Params, f Objective) (loss float64, evaluations int, err error) {
	if !o.known {
		if o.loss, err = o.evaluate(p, f); err != nil {
			return o.loss, 1, err
		}
		o.known, evaluations = true, 1
	}
	before := o.loss
	for {
		n, err := o.descend(p, f)
		evaluations += n
		if errors.Is(err, ErrConverged) && len(o.s) > 0 {
			o.s, o.y, o.rho = o.s[:0], o.y[:0], o.rho[:0] // the history misleads: once more along the gradient
			continue
		}
		return before, evaluations, err
	}
}

// evaluate asks f for loss and gradient at p, divides by the weight sum, and adds the L2 term.
func (o *LBFGS) evaluate(p trivium.Params, f Objective) (float64, error) {
	lossSum, weightSum, err := f(p, o.grad)
	if err != nil {
		return 0, err
	}
	if weightSum == 0 {
		return 0, errors.New("optim: lbfgs: the rows' weights sum to 0")
	}
	loss := lossSum / weightSum
	for i := range o.layout.Tensors() {
		spec := o.layout.Spec(i)
		if spec.Tie != "" {
			continue
		}
		from, to := o.layout.Range(i)
		g := o.grad.Flat[from:to]
		if spec.Buffer {
			clear(g)
			continue
		}
		if spec.RowSparse {
			clearUntouched(g, o.grad.Rows[i], o.layout.Cols(i))
		}
		kernel.ScaleInto(o.isa, g, g, float32(weightSum))
		if l2 := o.l2 * float64(spec.Decay); l2 > 0 {
			x := p.Flat[from:to]
			loss += float64(l2 / 2 * o.dot(x, x))
			o.axpy(g, float32(l2), x)
		}
	}
	return loss, nil
}

// clearUntouched zeroes the rows of g that are not in rows, whose cells mean nothing.
func clearUntouched(g []float32, rows []int32, cols int) {
	next := 0
	for _, r := range rows {
		clear(g[next*cols : int(r)*cols])
		next = int(r) + 1
	}
	clear(g[next*cols:])
}

// descend computes a direction and searches along it. On success p, loss and gradient are those of the new point and the history has
// one pair more; else they are what they were.
func (o *LBFGS) descend(p trivium.Params, f Objective) (evaluations int, err error) {
	g := o.grad.Flat
	o.direction()
	slope := o.dot(o.dir, g)
	switch known := slope-slope == 0; {
	case !known && len(o.s) == 0:
		return 0, ErrTooLarge
	case !known || slope >= 0:
		return 0, ErrConverged
	}
	t := o.first
	if len(o.s) == 0 { // no idea of the scale yet: a step of length 1 at most
		t = min(t, t/math.Sqrt(-slope))
	}
	start, startGrad := o.slot()
	copy(start, p.Flat)
	copy(startGrad, g)
	at := o.loss

	evaluations, err = o.search(p, start, t, slope, f)
	if err != nil {
		copy(p.Flat, start)
		copy(g, startGrad)
		o.loss = at
		o.drop()
		return evaluations, err
	}
	// The slot becomes the pair: s = new point - start, y = new gradient - gradient at the start.
	o.subtractFrom(start, p.Flat)
	o.subtractFrom(startGrad, g)
	if sy := o.dot(start, startGrad); sy > 1e-10*o.dot(startGrad, startGrad) && !math.IsInf(sy, 0) {
		o.rho = append(o.rho, 1/sy)
	} else {
		o.drop() // no curvature to learn from
	}
	return evaluations, nil
}

// direction sets dir to -H·grad by the two-loop recursion.
func (o *LBFGS) direction() {
	copy(o.dir, o.grad.Flat)
	n := len(o.s)
	for i := n - 1; i >= 0; i-- {
		o.alpha[i] = o.rho[i] * o.dot(o.s[i], o.dir)
		o.axpy(o.dir, float32(-o.alpha[i]), o.y[i])
	}
	gamma := -1.0
	if n > 0 {
		gamma = -1 / (o.rho[n-1] * o.dot(o.y[n-1], o.y[n-1]))
	}
	o.scale(o.dir, float32(gamma))
	for i := range n {
		beta := -float64(o.rho[i] * o.dot(o.y[i], o.dir)) // dir is negated already, alpha is not
		o.axpy(o.dir, float32(-(o.alpha[i] - beta)), o.s[i])
	}
}

// slot appends a pair to the history, the memory of the oldest one if it is full, without its rho.
func (o *LBFGS) slot() (s, y []float32) {
	n := len(o.s)
	switch {
	case n == o.history:
		s, y = o.s[0], o.y[0]
		copy(o.s, o.s[1:])
		copy(o.y, o.y[1:])
		copy(o.rho, o.rho[1:])
		o.s[n-1], o.y[n-1], o.rho = s, y, o.rho[:n-1]
	case n < cap(o.s) && o.s[:n+1][n] != nil: // memory of a pair that was dropped
		o.s, o.y = o.s[:n+1], o.y[:n+1]
	default:
		o.s = append(o.s, tensor.Aligned[float32](o.layout.Len()))
		o.y = append(o.y, tensor.Aligned[float32](o.layout.Len()))
	}
	return o.s[len(o.s)-1], o.y[len(o.y)-1]
}

// drop takes back what slot appended; the memory stays for the next.
func (o *LBFGS) drop() {
	n := len(o.s) - 1
	o.s, o.y = o.s[:n], o.y[:n]
}

// search finds a step t along dir from start that satisfies the strong Wolfe conditions, or the best decrease among its tries, and
// leaves p, loss and gradient there. slope is that of the loss at 0.
func (o *LBFGS) search(p trivium.Params, start []float32, t, slope float64, f Objective) (evaluations int, err error) {
	type point struct{ t, loss, slope float64 }
	zero := point{0, o.loss, slope}
	n := 0
	try := func(t float64) (point, error) {
		n++
		copy(p.Flat, start)
		o.axpy(p.Flat, float32(t), o.dir)
		loss, err := o.evaluate(p, f)
		if err != nil {
			return point{}, err
		}
		o.loss = loss
		return point{t, loss, o.dot(o.dir, o.grad.Flat)}, nil
	}
	enough := func(x point) bool { return x.loss <= zero.loss+float64(o.c1*x.t*slope) }
	flat := func(x point) bool { return math.Abs(x.slope) <= -o.c2*slope }

	// lo has the lowest loss that is low enough; between lo and hi there is a point that will do. hi.t 0 while there is no bracket.
	lo, hi, bracket := zero, point{}, false
	for n < o.tries {
		x, err := try(t)
		if err != nil {
			return n, err
		}
		switch {
		case !finite.Is(x.loss) || math.IsNaN(x.slope): // too far
			hi, bracket = point{x.t, math.Inf(1), math.NaN()}, true
		case !enough(x) || x.loss >= lo.loss && lo.t > 0:
			hi, bracket = x, true
		case flat(x):
			return n, nil
		case bracket && x.slope*(hi.t-lo.t) >= 0 || !bracket && x.slope >= 0:
			lo, hi, bracket = x, lo, true
		default:
			lo = x
		}
		if !bracket {
			t = min(4*t, 1e10)
			continue
		}
		width := hi.t - lo.t
		if math.Abs(width) <= 1e-9*max(math.Abs(lo.t), math.Abs(hi.t)) {
			break
		}
		t = cubic(lo.t, lo.loss, lo.slope, hi.t, hi.loss, hi.slope)
		switch least, most := lo.t+float64(0.1*width), lo.t+float64(0.9*width); {
		case lo.t == 0 && !(t >= least): // none was short enough, and of columns that are large the first may be too long by many orders
			t = least
		case math.IsNaN(t) || (t-least)*(t-most) > 0:
			t = lo.t + width/2
		}
	}
	if lo.t == 0 || lo.loss >= zero.loss {
		return n, ErrConverged
	}
	if _, err := try(lo.t); err != nil { // not flat enough, but lower
		return n, err
	}
	return n, nil
}

// cubic returns the minimum of the cubic through two points with their slopes (Nocedal and Wright, 3.59); NaN if it has none.
func cubic(a, fa, da, b, fb, db float64) float64 {
	if math.IsInf(fb, 0) {
		return math.NaN()
	}
	d1 := da + db - 3*(fa-fb)/(a-b)
	square := float64(d1*d1) - float64(da*db)
	if square < 0 {
		return math.NaN()
	}
	d2 := math.Copysign(math.Sqrt(square), b-a)
	return b - (b-a)*(db+d2-d1)/(db-da+2*d2)
}

// Pairs returns the history, oldest first, as views: what a checkpoint keeps. The memory is the optimizer's own until the next Step.
func (o *LBFGS) Pairs() (s, y [][]float32) { return o.s, o.y }

// Restore makes the history that of s and y, copied: the next Step continues as if these had been its own.
func (o *LBFGS) Restore(s, y [][]float32) error {
	return o.Take(slices.Clone(s), slices.Clone(y), func() {})
}

// Take is Restore for a caller that has no more use for s and y: as soon as a pair is copied it is nil there, and taken is called, so that
// not all of them are in memory twice.
func (o *LBFGS) Take(s, y [][]float32, taken func()) error {
	if len(s) != len(y) || len(s) > o.history {
		return fmt.Errorf("optim: lbfgs: %d steps and %d gradient changes for a history of %d", len(s), len(y), o.history)
	}
	for i := range s {
		if len(s[i]) != o.layout.Len() || len(y[i]) != o.layout.Len() {
			return fmt.Errorf("optim: lbfgs: pair %d: want %d cells, found %d and %d", i, o.layout.Len(), len(s[i]), len(y[i]))
		}
	}
	o.s, o.y, o.rho, o.known = o.s[:0], o.y[:0], o.rho[:0], false
	for i := range s {
		a, b := o.slot()
		copy(a, s[i])
		copy(b, y[i])
		s[i], y[i] = nil, nil
		o.rho = append(o.rho, 1/o.dot(a, b))
		taken()
	}
	return nil
}

// Gradient returns the mean gradient, with its L2 term, at the last point that Step left, a view.
func (o *LBFGS) Gradient() trivium.Gradient { return o.grad }

// dot is a·b: float32 within a block of 4,096, float64 above, the same at any number of threads.
func (o *LBFGS) dot(a, b []float32) float64 {
	o.a, o.b = a, b
	n := (len(a) + blockCells - 1) / blockCells
	o.pool.Run(n, o.onDot)
	var sum float64
	for _, p := range o.parts[:n] {
		sum += p
	}
	return sum
}

func (o *LBFGS) dotBlock(i, _ int) {
	from, to := i*blockCells, min((i+1)*blockCells, len(o.a))
	o.parts[i] = float64(kernel.Dot(o.isa, o.a[from:to], o.b[from:to]))
}

// axpy is a += x·b.
func (o *LBFGS) axpy(a []float32, x float32, b []float32) {
	o.a, o.b, o.factor = a, b, x
	o.pool.Run((len(a)+blockCells-1)/blockCells, o.onAxpy)
}

func (o *LBFGS) axpyBlock(i, _ int) {
	from, to := i*blockCells, min((i+1)*blockCells, len(o.a))
	kernel.Axpy(o.isa, o.a[from:to], o.factor, o.b[from:to])
}

// scale is a = x·a.
func (o *LBFGS) scale(a []float32, x float32) {
	o.a, o.factor = a, x
	o.pool.Run((len(a)+blockCells-1)/blockCells, o.onScale)
}

func (o *LBFGS) scaleBlock(i, _ int) {
	a := o.a[i*blockCells : min((i+1)*blockCells, len(o.a))]
	kernel.Scale(o.isa, a, a, o.factor)
}

// subtractFrom is a = b - a.
func (o *LBFGS) subtractFrom(a, b []float32) { kernel.Sub(o.isa, a, b, a) }
