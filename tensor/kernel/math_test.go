package kernel

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/trivium-ml/trivium/internal/elementary"
)

// ulps is the distance of got from want in units of the last place of a float32 near want.
func ulps(got float32, want float64) float64 {
	w := float32(want)
	switch {
	case want != want || math.IsInf(float64(w), 0):
		if same(got, w) || want != want && got != got {
			return 0
		}
		if math.IsInf(float64(w), 0) && !math.IsInf(want, 0) && math.Abs(float64(got)) == math.MaxFloat32 {
			return 1 // rounded down where it should have been rounded to infinity
		}
		return math.Inf(1)
	}
	unit := math.Max(math.Ldexp(1, int(math.Floor(math.Log2(math.Abs(want))))-23), 0x1p-149)
	return math.Abs(float64(got)-want) / unit
}

// TestMathF32 samples all float32 bit patterns, and wants at most two units of error from float64 and the same bits on every
// ISA, but for Go.
func TestMathF32(t *testing.T) {
	step := uint32(4093) // a prime: a million arguments
	if testing.Short() || raceEnabled {
		step = 65521
	}
	const block = 1 << 12
	for _, k := range []struct {
		name   string
		f      func(isa ISA, dst, x []float32)
		oracle func(float64) float64
	}{
		{"Exp", Exp[float32], math.Exp},
		{"Log", Log[float32], math.Log},
		{"Tanh", Tanh[float32], math.Tanh},
		{"Sigmoid", Sigmoid[float32], func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }},
		{"Erf", Erf[float32], math.Erf},
		{"GELU", GELU[float32], func(x float64) float64 {
			if x < -40 {
				return math.Copysign(0, -1)
			}
			return x * 0.5 * math.Erfc(-x/math.Sqrt2)
		}},
	} {
		var x, want, got [block]float32
		worst, at := 0.0, float32(0)
		for from := uint64(0); from < 1<<32; from += uint64(step) * block {
			n := 0
			for i := range uint64(block) {
				if bits := from + i*uint64(step); bits < 1<<32 {
					x[i] = math.Float32frombits(uint32(bits))
					n++
				}
			}
			k.f(GoExact, want[:n], x[:n])
			k.f(Go, got[:n], x[:n])
			for i := range n {
				y := k.oracle(float64(x[i]))
				if u := max(ulps(want[i], y), ulps(got[i], y)); u > worst {
					worst, at = u, x[i]
				}
			}
			for _, isa := range exactISAs() {
				k.f(isa, got[:n], x[:n])
				wantSame(t, k.name+" on "+isa.String(), got[:n], want[:n])
			}
		}
		t.Logf("%s: at most %.3f units in the last place, at %v", k.name, worst, at)
		if worst > 2 {
			t.Errorf("%s is %v units in the last place off at %v, want at most 2", k.name, worst, at)
		}
	}
}

func TestMathSpecial(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, k := range []struct {
		name string
		f32  func(isa ISA, dst, x []float32)
		f64  func(isa ISA, dst, x []float64)
		x, y float64
	}{
		{"Exp", Exp[float32], Exp[float64], inf, inf},
		{"Exp", Exp[float32], Exp[float64], -inf, 0},
		{"Exp", Exp[float32], Exp[float64], 0, 1},
		{"Exp", Exp[float32], Exp[float64], nan, nan},
		{"Exp", Exp[float32], Exp[float64], 1000, inf},
		{"Exp", Exp[float32], Exp[float64], -1000, 0},
		{"Log", Log[float32], Log[float64], inf, inf},
		{"Log", Log[float32], Log[float64], 0, -inf},
		{"Log", Log[float32], Log[float64], -1, nan},
		{"Log", Log[float32], Log[float64], 1, 0},
		{"Log", Log[float32], Log[float64], nan, nan},
		{"Log", Log[float32], Log[float64], -inf, nan},
		{"Log", Log[float32], Log[float64], math.Copysign(0, -1), -inf},
		{"Tanh", Tanh[float32], Tanh[float64], inf, 1},
		{"Tanh", Tanh[float32], Tanh[float64], -inf, -1},
		{"Tanh", Tanh[float32], Tanh[float64], math.Copysign(0, -1), math.Copysign(0, -1)},
		{"Tanh", Tanh[float32], Tanh[float64], nan, nan},
		{"Sigmoid", Sigmoid[float32], Sigmoid[float64], inf, 1},
		{"Sigmoid", Sigmoid[float32], Sigmoid[float64], -inf, 0},
		{"Sigmoid", Sigmoid[float32], Sigmoid[float64], 0, 0.5},
		{"Sigmoid", Sigmoid[float32], Sigmoid[float64], nan, nan},
		{"Erf", Erf[float32], Erf[float64], inf, 1},
		{"Erf", Erf[float32], Erf[float64], nan, nan},
		{"GELU", GELU[float32], GELU[float64], inf, inf},
		{"GELU", GELU[float32], GELU[float64], -inf, math.Copysign(0, -1)},
		{"GELU", GELU[float32], GELU[float64], nan, nan},
	} {
		for _, isa := range Available() {
			y32, y64 := []float32{0}, []float64{0}
			k.f32(isa, y32, []float32{float32(k.x)})
			k.f64(isa, y64, []float64{k.x})
			if !same(y32[0], float32(k.y)) || !same(y64[0], k.y) {
				t.Errorf("%s(%v) on %v: float32 %v, float64 %v, want %v", k.name, k.x, isa, y32[0], y64[0], k.y)
			}
		}
	}
}

