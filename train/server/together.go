package server

import (
	"math/bits"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A part makes the update that an optimizer makes of one worker's gradient a part of the one that n workers make together, whether the
// optimizer is a worker's own or the server's, which steps as gradients arrive.
//
// For a rule that is linear in the gradient that is a share of it. A rule that divides by the root of the mean of squares, such as Adam,
// is not linear: a worker's gradient is noisier than the mean of n, which is what local divides by, so that its steps are too short, by
// up to √n; Adam on a third of the batch is 4 % behind in loss, without any staleness. A gradient is g = μ + noise. The squares of a
// worker's have the mean μ² + σ², those of the mean of n have μ² + σ²/n. Successive gradients are of different rows, so their noise is
// independent, and the mean of their products is μ². With c, the mean of these products, kept as the rule keeps its squares v, the
// squares of the mean of n gradients are (v + (n - 1)c)/n, and the update grows by the root of v over that.
//
// A row of a row-sparse tensor is touched by some of the workers only. Where each touches it with probability p, they make np steps of it
// where local makes 1 - (1 - p)ⁿ: the ratio takes the place of n. So a row that one worker touches at a time moves as far as under local. Of that
// row local has a gradient an nth as long, since it divides by the rows of all: see updater.step for what a server keeps of it, and ownRule for what
// a worker does.
type part struct {
	linear     bool
	squares    int       // the slot that has them; -1: none
	keep, take float32   // v ← keep × v + take × g²
	l1, l2     float32   // which the rule adds to the gradient
	clip       float32   // 0: none
	ftrl       *proximal // nil: another rule
}

func newPart(job *trivium.Job, rule trivium.Optimizer) part {
	x := job.Optimizer
	r := part{squares: -1, l1: float32(x.L1), l2: float32(x.L2), clip: float32(x.ClipValue)}
	param := func(name string, normal float64) float32 {
		if v, ok := x.Params[name]; ok {
			return float32(v)
		}
		return float32(normal)
	}
	switch x.Name {
	case "", "sgd", "momentum", "nesterov":
		r.linear = true
	case "adam", "adamw":
		r.keep = param("beta2", 0.999)
		r.take = 1 - r.keep
	case "rmsprop":
		r.keep = param("rho", 0.99)
		r.take = 1 - r.keep
	case "adagrad", "ftrl":
		r.keep, r.take = 1, 1
	}
	named, ok := rule.(*optim.Rule)
	if !ok || r.take == 0 {
		return r
	}
	if x.Name == "ftrl" { // L1 and L2 are no part of its gradient
		r.ftrl = &proximal{named.Rate(1), kernel.FTRLParams{Beta: param("beta", 1), L1: r.l1, L2: r.l2}}
		r.l1, r.l2 = 0, 0
	}
	r.squares = slices.IndexFunc(named.SlotNames(), func(s string) bool { return s == "squares" || s == "n" })
	return r
}

// together is the number of gradients that a step of n workers is made of, where each worker's has it with probability p: np/(1 - (1 - p)ⁿ). That is
// n over the sum of the first n powers of 1 - p, which is added up here: no difference is taken, and so no digits are lost where p is small.
func together(p float64, n int) float64 {
	q := 1 - min(max(p, 0), 1)
	sum, power := 1.0, q // of the first m powers, and q to the power m, from m = 1 on: the leading bits of n
	for bit := bits.Len(uint(n)) - 2; bit >= 0; bit-- {
		sum += float64(sum * power)
		power *= power
		if n>>bit&1 == 1 {
			sum = 1 + float64(q*sum)
			power *= q
		}
	}
	return max(1, float64(n)/sum)
}

// remember takes in g, a mean gradient at p, before the rule does: the cells of l from `from` on, with what is known of them. The first
// one counts as if it had no noise.
func (r *part) remember(isa kernel.ISA, l *trivium.Layout, from int, p, g, last, product []float32, first bool) {
	for i := range l.Tensors() {
		spec := l.Spec(i)
		a, b := l.Range(i)
		if a, b = max(a, from)-from, min(b, from+len(p))-from; spec.Tie != "" || spec.Buffer || a >= b {
			continue
		}
		kernel.PartRemember(isa, last[a:b], product[a:b], p[a:b], g[a:b], kernel.PartRememberParams{
			Keep: r.keep, Take: r.take, L2: r.l2 * spec.Decay, L1: r.l1 * spec.Decay, Clip: r.clip,
		}, first)
	}
}

// scale makes u, an update by a rule whose state is now this, its share of the one by n gradients' mean; product is nil where the rule has no squares.
func (r *part) scale(isa kernel.ISA, u []float32, slots [][]float32, product []float32, share float32, n float64) {
	if product == nil || n <= 1 {
		if share != 1 {
			kernel.Scale(isa, u, u, share)
		}
		return
	}
	kernel.PartScale(isa, u, slots[r.squares], product, kernel.PartScaleParams{Own: float32(1 / n), Others: float32((n - 1) / n), Share: share})
}

// meanSquare is the square of n gradients' mean, of whose squares the mean is v and of whose products; own is 1/n and others (n - 1)/n.
func meanSquare(v, product, own, others float32) float32 {
	return min(v, float32(own*v)+float32(others*max(product, 0)))
}

// mean makes v the squares of n gradients' mean: what one optimizer has that goes on alone.
func (r *part) mean(v, product []float32, n float64) {
	own, others := float32(1/n), float32((n-1)/n)
	for i := range v {
		v[i] = meanSquare(v[i], product[i], own, others)
	}
}

// sums reports whether the rule sums up squares, and forgets none.
func (r *part) sums() bool { return r.keep == 1 }

// summed is how many times as large as one optimizer's a sum of squares is at a server that steps with each of n workers' gradients, `by` of them
// an update. They are n times as large as their parts of the mean over all workers' rows, and n / by times the mean over those that have the row.
func summed(n int, by float64) float64 { return float64(n) * float64(n) / by }

// neutral makes v, the squares of such a server, those that one optimizer of all workers would have: a checkpoint's, whoever goes on from it.
func (r *part) neutral(v, product []float32, n int, by float64) {
	r.mean(v, product, by)
	if r.sums() {
		times := float32(summed(n, by))
		for i := range v {
			v[i] /= times
		}
	}
}

// taken makes v, the squares of a checkpoint, and the products beside them those that such a server goes on with. Sums without products are the
// same squares of the mean for every number of workers that touch a row, which is not known where a run begins. Where n is no power of two,
// what as many workers go on with may have another last bit than what was saved: there no bits are promised.
func (r *part) taken(v, product []float32, n int) {
	if !r.sums() {
		copy(product, v)
		return
	}
	times := float32(summed(n, 1))
	for i := range v {
		v[i] *= times
	}
	clear(product)
}

// A merger makes what a server keeps, which steps as the gradients of n workers arrive, or with all of a round, what one optimizer would keep.
type merger struct {
	part  *part
	apart bool  // each worker's round is a step of its own
	n     int   // workers
	most  int64 // steps that any cell had in this run
}

// merge makes steps, which were made of rows in this run, the updates that they are, and the squares of those rows' cells, in place, one optimizer's;
// product is nil where squares are that already. sparse: the rows are those of a row-sparse tensor.
func (m *merger) merge(sparse bool, steps []uint32, squares, product []float32) {
	cols := len(squares) / max(1, len(steps))
	for i, k := range steps {
		by := float64(m.n)
		if sparse {
			by = together(float64(k)/float64(max(1, m.most)), m.n)
		}
		if a, b := i*cols, (i+1)*cols; product != nil {
			m.part.neutral(squares[a:b], product[a:b], m.n, by)
		}
		if sparse && m.apart {
			steps[i] = uint32(updatesOf(int64(k), m.most, m.n))
		}
	}
}
