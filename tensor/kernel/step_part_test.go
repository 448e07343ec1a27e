package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// copies are slices of their own with the same cells.
func copies(from [][]float32) (to [][]float32) {
	for _, v := range from {
		to = append(to, append([]float32(nil), v...))
	}
	return to
}

// TestPartRemember: the bits are the same everywhere, and those of the formula in float64 but for rounding, with what regularises and without, where
// the gradient is the first and where it is not.
func TestPartRemember(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 13))
	for _, h := range []PartRememberParams{
		{Keep: 0.99, Take: 0.01},
		{Keep: 1, Take: 1},
		{Keep: 1, Take: 1, L1: 0.5},
		{Keep: 0.9, Take: 0.1, L2: 0.25},
		{Keep: 0.9, Take: 0.1, L2: 0.25, L1: 0.5, Clip: 0.75},
		{Keep: 0.9, Take: 0.1, Clip: 0.5},
	} {
		for _, first := range []bool{false, true} {
			for _, n := range lengths() {
				off := r.IntN(17)
				p, g := plain[float32](r, n+off)[off:], plain[float32](r, n+off)[off:]
				for i := 0; i < n; i += 5 {
					p[i] = 0
				}
				begun := [][]float32{plain[float32](r, n), plain[float32](r, n)}
				var want [][]float32
				for _, isa := range Available() {
					x := copies(begun)
					PartRemember(isa, x[0], x[1], p, g, h, first)
					if isa == GoExact {
						want = x
					}
					for k := range want {
						wantSame(t, fmt.Sprintf("%+v first %v: %s on %v", h, first, []string{"last", "product"}[k], isa), x[k], want[k])
					}
				}
				for i := range p {
					x, last := float64(g[i]), float64(begun[0][i])
					if c := float64(h.Clip); c > 0 {
						x = min(max(x, -c), c)
					}
					x += float64(h.L2) * float64(p[i])
					if p[i] != 0 {
						x += math.Copysign(float64(h.L1), float64(p[i]))
					}
					if first {
						last = x
					}
					c := float64(h.Keep)*float64(begun[1][i]) + float64(h.Take)*x*last
					within := 1e-6 * (1 + math.Abs(x) + math.Abs(float64(g[i])))
					if got := float64(want[0][i]); !(math.Abs(got-x) <= within) {
						t.Fatalf("%+v: of gradient %v at %v is remembered %v, want %v", h, g[i], p[i], got, x)
					}
					if got := float64(want[1][i]); !(math.Abs(got-c) <= within*(1+math.Abs(last)+math.Abs(float64(begun[1][i])))) {
						t.Fatalf("%+v first %v: the products are %v, want %v", h, first, got, c)
					}
				}
			}
		}
	}
	nan := float32(math.NaN())
	for _, isa := range Available() {
		for _, h := range []PartRememberParams{{Keep: 0.5, Take: 0.5}, {Keep: 0.5, Take: 0.5, Clip: 1}} {
			last, product := make([]float32, 20), make([]float32, 20)
			g := make([]float32, 20)
			g[0], g[19] = nan, nan
			if PartRemember(isa, last, product, make([]float32, 20), g, h, false); last[0] == last[0] || last[19] == last[19] || last[1] != 0 {
				t.Errorf("on %v, %+v: of a gradient that is NaN is remembered %v and %v, beside %v", isa, h, last[0], last[19], last[1])
			}
		}
	}
}

// TestPartScale: the bits are the same everywhere, and those of the formula in float64 but for rounding, whether gradients have noise, or none, or
// nothing is known of them.
func TestPartScale(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 14))
	h := PartScaleParams{Own: 0.25, Others: 0.75, Share: 0.5}
	var longer, same int
	for _, n := range lengths() {
		off := r.IntN(17)
		v, c := plain[float32](r, n+off)[off:], plain[float32](r, n+off)[off:]
		Square(Go, v, v)
		for i := range v {
			switch i % 7 {
			case 0:
				v[i] = 0 // no gradient yet
			case 1:
				c[i] = 2 * v[i] // of which the root would be smaller
			case 2:
				v[i], c[i] = float32(math.Inf(1)), 1 // diverged
			}
		}
		u := plain[float32](r, n)
		var want []float32
		for _, isa := range Available() {
			x := copies([][]float32{u})[0]
			PartScale(isa, x, v, c, h)
			if isa == GoExact {
				want = x
			}
			if want != nil {
				wantSame(t, "PartScale on "+isa.String(), x, want)
			}
		}
		for i, u := range u {
			s := 0.5
			if of := 0.25*float64(v[i]) + 0.75*max(float64(c[i]), 0); of > 0 && of < float64(v[i]) {
				s *= math.Sqrt(float64(v[i]) / of)
				longer++
			} else {
				same++
			}
			if got := float64(want[i]); !(math.Abs(got-s*float64(u)) <= 1e-6*math.Abs(s*float64(u))) {
				t.Fatalf("u %v, squares %v, products %v: scaled to %v, want %v", u, v[i], c[i], got, s*float64(u))
			}
		}
	}
	if longer < 1000 || same < 1000 {
		t.Errorf("%d updates became longer, and %d did not: the test shows too little", longer, same)
	}
}

