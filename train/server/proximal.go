package server

import (
	"math"

	"github.com/trivium-ml/trivium"
)

// A proximal is FTRL at a server that steps with each of n workers' gradients. Its state, z and n, says where a parameter is: at 0 where
// |z| ≤ L1, else at (sign(z)·L1 - z)/k with k = (β + √n)/α + L2. One optimizer adds to z the mean of all workers' gradients, less what keeps the
// parameter in its place while n grows, and to n the mean's square. A server that did so with each worker's would have n times the z and
// n to n² times the n: of it L1, L2 and β would be an nth, and steps up to √n times as long. So an nth of each gradient is added to z, and n is
// what one optimizer's is, by the estimate that part makes of the mean's squares.
//
// That n may become smaller too, and of a row of a row-sparse tensor it depends on how many workers touch it. So z is not kept while the
// parameter is not 0: it is the one that puts it there, whatever n is by then. Where the parameter is 0, z is as one optimizer sums it up.
type proximal struct{ steep, beta, l1, l2 float64 } // steep is 1/α

// of is that of a tensor.
func (f proximal) of(spec *trivium.Spec) proximal {
	rate, decay := float64(spec.Rate), float64(spec.Decay)
	return proximal{f.steep / rate, f.beta, f.l1 * decay, f.l2 * decay}
}

// k is what z is divided by where n is squares.
func (f proximal) k(squares float64) float64 { return (f.beta+math.Sqrt(squares))*f.steep + f.l2 }

// z is the one that puts a parameter, which is not 0, at p.
func (f proximal) z(p, k float64) float64 { return -p*k - math.Copysign(f.l1, p) }

// place writes into u how far the parameters p, the cells of l from `from` on, move by a gradient that was remembered: one of n workers', of
// whom `by` make an update.
func (r *part) place(l *trivium.Layout, from int, p, u, z, v, last, product []float32, n int, by float64) {
	own, others := float32(1/by), float32((by-1)/by)
	share, times := 1/float64(n), 1/summed(n, by)
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
		f := r.ftrl.of(&spec)
		p, u, z, last := p[a:b], u[a:b], z[a:b], last[a:b] // of one length, so that the loop has no bounds to check
		v, product := v[a:b], product[a:b]
		for i, g := range last[:len(p)] {
			at, to, sum := float64(p[i]), 0.0, float64(z[i])
			v[i] += g * g
			k := f.k(float64(meanSquare(v[i], product[i], own, others)) * times)
			if at != 0 {
				sum = f.z(at, k)
			}
			sum += share * float64(g)
			if !(math.Abs(sum) <= f.l1) {
				to = (math.Copysign(f.l1, sum) - sum) / k
			}
			z[i], u[i] = float32(sum), float32(to-at)
		}
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
		f := r.ftrl.of(&spec)
		for i := a; i < b; i++ {
			if p[i] != 0 && n[i] > 0 { // where n is 0 there was no gradient, and z is as it was
				z[i] = float32(f.z(float64(p[i]), f.k(float64(n[i]))))
			}
		}
	}
}
