package server

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
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
		if !(math.Abs(ratio-1) <= 0.08) || plain > 0.75 {
			t.Errorf("%s: the workers move %v times as far as one, %v times if nothing were done", name, ratio, plain)
		}
		part.mean(states[0][part.squares], product[0], n)
		var a, b float64
		for i, x := range states[0][part.squares] {
			a, b = a+float64(x), b+float64(slots[part.squares][i])
		}
		if !(math.Abs(a/b-1) <= 0.15) {
			t.Errorf("%s: a checkpoint has squares of %v, one optimizer has %v", name, a, b)
		}
	}
}

// TestRemembered: what is remembered is the gradient that the rule takes, bit for bit: clipped, and regularised by the tensor's decay, wherever
// the cells begin. Buffers have none. AdaGrad's squares tell what it took.
func TestRemembered(t *testing.T) {
	l, err := trivium.NewLayout(
		trivium.Spec{Name: "weight", Shape: []int{40}, Rate: 1, Decay: 1},
		trivium.Spec{Name: "means", Shape: []int{3}, Buffer: true},
		trivium.Spec{Name: "bias", Shape: []int{9}, Rate: 1},
		trivium.Spec{Name: "half", Shape: []int{33}, Rate: 1, Decay: 0.5},
	)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(7, 8))
	p, g := make([]float32, l.Len()), make([]float32, l.Len())
	for i := range p {
		p[i], g[i] = float32(random.NormFloat64()), float32(random.NormFloat64())
	}
	for _, o := range []trivium.OptimizerSpec{
		{}, {L1: 0.3}, {L2: 0.7}, {L1: 0.3, L2: 0.7}, {ClipValue: 0.5}, {L1: 0.3, L2: 0.7, ClipValue: 0.5},
	} {
		o.Name, o.Rate = "adagrad", 0.1
		for _, isa := range kernel.Available() {
			rule, err := optim.New(o, isa)
			if err != nil {
				t.Fatal(err)
			}
			part := newPart(&trivium.Job{Optimizer: o}, rule)
			for _, from := range []int{0, 12} {
				p, g := p[from:], g[from:]
				last, product, squares, u := make([]float32, len(p)), make([]float32, len(p)), make([]float32, len(p)), make([]float32, len(p))
				part.remember(isa, l, from, p, g, last, product, true)
				rule.Apply(1, l, from, p, g, u, [][]float32{squares})
				for i, x := range last {
					if square := float32(x * x); square != squares[i] || product[i] != squares[i] {
						t.Fatalf("%+v on %v, cell %d: remembered is %v with square %v and product %v, the rule has %v", o, isa, from+i, x, square, product[i], squares[i])
					}
				}
			}
		}
	}
}

func TestTogether(t *testing.T) {
	for _, c := range []struct {
		p    float64
		n    int
		want float64
	}{{1, 3, 3}, {0, 3, 1}, {0.5, 2, 4.0 / 3}, {1e-9, 5, 1}, {7, 2, 2}, {-1, 9, 1}, {0.3, 1, 1}} {
		if got := together(c.p, c.n); !(math.Abs(got-c.want) <= 1e-6) {
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

// TestMerge: each row of many is made what one optimizer keeps by its own steps, and by those alone.
func TestMerge(t *testing.T) {
	const n, cols = 3, 2
	job := &trivium.Job{Optimizer: trivium.OptimizerSpec{Name: "adagrad", Rate: 0.01}, Batch: 100}
	k, err := newKeeper(job, nil, true, n)
	if err != nil {
		t.Fatal(err)
	}
	made := []uint32{0, 1, 7, 90, 30}
	for _, apart := range []bool{false, true} {
		for _, sparse := range []bool{false, true} {
			m := merger{&k.part, apart, n, 90}
			steps, squares, product := slices.Clone(made), make([]float32, cols*len(made)), make([]float32, cols*len(made))
			for i := range squares {
				squares[i], product[i] = float32(i+1), float32(i%3)
			}
			want := slices.Clone(squares)
			m.merge(sparse, steps, squares, product)
			for r, k := range made {
				by, updates := float64(n), k
				if sparse {
					by = together(float64(k)/90, n)
				}
				if sparse && apart {
					updates = uint32(updatesOf(int64(k), 90, n))
				}
				m.part.neutral(want[r*cols:(r+1)*cols], product[r*cols:(r+1)*cols], n, by)
				if steps[r] != updates {
					t.Errorf("apart %v, sparse %v: %d steps are %d updates, want %d", apart, sparse, k, steps[r], updates)
				}
			}
			if !slices.Equal(squares, want) {
				t.Errorf("apart %v, sparse %v: squares %v, want %v", apart, sparse, squares, want)
			}
			as := slices.Clone(squares)
			if m.merge(sparse, slices.Clone(made), as, nil); !slices.Equal(as, squares) {
				t.Errorf("apart %v, sparse %v: squares without products are changed", apart, sparse)
			}
		}
	}
}
