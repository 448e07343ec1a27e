package kernel

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// drawCode draws values of many sizes, zeros of both signs among them, and with others also what is not finite.
func drawCode(random *rand.Rand, n int, others bool) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(random.NormFloat64() * math.Pow(10, float64(random.IntN(6)-3)))
		switch k := random.IntN(20); {
		case k == 0:
			x[i] = 0
		case k == 1:
			x[i] = float32(math.Copysign(0, -1))
		case k == 2 && others:
			x[i] = []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), math.MaxFloat32}[random.IntN(4)]
		}
	}
	return x
}

// TestPeak: the largest absolute value is found wherever it is, NaN above infinity above all numbers.
func TestPeak(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 9))
	for _, isa := range Available() {
		if got := Peak(isa, nil); got != 0 {
			t.Errorf("%v: %v of nothing", isa, got)
		}
		for n := 1; n < 70; n++ {
			x := drawCode(random, n, false)
			want := float32(0)
			for _, v := range x {
				want = max(want, float32(math.Abs(float64(v))))
			}
			if got := Peak(isa, x); got != want {
				t.Fatalf("%v: %v of %d values, want %v", isa, got, n, want)
			}
			for at := range x {
				was := x[at]
				for _, v := range []float32{-1e6, float32(math.Inf(-1)), float32(math.NaN())} {
					x[at] = v
					if got := Peak(isa, x); math.Float32bits(got) != math.Float32bits(v)&0x7fffffff {
						t.Fatalf("%v: %v of %d values, want that of %v at %d", isa, got, n, v, at)
					}
				}
				x[at] = was
			}
		}
	}
}

// TestInt8: whole numbers are the nearest, ties to even, what is dropped is the rest, and all ISAs have the same bits, at any address.
func TestInt8(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for n := range 70 {
		x, add := drawCode(random, n, false), drawCode(random, n+1, true)
		by := 127 / max(Peak(Go, x), 1e-30)
		for i := range x {
			if random.IntN(5) == 0 {
				x[i] = (float32(random.IntN(254)-127) + 0.5) / by // perhaps a tie
			}
		}
		by = min(by, 127/max(Peak(Go, x), 1e-30))
		scale := 1 / by
		if n%7 == 0 {
			scale = math.MaxFloat32 / 3 // what is dropped of large numbers is not finite
		}
		run := func(isa ISA) (q []byte, kept, wide, sum []float32) {
			q, kept = make([]byte, 2*n+3), append(append([]float32(nil), x...), 7)
			wide, sum = make([]float32, n+1), append([]float32(nil), add...)
			ToInt8(isa, q[n+2:2*n+2], x, by)
			ToInt8Keep(isa, q[1:n+1], kept[:n], by, scale)
			FromInt8(isa, wide[:n], q[1:n+1], scale)
			AddInt8(isa, sum[:n], q[1:n+1], scale)
			return q, kept, wide, sum
		}
		q, kept, wide, sum := run(GoExact)
		if q[0] != 0 || q[n+1] != 0 || q[2*n+2] != 0 || kept[n] != 7 || wide[n] != 0 || !sameOrNaN(sum[n:], add[n:]) || !bytes.Equal(q[1:n+1], q[n+2:2*n+2]) {
			t.Fatalf("of %d: wrote beyond an end, or two ways round differently", n)
		}
		for i, v := range x {
			if want := math.RoundToEven(float64(float32(v * by))); float64(int8(q[1+i])) != want || wide[i] != float32(want)*scale {
				t.Fatalf("of %v times %v came %d and %v, want %v", v, by, int8(q[1+i]), wide[i], want)
			}
			if want := v - wide[i]; want-want == 0 && kept[i] != want || want-want != 0 && kept[i] != 0 {
				t.Fatalf("of %v went %v, and %v is kept", v, wide[i], kept[i])
			}
			if want := add[i] + wide[i]; want == want && sum[i] != want {
				t.Fatalf("%v and %v are %v", add[i], wide[i], sum[i])
			}
		}
		for _, isa := range Available() {
			q2, kept2, wide2, sum2 := run(isa)
			if !bytes.Equal(q, q2) || !sameOrNaN(kept, kept2) || !sameOrNaN(wide, wide2) || !sameOrNaN(sum, sum2) {
				t.Fatalf("of %d: %v differs", n, isa)
			}
		}
	}
}

