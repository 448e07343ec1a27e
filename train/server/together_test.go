package server

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// TestPart: the steps of n workers, each on a noisy gradient of its own, add up to those on the mean of them, under every rule that
// divides by the root of squares, though each worker knows its own gradients only.
func TestPart(t *testing.T) {
	const cells, rounds, n = 64, 3000, 4
	l, err := trivium.NewLayout(trivium.Spec{Name: "x", Shape: []int{cells}, Rate: 1, Decay: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"adam", "rmsprop", "adagrad"} {
		job := &trivium.Job{Optimizer: trivium.OptimizerSpec{Name: name, Rate: 0.01}}
		make1 := func() (trivium.Optimizer, [][]float32) {
			o, err := optim.New(job.Optimizer, kernel.Go)
			if err != nil {
				t.Fatal(err)
			}
			slots := make([][]float32, o.Slots())
			for i := range slots {
				slots[i] = make([]float32, cells)
			}
			return o, slots
		}
		alone, slots := make1()
		part := newPart(job, alone)
		var rules [n]trivium.Optimizer
		var states [n][][]float32
		var last, product [n][]float32
		for w := range n {
			rules[w], states[w] = make1()
			last[w], product[w] = make([]float32, cells), make([]float32, cells)
		}
		random := rand.New(rand.NewPCG(5, 6))
		p, u, g, mean := make([]float32, cells), make([]float32, cells), make([]float32, cells), make([]float32, cells)
		var ratio, plain float64 // of what the workers' steps came to, and would have without the products
		for round := int64(1); round <= rounds; round++ {
			clear(mean)
			var moved, unscaled float64
			for w := range n {
				for i := range g {
					g[i] = 0.2 + float32(random.NormFloat64())
					mean[i] += g[i] / n
				}
				part.remember(kernel.Go, l, 0, p, g, last[w], product[w], round == 1)
				rules[w].Apply(round, l, 0, p, g, u, states[w])
				for _, x := range u {
					unscaled += float64(x) / n
				}
				part.scale(kernel.Go, u, states[w], product[w], 1.0/n, n)
				for _, x := range u {
					moved += float64(x)
				}
			}
			alone.Apply(round, l, 0, p, mean, u, slots)
			var want float64
			for _, x := range u {
				want += float64(x)
			}
			if round > rounds/2 {
				ratio += moved / want / (rounds / 2)
				plain += unscaled / want / (rounds / 2)
			}
		}
		t.Logf("%s: the workers move %.3f times as far as one, %.3f times if nothing were done", name, ratio, plain)
		if math.Abs(ratio-1) > 0.08 || plain > 0.75 {
			t.Errorf("%s: the workers move %v times as far as one, %v times if nothing were done", name, ratio, plain)
		}
		part.mean(states[0][part.squares], product[0], n)
		var a, b float64
		for i, x := range states[0][part.squares] {
			a, b = a+float64(x), b+float64(slots[part.squares][i])
		}
		if math.Abs(a/b-1) > 0.15 {
			t.Errorf("%s: a checkpoint has squares of %v, one optimizer has %v", name, a, b)
		}
	}
}

// TestRemembered: what is remembered is the gradient that the rule takes: clipped, and regularised by the tensor's decay. Buffers have none.
func TestRemembered(t *testing.T) {
	l, err := trivium.NewLayout(trivium.Spec{Name: "weights", Shape: []int{12}, Decay: 2}, trivium.Spec{Name: "means", Shape: []int{3}, Buffer: true}, trivium.Spec{Name: "bias", Shape: []int{9}})
	if err != nil {
		t.Fatal(err)
	}
	job := &trivium.Job{Optimizer: trivium.OptimizerSpec{Name: "adagrad", Rate: 0.1, L1: 0.5, L2: 0.25, ClipValue: 2}}
	rule, err := optim.New(job.Optimizer, kernel.Go)
	if err != nil {
		t.Fatal(err)
	}
	part := newPart(job, rule)
	const from = 1 // cells may be asked for from anywhere
	n := l.Len() - from
	p, g, last, product := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range p {
		p[i], g[i] = float32(i%3-1), float32(i-5) // exact in binary
	}
	part.remember(kernel.Best(), l, from, p, g, last, product, true)
	for i := range p {
		cell, want := i+from, float32(0)
		if bias := cell >= 15; bias || cell < 12 {
			decay := float32(2)
			if bias {
				decay = l.Spec(2).Decay
			}
			want = min(max(g[i], -2), 2) + 0.25*decay*p[i]
			if p[i] != 0 {
				want += float32(math.Copysign(float64(0.5*decay), float64(p[i])))
			}
		}
		if last[i] != want || product[i] != want*want {
			t.Errorf("of gradient %v at %v, cell %d, is remembered %v and %v, want %v and its square", g[i], p[i], cell, last[i], product[i], want)
		}
	}
}

func TestTogether(t *testing.T) {
	for _, c := range []struct {
		p    float64
		n    int
		want float64
	}{{1, 3, 3}, {0, 3, 1}, {0.5, 2, 4.0 / 3}, {1e-9, 5, 1}, {7, 2, 2}, {-1, 9, 1}, {0.3, 1, 1}} {
		if got := together(c.p, c.n); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("p %v, n %d: %v, want %v", c.p, c.n, got, c.want)
		}
	}
	for n := 1; n < 70; n++ {
		for _, p := range []float64{1e-20, 1e-3, 0.25, 0.9, 1} {
			one, q := big.NewFloat(1).SetPrec(2000), new(big.Float).SetPrec(2000)
			q.Sub(one, big.NewFloat(p))
			none := big.NewFloat(1).SetPrec(2000)
			for range n {
				none.Mul(none, q)
			}
			x := new(big.Float).SetPrec(2000).SetFloat64(float64(n))
			want, _ := x.Mul(x, big.NewFloat(p)).Quo(x, none.Sub(one, none)).Float64()
			if got := together(p, n); !(math.Abs(got/want-1) <= 1e-14) {
				t.Errorf("p %v, n %d: %v, want %v", p, n, got, want)
			}
		}
	}
}
