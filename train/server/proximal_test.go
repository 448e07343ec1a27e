package server

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// slowPlace is part.place parameter by parameter, in float64: the formulas of proximal, word by word.
func slowPlace(r *part, l *trivium.Layout, from int, p, g, u, z, v, last, product []float32, first bool, n int, by float64) {
	share, times := 1/float64(n), 1/summed(n, by)
	own, others := float32(1/by), float32((by-1)/by)
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
		h := r.ftrl.of(&spec)
		l1, l2 := float64(h.L1), float64(h.L2)
		for i := a; i < b; i++ {
			x, at, to, sum := g[i], float64(p[i]), 0.0, float64(z[i])
			if r.clip > 0 {
				x = min(max(x, -r.clip), r.clip)
			}
			if first {
				last[i] = x
			}
			product[i] += x * last[i]
			last[i] = x
			v[i] += x * x
			k := (float64(h.Beta)+math.Sqrt(float64(meanSquare(v[i], product[i], own, others))*times))/float64(h.Alpha) + l2
			if at != 0 {
				sum = -at*k - math.Copysign(l1, at)
			}
			sum += share * float64(x)
			if !(math.Abs(sum) <= l1) {
				to = (math.Copysign(l1, sum) - sum) / k
			}
			z[i], u[i] = float32(sum), float32(to-at)
		}
	}
}

// A placed is what part.place works on: parameters of two tensors, with a buffer between them, and their state.
type placed struct {
	part part
	l    *trivium.Layout
	p, u []float32
	z, n []float32
	last []float32
	of   []float32
}

func newPlaced(tb testing.TB, o trivium.OptimizerSpec, cells int) *placed {
	l, err := trivium.NewLayout(
		trivium.Spec{Name: "weights", Shape: []int{cells}, Rate: 1, Decay: 1},
		trivium.Spec{Name: "mean", Shape: []int{3}, Buffer: true},
		trivium.Spec{Name: "bias", Shape: []int{max(1, cells/10)}, Rate: 2, Decay: 0},
	)
	if err != nil {
		tb.Fatal(err)
	}
	rule, err := optim.New(o, kernel.Best())
	if err != nil {
		tb.Fatal(err)
	}
	x := &placed{part: newPart(&trivium.Job{Optimizer: o}, rule), l: l}
	for _, v := range []*[]float32{&x.p, &x.u, &x.z, &x.n, &x.last, &x.of} {
		*v = make([]float32, l.Len())
	}
	return x
}

// TestPlaceIsTheLoop: what kernels make of FTRL at a server is what the formulas say, for all of a model and for a shard of it.
func TestPlaceIsTheLoop(t *testing.T) {
	const steps, n = 60, 3
	for _, o := range []trivium.OptimizerSpec{
		{Name: "ftrl", Rate: 0.05},
		{Name: "ftrl", Rate: 0.05, L1: 0.3, L2: 0.2, Params: map[string]float64{"beta": 0.5}},
		{Name: "ftrl", Rate: 0.05, L1: 0.1, ClipValue: 0.7},
	} {
		for _, cut := range [][2]int{{0, 223}, {37, 211}} {
			quick, slow := newPlaced(t, o, 200), newPlaced(t, o, 200)
			random := rand.New(rand.NewPCG(3, 4))
			for i := range quick.p {
				quick.p[i] = float32(random.IntN(5)-2) / 20
			}
			copy(slow.p, quick.p)
			a, b := cut[0], cut[1]
			var zeros int
			for step := range steps {
				by := []float64{3, 1, 1.7}[step%3]
				g := make([]float32, b-a)
				for i := range g {
					g[i] = float32(random.NormFloat64()) + float32(i%3-1)/2
				}
				u := slices.Clone(g) // u may be g
				quick.part.place(kernel.Best(), quick.l, a, quick.p[a:b], u, u, quick.z[a:b], quick.n[a:b], quick.last[a:b], quick.of[a:b], step == 0,
					placing(by, 1/summed(n, by), 1.0/n, 1.0/n))
				slowPlace(&slow.part, slow.l, a, slow.p[a:b], g, slow.u[a:b], slow.z[a:b], slow.n[a:b], slow.last[a:b], slow.of[a:b], step == 0, n, by)
				copy(quick.u[a:b], u)
				kernel.AddInto(kernel.Best(), quick.p[a:b], u)
				kernel.AddInto(kernel.Best(), slow.p[a:b], slow.u[a:b])
				for i := range quick.p {
					for k, v := range [][2]float32{{quick.p[i], slow.p[i]}, {quick.z[i], slow.z[i]}, {quick.n[i], slow.n[i]}, {quick.last[i], slow.last[i]}, {quick.of[i], slow.of[i]}} {
						if !(math.Abs(float64(v[0]-v[1])) <= 1e-5*(1+math.Abs(float64(v[1])))) {
							t.Fatalf("%v, cells from %d, step %d: %s of cell %d is %v, want %v", o, a, step, []string{"p", "z", "n", "the last gradient", "the products"}[k], i, v[0], v[1])
						}
					}
					if quick.p[i] == 0 {
						zeros++
					}
				}
				copy(slow.p, quick.p) // else what rounding does at 0 would grow
				copy(slow.z, quick.z)
			}
			if o.L1 > 0 && zeros < steps {
				t.Errorf("%v: %d parameters were at 0 in %d steps: the test shows too little", o, zeros, steps)
			}
		}
	}
}

// BenchmarkPlace is what FTRL at a server makes of a worker's gradient of softmax regression on pictures, and of single rows: by kernels, by the
// loop over parameters, and, to compare, one optimizer's FTRL of as many parameters.
func BenchmarkPlace(b *testing.B) {
	for _, cells := range []int{1, 10, 7840} {
		for _, l1 := range []float64{0, 0.1} {
			o := trivium.OptimizerSpec{Name: "ftrl", Rate: 0.05, L1: l1}
			x := newPlaced(b, o, cells)
			rule, err := optim.New(o, kernel.Best())
			if err != nil {
				b.Fatal(err)
			}
			random := rand.New(rand.NewPCG(3, 4))
			var g [4][]float32
			for k := range g {
				g[k] = make([]float32, len(x.p))
				for i := range g[k] {
					g[k][i] = float32(random.NormFloat64())
				}
			}
			run := func(name string, f func(g []float32)) {
				b.Run(fmt.Sprintf("%s/%d/l1=%v", name, cells, l1), func(b *testing.B) {
					for _, v := range [][]float32{x.p, x.z, x.n, x.last, x.of} {
						clear(v)
					}
					for k := 0; b.Loop(); k++ {
						f(g[k%len(g)])
						kernel.AddInto(kernel.Best(), x.p, x.u)
					}
				})
			}
			run("kernels", func(g []float32) {
				x.part.place(kernel.Best(), x.l, 0, x.p, g, x.u, x.z, x.n, x.last, x.of, false, placing(3, 1.0/3, 1.0/3, 1.0/3))
			})
			run("loop", func(g []float32) { slowPlace(&x.part, x.l, 0, x.p, g, x.u, x.z, x.n, x.last, x.of, false, 3, 3) })
			run("one optimizer", func(g []float32) { rule.Apply(2, x.l, 0, x.p, g, x.u, [][]float32{x.z, x.n}) })
		}
	}
}
