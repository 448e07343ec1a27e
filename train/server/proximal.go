package server

import (
	"math"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A proximal is FTRL at a server that steps with each of n workers' gradients. Its state, z and n, says where a parameter is: at 0 where
// |z| ≤ L1, else at (sign(z)·L1 - z)/k with k = (β + √n)/α + L2. One optimizer adds to z the mean of all workers' gradients, less what keeps the
// parameter in its place while n grows, and to n the mean's square. A server that did so with each worker's would have n times the z and
// n to n² times the n: of it L1, L2 and β would be an nth, and steps up to √n times as long. So an nth of each gradient is added to z, and n is
// what one optimizer's is, by the estimate that part makes of the mean's squares.
//
// That n may become smaller too, and of a row of a row-sparse tensor it depends on how many workers touch it. So z is not kept while the
// parameter is not 0: it is the one that puts it there, whatever n is by then. Where the parameter is 0, z is as one optimizer sums it up.
type proximal struct {
	rate float64
	kernel.FTRLParams
}

// of is that of a tensor.
func (f *proximal) of(spec *trivium.Spec) kernel.FTRLParams {
	h := f.FTRLParams
	h.Alpha = float32(f.rate * float64(spec.Rate))
	h.L1 *= spec.Decay
	h.L2 *= spec.Decay
	return h
}

// placing is how a gradient is taken in of which `by` make an update: how much of it, where its parameter is not 0 and where it is, and how many
// times what is kept of its square one optimizer has.
func placing(by, times, share, atZero float64) kernel.FTRLPartParams {
	return kernel.FTRLPartParams{
		Own: float32(1 / by), Others: float32((by - 1) / by), Times: float32(times), Share: float32(share), AtZero: float32(atZero),
	}
}

// place writes into u how far the parameters p, the cells of l from `from` on, move by one of several workers' gradients g. The first one counts as
// if it had no noise. u may be g.
func (r *part) place(
	isa kernel.ISA, l *trivium.Layout, from int, p, g, u, z, v, last, product []float32, first bool, h kernel.FTRLPartParams,
) {
	if r.clip > 0 {
		kernel.Clip(isa, u, g, r.clip)
		g = u
	}
	for i := range l.Tensors() {
		spec := l.Spec(i)
		a, b := l.Range(i)
		if a, b = max(a, from)-from, min(b, from+len(p))-from; spec.Tie != "" || a >= b {
			continue
		}
		if spec.Buffer {
			clear(u[a:b])
			continue
		}
		if first {
			copy(last[a:b], g[a:b])
		}
		h.FTRLParams = r.ftrl.of(&spec)
		kernel.FTRLPart(isa, u[a:b], p[a:b], g[a:b], z[a:b], v[a:b], last[a:b], product[a:b], h)
	}
}

// settle makes z what puts the parameters p, all of l, where they are beside n, which was estimated anew: so a checkpoint says the same with both.
func (r *part) settle(l *trivium.Layout, p, z, n []float32) {
	for i := range l.Tensors() {
		spec := l.Spec(i)
		a, b := l.Range(i)
		if spec.Tie != "" || spec.Buffer {
			continue
		}
		h := r.ftrl.of(&spec)
		for i := a; i < b; i++ {
			if p[i] != 0 && n[i] > 0 { // where n is 0 there was no gradient, and z is as it was
				k := (float64(h.Beta)+math.Sqrt(float64(n[i])))/float64(h.Alpha) + float64(h.L2)
				z[i] = float32(-float64(p[i])*k - math.Copysign(float64(h.L1), float64(p[i])))
			}
		}
	}
}