// TestSigns: signs are those of the values, also of zeros and NaN, and all ISAs have the same bits.
func TestSigns(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 6))
	for n := range 70 {
		x, add := drawCode(random, n, true), drawCode(random, n+1, true)
		scale := []float32{0.75, 0, math.MaxFloat32, float32(math.NaN())}[n%4]
		size := (n + 7) / 8
		run := func(isa ISA) (p []byte, kept, wide, sum []float32) {
			p, kept = bytes.Repeat([]byte{0xff}, size+2), append(append([]float32(nil), x...), 7)
			wide, sum = make([]float32, n+1), append([]float32(nil), add...)
			Signs(isa, p[1:], x)
			KeepSigns(isa, kept[:n], scale)
			FromSigns(isa, wide[:n], p[1:], scale)
			AddSigns(isa, sum[:n], p[1:], scale)
			return p, kept, wide, sum
		}
		p, kept, wide, sum := run(GoExact)
		if p[0] != 0xff || p[size+1] != 0xff || kept[n] != 7 || wide[n] != 0 || !sameOrNaN(sum[n:], add[n:]) || n%8 > 0 && p[size]>>(n%8) != 0 {
			t.Fatalf("of %d: wrote beyond an end, or a bit beyond the last", n)
		}
		for i, v := range x {
			if got := p[1+i/8]>>(i%8)&1 == 1; got != math.Signbit(float64(v)) {
				t.Fatalf("of %v the sign is %v", v, got)
			}
			if want := float32(math.Copysign(float64(scale), float64(v))); scale == scale && math.Float32bits(wide[i]) != math.Float32bits(want) {
				t.Fatalf("of %v and %v came %v", v, scale, wide[i])
			}
			if want := v - wide[i]; want-want == 0 && kept[i] != want || want-want != 0 && kept[i] != 0 {
				t.Fatalf("of %v went %v, and %v is kept", v, wide[i], kept[i])
			}
			if want := add[i] + wide[i]; want == want && sum[i] != want {
				t.Fatalf("%v and %v are %v", add[i], wide[i], sum[i])
			}
		}
		for _, isa := range Available() {
			p2, kept2, wide2, sum2 := run(isa)
			if !bytes.Equal(p, p2) || !sameOrNaN(kept, kept2) || !sameOrNaN(wide, wide2) || !sameOrNaN(sum, sum2) {
				t.Fatalf("of %d: %v differs", n, isa)
			}
		}
	}
}

// TestLaneSums: the four sums are those of every fourth value, in their order, with the same bits on all ISAs.
func TestLaneSums(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 6))
	for n := range 70 {
		x := drawCode(random, n, n%5 == 0)
		abs, squares := [4]float64{1, 2, 3, 4}, [4]float64{5, 6, 7, 8}
		want, want2 := abs, squares
		for i, v := range x {
			want[i%4] += math.Abs(float64(v))
			want2[i%4] += float64(v) * float64(v)
		}
		for _, isa := range Available() {
			s, s2 := abs, squares
			AbsSum(isa, &s, x)
			SquareSum(isa, &s2, x)
			for k := range s {
				if s[k] != want[k] && want[k] == want[k] || s2[k] != want2[k] && want2[k] == want2[k] || (s[k] == s[k]) != (want[k] == want[k]) || (s2[k] == s2[k]) != (want2[k] == want2[k]) {
					t.Fatalf("%v of %d: %v and %v, want %v and %v", isa, n, s, s2, want, want2)
				}
			}
		}
	}
}

