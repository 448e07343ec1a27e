package kernel

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

var halves = map[string]Half{"f16": F16, "bf16": BF16}

// Every half, and every 8191st float32, has the same bits on every ISA, NaN included.
func TestHalfBits(t *testing.T) {
	var x []float32
	for b := uint64(0); b < 1<<32; b += 8191 {
		x = append(x, math.Float32frombits(uint32(b)))
	}
	all := make([]byte, 0, 2<<16)
	for h := range 1 << 16 {
		all = append(all, byte(h), byte(h>>8))
	}
	for name, h := range halves {
		narrow, wide := make([]byte, 2*len(x)), make([]float32, 1<<16)
		Narrow(GoExact, h, narrow, x)
		Widen(GoExact, h, wide, all)
		for _, isa := range Available() {
			got, w := make([]byte, 2*len(x)), make([]float32, 1<<16)
			if Narrow(isa, h, got, x); !bytes.Equal(got, narrow) {
				t.Errorf("%s: %v narrows to other bits", name, isa)
			}
			Widen(isa, h, w, all)
			for i := range w {
				if math.Float32bits(w[i]) != math.Float32bits(wide[i]) {
					t.Fatalf("%s: %v widens %#04x to %v, want %v", name, isa, i, w[i], wide[i])
				}
			}
		}
	}
}

// Any length, at any address, and nothing beyond it.
func TestHalfLengths(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	draw := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(random.NormFloat64() * math.Pow(10, float64(random.IntN(14)-7)))
			if random.IntN(9) == 0 {
				x[i] = []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 0, 1e-45, 65520, -65519}[random.IntN(7)]
			}
		}
		return x
	}
	for name, h := range halves {
		for n := range 70 {
			x, e, add := draw(n), draw(n), draw(n+1)
			for i := range e {
				if e[i]-e[i] != 0 {
					e[i] = 1
				}
			}
			run := func(isa ISA) (p []byte, kept, wide, sum []float32) {
				p, kept = make([]byte, 2*n+3), append(append([]float32(nil), e...), 7)
				wide, sum = make([]float32, n+1), append([]float32(nil), add...)
				Narrow(isa, h, p[1:1+2*n], x) // and now the same, and what is beyond
				NarrowKeep(isa, h, p[1:1+2*n], kept[:n], x)
				Widen(isa, h, wide[:n], p[1:])
				WidenAdd(isa, h, sum[:n], p[1:])
				return p, kept, wide, sum
			}
			p, kept, wide, sum := run(GoExact)
			if p[0] != 0 || p[2*n+1] != 0 || kept[n] != 7 || wide[n] != 0 {
				t.Fatalf("%s of %d: wrote beyond its end", name, n)
			}
			for i := range n {
				all := e[i] + x[i]
				if want := all - wide[i]; want-want == 0 && kept[i] != want || want-want != 0 && kept[i] != 0 {
					t.Fatalf("%s of %d: of %v went %v, and %v is kept", name, n, all, wide[i], kept[i])
				}
			}
			for _, isa := range Available() {
				p2, kept2, wide2, sum2 := run(isa)
				same := bytes.Equal(p, p2)
				for _, v := range [][2][]float32{{kept, kept2}, {wide, wide2}, {sum, sum2}} {
					same = same && sameOrNaN(v[0], v[1])
				}
				if !same {
					t.Fatalf("%s of %d: %v differs", name, n, isa)
				}
			}
		}
	}
}

func sameOrNaN(a, b []float32) bool {
	for i, v := range a {
		if math.Float32bits(v) != math.Float32bits(b[i]) && (v == v || b[i] == b[i]) {
			return false
		}
	}
	return true
}

func BenchmarkHalf(b *testing.B) {
	const n = 1 << 16
	x, e, p := make([]float32, n), make([]float32, n), make([]byte, 2*n)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range x {
		x[i] = float32(random.NormFloat64() * 1e-3)
	}
	for _, name := range []string{"f16", "bf16"} {
		h := halves[name]
		for _, isa := range []ISA{Go, Best()} {
			for what, f := range map[string]func(){
				"narrow": func() { Narrow(isa, h, p, x) },
				"keep":   func() { NarrowKeep(isa, h, p, e, x) },
				"widen":  func() { Widen(isa, h, e, p) },
				"add":    func() { WidenAdd(isa, h, e, p) },
			} {
				b.Run(fmt.Sprintf("%s/%s/%v", name, what, isa), func(b *testing.B) {
					b.SetBytes(4 * n)
					for b.Loop() {
						f()
					}
				})
			}
		}
	}
}
