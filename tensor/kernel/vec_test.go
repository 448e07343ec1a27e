package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// special are the arguments where element-wise kernels go wrong.
var special = []float64{
	0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat32, -math.MaxFloat32,
	math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, 0x1p-126, 88.7, -88.7, -103.9, 0.625, 1e-20, 3e5,
}

// numbers is n random numbers, about one in eight of them special.
func numbers[T Float](r *rand.Rand, n int) []T {
	x := make([]T, n)
	for i := range x {
		if x[i] = T(r.NormFloat64() * 4); r.IntN(8) == 0 {
			x[i] = T(special[r.IntN(len(special))])
		}
	}
	return x
}

// plain is n random numbers none of which is special.
func plain[T Float](r *rand.Rand, n int) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = T(r.NormFloat64())
	}
	return x
}

// same says whether x and y have equal bits; all NaNs are the same.
func same[T Float](x, y T) bool {
	return x != x && y != y || math.Float64bits(float64(x)) == math.Float64bits(float64(y))
}

func wantSame[T Float](t *testing.T, what string, got, want []T) {
	t.Helper()
	for i := range want {
		if !same(got[i], want[i]) {
			t.Fatalf("%s: element %d of %d is %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
}

// lengths is every short length, and some that make assembly loop.
func lengths() []int {
	var n []int
	for i := range 131 {
		n = append(n, i)
	}
	return append(n, 200, 255, 1000, 4096, 4097, piece+1, 3*piece-1)
}

// elementwise runs f on every ISA, over slices of all lengths and odd offsets, and wants the bits of the scalar oracle. Guards around
// dst must survive.
func elementwise[T Float](t *testing.T, name string, inputs int, f func(isa ISA, dst []T, in [][]T), oracle func(in []T) T) {
	t.Helper()
	const guard = 12345
	r := rand.New(rand.NewPCG(1, uint64(len(name))))
	for _, n := range lengths() {
		off := r.IntN(17)
		in, args := make([][]T, inputs), make([]T, inputs)
		for k := range in {
			in[k] = numbers[T](r, n+off+3)[off:]
		}
		want := make([]T, n)
		for i := range want {
			for k := range in {
				args[k] = in[k][i]
			}
			want[i] = oracle(args)
		}
		for _, isa := range Available() {
			dst := make([]T, n+off+1)
			for i := range dst {
				dst[i] = guard
			}
			f(isa, dst[off:off+n:off+n], in)
			wantSame(t, fmt.Sprintf("%s %T on %v", name, guard*T(1), isa), dst[off:off+n], want)
			if off > 0 && dst[off-1] != guard || dst[off+n] != guard {
				t.Fatalf("%s on %v wrote outside its %d elements", name, isa, n)
			}
		}
	}
}

// either is NaN where a or b is, else m: so are the maxima and minima of PyTorch, TensorFlow and ONNX.
func either[T Float](a, b, m T) T {
	if a != a || b != b {
		return T(math.NaN())
	}
	return m
}

func testElementwise[T Float](t *testing.T) {
	for _, k := range []struct {
		name   string
		f      func(isa ISA, dst, a, b []T)
		oracle func(a, b T) T
	}{
		{"Add", Add[T], func(a, b T) T { return a + b }},
		{"Sub", Sub[T], func(a, b T) T { return a - b }},
		{"Mul", Mul[T], func(a, b T) T { return a * b }},
		{"Div", Div[T], func(a, b T) T { return a / b }},
		{"Max", Max[T], func(a, b T) T { return either(a, b, larger(a, b)) }},
		{"Min", Min[T], func(a, b T) T { return either(a, b, smaller(a, b)) }},
		{"ReLUGrad", ReLUGrad[T], func(dy, y T) T {
			if y > 0 {
				return dy
			}
			return 0
		}},
		{"TanhGrad", TanhGrad[T], func(dy, y T) T { return dy * (1 - T(y*y)) }},
		{"SigmoidGrad", SigmoidGrad[T], func(dy, y T) T { return dy * T(y*(1-y)) }},
		{"Triad", func(isa ISA, dst, a, b []T) { Triad(isa, dst, a, 0.3, b) }, func(a, b T) T { return a + T(0.3*b) }},
		{"Axpy", func(isa ISA, dst, a, b []T) { copy(dst, a); Axpy(isa, dst, 0.3, b) }, func(a, b T) T { return a + T(0.3*b) }},
		{"AddInto", func(isa ISA, dst, a, b []T) { copy(dst, a); AddInto(isa, dst, b) }, func(a, b T) T { return a + b }},
	} {
		elementwise(t, k.name, 2, func(isa ISA, dst []T, in [][]T) { k.f(isa, dst, in[0], in[1]) }, func(in []T) T { return k.oracle(in[0], in[1]) })
	}
	const s = 1.7
	for _, k := range []struct {
		name   string
		f      func(isa ISA, dst, x []T)
		oracle func(x T) T
	}{
		{"Neg", Neg[T], func(x T) T { return -x }},
		{"Abs", Abs[T], func(x T) T { return T(math.Abs(float64(x))) }},
		{"Square", Square[T], func(x T) T { return x * x }},
		{"Sqrt", Sqrt[T], func(x T) T { return T(math.Sqrt(float64(x))) }},
		{"ReLU", ReLU[T], func(x T) T {
			if 0 > x {
				return 0
			}
			return x
		}},
		{"AddScalar", func(isa ISA, dst, x []T) { AddScalar(isa, dst, x, s) }, func(x T) T { return x + s }},
		{"ScalarSub", func(isa ISA, dst, x []T) { ScalarSub(isa, dst, x, s) }, func(x T) T { return s - x }},
		{"Scale", func(isa ISA, dst, x []T) { Scale(isa, dst, x, s) }, func(x T) T { return x * s }},
		{"DivScalar", func(isa ISA, dst, x []T) { DivScalar(isa, dst, x, s) }, func(x T) T { return x / s }},
		{"ScaleInto", func(isa ISA, dst, x []T) { ScaleInto(isa, dst, x, s) }, func(x T) T { return x / s }},
		{"ScalarDiv", func(isa ISA, dst, x []T) { ScalarDiv(isa, dst, x, s) }, func(x T) T { return s / x }},
		{"MaxScalar", func(isa ISA, dst, x []T) { MaxScalar(isa, dst, x, s) }, func(x T) T { return larger(s, x) }},
		{"Clip", func(isa ISA, dst, x []T) { Clip(isa, dst, x, s) }, func(x T) T {
			switch {
			case x > s:
				return s
			case x < -s:
				return -s
			}
			return x
		}},
		{"Fill", func(isa ISA, dst, x []T) { Fill(isa, dst, s) }, func(T) T { return s }},
		{"Sqrt in place", func(isa ISA, dst, x []T) { copy(dst, x); Sqrt(isa, dst, dst) }, func(x T) T { return T(math.Sqrt(float64(x))) }},
	} {
		elementwise(t, k.name, 1, func(isa ISA, dst []T, in [][]T) { k.f(isa, dst, in[0]) }, func(in []T) T { return k.oracle(in[0]) })
	}
}

func TestElementwiseF32(t *testing.T) { testElementwise[float32](t) }
func TestElementwiseF64(t *testing.T) { testElementwise[float64](t) }

// Streaming loops are meant for what does not fit in a cache; here they get short slices.
func TestStreaming(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for _, isa := range Available() {
		if isa < AVX2 {
			continue
		}
		for _, n := range lengths() {
			off := r.IntN(17)
			a, b := numbers[float32](r, n), numbers[float32](r, n)
			dst, want := make([]float32, n+off), make([]float32, n)
			Triad(Go, want, a, 0.3, b)
			triadF32Stream(isa, dst[off:], a, b, 0.3)
			wantSame(t, fmt.Sprintf("streaming triad on %v", isa), dst[off:], want)

			m, v := plain[float32](r, n+off)[off:], make([]float32, n)
			m2, v2 := append([]float32(nil), m...), make([]float32, n)
			var h stepParams
			for i := range h {
				h.set(i, 0.1)
			}
			adamF32(isa, want, m, v, a, &h[0])
			adamF32Stream(isa, dst[off:], m2, v2, a, &h[0])
			wantSame(t, fmt.Sprintf("streaming Adam on %v", isa), dst[off:], want)
			wantSame(t, fmt.Sprintf("streaming Adam on %v", isa), m2, m)
			wantSame(t, fmt.Sprintf("streaming Adam on %v", isa), v2, v)
		}
	}
}

func testRows[T Float](t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, cols := range []int{1, 3, 10, 16, 63, 64, 65, 130, 300} {
		for _, rows := range []int{0, 1, 15, 16, 17, 32, 100, 257} {
			ld := cols + r.IntN(5)
			x := plain[T](r, rows*ld+cols)
			want := make([]T, cols)
			colSumsOracle(want, x, rows, ld)
			for _, isa := range Available() {
				got := plain[T](r, cols)
				ColSums(isa, got, x, rows, ld)
				wantSame(t, fmt.Sprintf("ColSums of %d×%d on %v", rows, cols, isa), got, want)
				if rows == 100 { // 64 rows and 36 rows, of which each cut in two by columns
					half := cols / 2
					a, b := make([]T, cols), make([]T, cols)
					ColSums(isa, a[:half], x, 64, ld)
					ColSums(isa, a[half:], x[half:], 64, ld)
					ColSums(isa, b, x[64*ld:], 36, ld)
					AddInto(isa, a, b)
					wantSame(t, "ColSums in parts", a, want)
				}
			}
		}
	}
}

func TestRowsF32(t *testing.T) { testRows[float32](t) }
func TestRowsF64(t *testing.T) { testRows[float64](t) }

// colSumsOracle adds leaves recursively.
func colSumsOracle[T Float](dst, x []T, rows, ld int) {
	clear(dst)
	if rows <= LeafRows {
		for r := range rows {
			for c := range dst {
				dst[c] += x[r*ld+c]
			}
		}
		return
	}
	half := LeafRows
	for half*2 < rows {
		half *= 2
	}
	right := make([]T, len(dst))
	colSumsOracle(dst, x, half, ld)
	colSumsOracle(right, x[half*ld:], rows-half, ld)
	for c := range dst {
		dst[c] += right[c]
	}
}

func TestDropout(t *testing.T) {
	const n, rate = 100_000, 0.3
	x, whole, parts := make([]float32, n), make([]float32, n), make([]float32, n)
	Fill(Best(), x, 1)
	const key, other = 0x8ca3cbb6ca63129b, 0x9aaf21d8296e1e3d
	Dropout(Best(), whole, x, rate, key, 0)
	Dropout(Best(), parts[:777], x, rate, key, 0)
	Dropout(Best(), parts[777:], x[777:], rate, key, 777)
	wantSame(t, "Dropout in parts", parts, whole)
	dropped := 0
	for _, v := range whole {
		if v == 0 {
			dropped++
		} else if v != float32(1/(1-rate)) {
			t.Fatalf("an element that stays is %v", v)
		}
	}
	if p := float64(dropped) / n; !(math.Abs(p-rate) <= 0.005) { // 3.4 standard deviations
		t.Errorf("%v of the elements are dropped, want %v", p, rate)
	}
	Dropout(Best(), parts, x, rate, other, 0)
	equal := 0
	for i := range parts {
		if parts[i] == whole[i] {
			equal++
		}
	}
	if p := float64(equal) / n; !(math.Abs(p-(rate*rate+(1-rate)*(1-rate))) <= 0.01) {
		t.Errorf("masks of two keys agree in %v of the elements", p)
	}
	Dropout(Best(), parts, x, 0, key, 0)
	wantSame(t, "Dropout of none", parts, x)
}
