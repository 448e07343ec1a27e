package kernel

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// fmaBig is a*b + c in enough digits, rounded once.
func fmaBig(a, b, c float32) float32 {
	x := new(big.Float).SetPrec(2000).SetFloat64(float64(a))
	x.Mul(x, new(big.Float).SetPrec(2000).SetFloat64(float64(b)))
	x.Add(x, new(big.Float).SetPrec(2000).SetFloat64(float64(c)))
	f, _ := x.Float32()
	return f
}

func TestFMA32RoundsOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 1))
	twice := 0
	for range 200_000 {
		a, b := math.Float32frombits(r.Uint32()), math.Float32frombits(r.Uint32())
		if r.IntN(2) == 0 { // near 1, where ties are frequent
			a, b = 1+float32(r.IntN(1<<12))/(1<<12), 1+float32(r.IntN(1<<13))/(1<<13)
		}
		c := float32(math.Ldexp(float64(a)*float64(b), r.IntN(100)-80)) * float32(r.IntN(3)-1)
		if x := float64(a) * float64(b); c != c || math.IsInf(float64(c), 0) || math.IsNaN(x) || math.IsInf(x, 0) {
			continue
		}
		got, want := fma32(a, b, c), fmaBig(a, b, c)
		if got != want {
			t.Fatalf("fma32(%b, %b, %b) = %b, want %b", a, b, c, got, want)
		}
		if float32(math.FMA(float64(a), float64(b), float64(c))) != want {
			twice++
		}
	}
	if twice == 0 {
		t.Error("no case in which rounding the sum to float64 first is wrong: this tests nothing")
	}
}

func TestFMA32SpecialCases(t *testing.T) {
	inf, nan, tiny := float32(math.Inf(1)), float32(math.NaN()), float32(math.SmallestNonzeroFloat32)
	for _, c := range []struct{ a, b, c, want float32 }{
		{1 + 1.0/(1<<12), 1 + 1.0/(1<<12), math.Float32frombits(0x1f800000), math.Float32frombits(0x3f801001)}, // a tie but for c
		{1 + 1.0/(1<<12), 1 + 1.0/(1<<12), -math.Float32frombits(0x1f800000), math.Float32frombits(0x3f801000)},
		{1 + 1.0/(1<<12), 1 + 1.0/(1<<12), 0, math.Float32frombits(0x3f801000)}, // a tie: to even
		{inf, 1, 1, inf},
		{inf, 0, 1, nan},
		{inf, 1, -inf, nan},
		{nan, 1, 1, nan},
		{1, 1, -1, 0},
		{math.MaxFloat32, 2, -math.MaxFloat32, math.MaxFloat32},
		{math.MaxFloat32, 2, 0, inf},
		{tiny, 0.5, 0, 0},
		{tiny, 0.5, tiny, 2 * tiny},
		{tiny, 0.75, 0, tiny},
		{1, tiny, -tiny, 0},
	} {
		got := fma32(c.a, c.b, c.c)
		if math.Float32bits(got) != math.Float32bits(c.want) && (got == got || c.want == c.want) {
			t.Errorf("fma32(%g, %g, %g) = %g, want %g", c.a, c.b, c.c, got, c.want)
		}
	}
}