// TestCodes: codes lie one after the other, the first in the lowest bits, of every width, and come back as they were; all ISAs have the same
// bits.
func TestCodes(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 6))
	for most := 1; most <= 127; most++ {
		width := bits.Len(uint(2 * most))
		n := random.IntN(70)
		levels, add := make([]int, n), drawCode(random, n+1, true)
		x, size := make([]float32, n), (n*width+7)/8
		want := make([]byte, size)
		for i := range levels {
			levels[i] = random.IntN(2*most+1) - most
			x[i] = float32(RoundBias + levels[i])
			for k := range width {
				want[(i*width+k)/8] |= byte((levels[i]+most)>>k&1) << ((i*width + k) % 8)
			}
		}
		for _, isa := range Available() {
			for room := range 10 { // beyond the codes
				p := make([]byte, size+room+1)
				p[size+room] = 0xa5
				got := Codes(isa, p[:size+room], x, width, most)
				if got != size || !bytes.Equal(p[:size], want) || p[size+room] != 0xa5 {
					t.Fatalf("%v: %d values of %d bits are %d bytes, %x, want %d, %x", isa, n, width, got, p, size, want)
				}
				wide, sum := make([]float32, n+1), append([]float32(nil), add...)
				FromCodes(isa, wide[:n], p[:size+room], width, most, 0.3)
				AddCodes(isa, sum[:n], p[:size+room], width, most, 0.3)
				for i, l := range levels {
					v := float32(float32(l) * 0.3) // rounded, also where the compiler would fuse it with what is added
					if math.Float32bits(wide[i]) != math.Float32bits(v) || add[i] == add[i] && sum[i] != add[i]+v {
						t.Fatalf("%v: level %d of %d bits is %v, and with %v %v", isa, l, width, wide[i], add[i], sum[i])
					}
				}
				if wide[n] != 0 || !sameOrNaN(sum[n:], add[n:]) {
					t.Fatalf("%v of %d: wrote beyond its end", isa, n)
				}
			}
		}
	}
}

// TestAtLeast: what is as large is found, in order, with NaN and infinities above all numbers.
func TestAtLeast(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 7))
	for n := range 70 {
		x := drawCode(random, n, true)
		for _, least := range []float32{1e-45, 0.5, 1, float32(math.Inf(1)), float32(math.NaN())} {
			if n > 0 && random.IntN(2) == 0 {
				if v := float32(math.Abs(float64(x[random.IntN(n)]))); v > 0 {
					least = v // which is one of them
				}
			}
			var want []int32
			for i, v := range x {
				if math.Float32bits(v)&0x7fffffff >= math.Float32bits(least) {
					want = append(want, 100+int32(i))
				}
			}
			for _, isa := range Available() {
				at := make([]int32, n+1)
				at[n] = -1
				if got := AtLeast(isa, at[:n], x, math.Float32bits(least), 100); !slices.Equal(at[:got], want) || at[n] != -1 {
					t.Fatalf("%v: of %v are at least %v %v, want %v", isa, x, least, at[:got], want)
				}
			}
		}
	}
}

func BenchmarkCode(b *testing.B) {
	const n = 1 << 12 // in the first-level cache
	x, p, q := drawCode(rand.New(rand.NewPCG(1, 2)), n, false), make([]byte, n/8), make([]byte, n)
	most, levels, at := Peak(Go, x), make([]float32, n), make([]int32, n)
	for i := range levels {
		levels[i] = RoundBias + float32(i%15) - 7
	}
	var s [4]float64
	for _, isa := range []ISA{Go, Best()} {
		for _, k := range []struct {
			name string
			f    func()
		}{
			{"peak", func() { Peak(isa, x) }},
			{"int8", func() { ToInt8(isa, q, x, 127/most) }},
			{"int8-keep", func() { ToInt8Keep(isa, q, x, 127/most, 0) }}, // so that x stays
			{"int8-add", func() { AddInt8(isa, x, q, 0) }},
			{"abs-sum", func() { AbsSum(isa, &s, x) }},
			{"square-sum", func() { SquareSum(isa, &s, x) }},
			{"signs", func() { Signs(isa, p, x) }},
			{"signs-keep", func() { KeepSigns(isa, x, 0) }},
			{"signs-add", func() { AddSigns(isa, x, p, 0) }},
			{"codes", func() { Codes(isa, q, levels, 4, 7) }},
			{"codes-add", func() { AddCodes(isa, x, q, 4, 7, 0) }},
			{"at-least", func() { AtLeast(isa, at, x, math.Float32bits(most/2), 0) }},
		} {
			b.Run(fmt.Sprintf("%s/%v", k.name, isa), func(b *testing.B) {
				b.SetBytes(4 * n)
				for b.Loop() {
					k.f()
				}
			})
		}
	}
}