// TestFTRLPart: the bits are the same everywhere, and those of the formula in float64 but for rounding, whether a parameter moves on, stops at 0,
// crosses it, or leaves it.
func TestFTRLPart(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 12))
	names := []string{"u", "z", "n", "last", "product"}
	for _, l1 := range []float32{0, 1.5} {
		h := FTRLPartParams{FTRLParams{Alpha: 0.3, Beta: 1, L1: l1, L2: 0.1}, 0.25, 0.75, 0.25, 0.25, 0.5}
		var moved, stopped, crossed, left int
		for _, n := range lengths() {
			off := r.IntN(17)
			p, g := plain[float32](r, n+off)[off:], plain[float32](r, n+off)[off:]
			for i := 0; i < n; i += 5 {
				p[i] = 0
			}
			for i := 0; i < n; i += 3 {
				g[i] *= 100
			}
			begun := [][]float32{g, plain[float32](r, n), plain[float32](r, n), plain[float32](r, n), plain[float32](r, n)} // u may be g
			Square(Go, begun[2], begun[2])
			var want [][]float32
			for _, isa := range Available() {
				var x [][]float32
				for _, v := range begun {
					x = append(x, append([]float32(nil), v...))
				}
				FTRLPart(isa, x[0], p, x[0], x[1], x[2], x[3], x[4], h)
				if isa == GoExact {
					want = x
				}
				for k := range want {
					wantSame(t, names[k]+" of FTRLPart on "+isa.String(), x[k], want[k])
				}
			}
			for i, p := range p {
				g, z, n, last, c := float64(g[i]), float64(begun[1][i]), float64(begun[2][i]), float64(begun[3][i]), float64(begun[4][i])
				at, l1 := float64(p), float64(l1)
				n, c = n+g*g, c+g*last
				k := (1+math.Sqrt(0.25*min(n, 0.25*n+0.75*max(c, 0))))/0.3 + 0.1
				share := 0.5
				if at != 0 {
					z, share = -at*k-math.Copysign(l1, at), 0.25
				}
				scale := math.Abs(z) + math.Abs(g) + l1
				z += share * g
				to := 0.0
				if math.Abs(z) > l1 {
					to = (math.Copysign(l1, z) - z) / k
				}
				switch {
				case to == 0:
					stopped++
				case at == 0:
					left++
				case at*to < 0:
					crossed++
				default:
					moved++
				}
				within := [...]float64{scale / k, scale, n, 0, math.Abs(c) + math.Abs(g*last)}
				if at*to > 0 && math.Abs(z) > 1.001*l1 { // far from 0 only the way counts
					within[0] = math.Abs(to - at)
				}
				for j, v := range [...]float64{to - at, z, n, g, c} {
					if got := float64(want[j][i]); !(math.Abs(got-v) <= 1e-6*within[j]) {
						t.Fatalf("%s of p %v, g %v is %v, want %v", names[j], p, g, got, v)
					}
				}
			}
		}
		if moved < 1000 || crossed < 1000 || left < 1000 || l1 > 0 && stopped < 1000 {
			t.Errorf("l1 %v: of the parameters %d moved, %d stopped at 0, %d crossed it and %d left it: the test shows too little", l1, moved, stopped, crossed, left)
		}
	}
	for _, isa := range Available() {
		for from, what := range map[int]string{1: "gradient", 5: "mean of products"} {
			var x [7][]float32 // u, g, p, z, n, product, last
			for k := range x {
				x[k] = slices.Repeat([]float32{1}, leastPart) // so many are assembly's
			}
			x[from][leastPart-1] = float32(math.NaN())
			FTRLPart(isa, x[0], x[2], x[1], x[3], x[4], x[6], x[5], FTRLPartParams{FTRLParams: FTRLParams{Alpha: 1, L1: 1}, Own: 0.5, Others: 0.5, Times: 1, Share: 1, AtZero: 1})
			if u := x[0][leastPart-1]; u == u || x[0][0] != x[0][0] {
				t.Errorf("on %v a %s that is NaN makes an update of %v, and of %v beside it", isa, what, u, x[0][0])
			}
		}
	}
}

// BenchmarkPart is what a step of Adam by one of several workers costs beside Adam, for 79,510 parameters.
func BenchmarkPart(b *testing.B) {
	const n = 79_510
	r := rand.New(rand.NewPCG(15, 15))
	p, g, u, m, v, last, product := plain[float32](r, n), plain[float32](r, n), plain[float32](r, n), plain[float32](r, n), plain[float32](r, n), plain[float32](r, n), plain[float32](r, n)
	Square(Go, v, v)
	for _, isa := range []ISA{Go, Best()} {
		for name, f := range map[string]func(){
			"Adam": func() {
				Adam(isa, u, p, g, m, v, AdamParams{Regular: Regular{LR: 1e-3}, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Step: 9})
			},
			"PartRemember": func() { PartRemember(isa, last, product, p, g, PartRememberParams{Keep: 0.999, Take: 0.001}, false) },
			"PartScale":    func() { PartScale(isa, m, v, product, PartScaleParams{Own: 0.25, Others: 0.75, Share: 1}) },
		} {
			b.Run(fmt.Sprintf("%s/%v", name, isa), func(b *testing.B) {
				for b.Loop() {
					f()
				}
			})
		}
	}
}