func TestMathF64(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for _, k := range []struct {
		name      string
		f, oracle func(float64) float64
		scale     float64
	}{
		{"exp", elementary.Exp, math.Exp, 300},
		{"exp", elementary.Exp, math.Exp, 1},
		{"log", func(x float64) float64 { return elementary.Log(math.Abs(x)) }, func(x float64) float64 { return math.Log(math.Abs(x)) }, 10},
		{"log", func(x float64) float64 { return elementary.Log(elementary.Exp(x)) }, func(x float64) float64 { return math.Log(elementary.Exp(x)) }, 100}, // package math is wrong for denormals
		{"tanh", tanh64, math.Tanh, 1},
		{"erf", erf64, math.Erf, 2},
		{"erfc", erfc64, math.Erfc, 8},
		{"sigmoid", func(x float64) float64 { s, _ := sigmoid64(x); return s }, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, 10},
		{
			"log1p", func(x float64) float64 { return elementary.Log1p(math.Exp(-math.Abs(x))) },
			func(x float64) float64 { return math.Log1p(math.Exp(-math.Abs(x))) }, 20,
		},
	} {
		worst, at := 0.0, 0.0
		for range 100_000 {
			x := r.NormFloat64() * k.scale
			got, want := k.f(x), k.oracle(x)
			if same(got, want) {
				continue
			}
			unit := math.Nextafter(math.Abs(want), math.Inf(1)) - math.Abs(want)
			if e := math.Abs(got-want) / unit; !(e <= worst) {
				worst, at = e, x
			}
		}
		t.Logf("%s: at most %v units from package math, at %v", k.name, worst, at)
		if worst > 4 { // package math itself is off by up to 1
			t.Errorf("%s is %v units from package math at %v", k.name, worst, at)
		}
	}
	for _, x := range []float64{709.7, -745.1, -740, 5e-324, 1e-310} { // denormal results and arguments
		want, _ := new(big.Float).SetFloat64(math.Exp(x)).Float64()
		if got := elementary.Exp(x); !(math.Abs(got-want) <= 1e-15*want) && !(math.Abs(got-want) <= 5e-324) {
			t.Errorf("elementary.Exp(%v) = %v, want %v", x, got, want)
		}
	}
}

func TestGELUGrad(t *testing.T) {
	for x := -6.0; x < 6; x += 0.037 {
		const h = 1e-6
		want := (gelu64(x+h) - gelu64(x-h)) / (2 * h)
		got := []float64{0}
		GELUGrad(Best(), got, []float64{2}, []float64{x})
		if !(math.Abs(got[0]-2*want) <= 1e-8) {
			t.Errorf("slope of GELU at %v is %v, want %v", x, got[0]/2, want)
		}
	}
}

// TestGELUGradF32 samples all float32 bit patterns. Where the slope crosses zero, the digits of its terms cancel, and what counts is
// the distance from the terms.
func TestGELUGradF32(t *testing.T) {
	const block = 1 << 12
	var x, dy, want, got [block]float32
	Fill(Go, dy[:], 3)
	worst, at := 0.0, float32(0)
	for from := uint64(0); from < 1<<32; from += 65521 * block {
		for i := range uint64(block) {
			x[i] = math.Float32frombits(uint32(from + i*65521))
		}
		GELUGrad(GoExact, want[:], dy[:], x[:])
		for i, v := range want {
			exact := 3 * geluSlope64(float64(x[i]))
			if u := ulps(v, exact); u > worst && math.Abs(float64(v)-exact) > 1e-11 {
				worst, at = u, x[i]
			}
		}
		for _, isa := range Available() {
			GELUGrad(isa, got[:], dy[:], x[:])
			wantSame(t, "slope of GELU on "+isa.String(), got[:], want[:])
		}
	}
	t.Logf("at most %.3f units in the last place, at %v", worst, at)
	if worst > 2 {
		t.Errorf("the slope of GELU is %v units in the last place off at %v, want at most 2", worst, at)
	}
}

func BenchmarkMath(b *testing.B) {
	x, y := plain[float32](rand.New(rand.NewPCG(5, 5)), 4096), make([]float32, 4096)
	for _, k := range []struct {
		name string
		f    func(isa ISA, dst, x []float32)
	}{{"Exp", Exp[float32]}, {"Log", Log[float32]}, {"Tanh", Tanh[float32]}, {"Sigmoid", Sigmoid[float32]}, {"Erf", Erf[float32]}, {"GELU", GELU[float32]}} {
		for _, isa := range Available()[1:] {
			b.Run(k.name+"/"+isa.String(), func(b *testing.B) {
				b.SetBytes(4 * int64(len(x)))
				for b.Loop() {
					k.f(isa, y, x)
				}
			})
		}
	}
}
