package tensor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/trivium-ml/trivium/tensor/kernel"
)

func Example() {
	cpu := NewCPU(2, false)
	defer cpu.Close()
	a, _ := Of([]float32{1, 2, 3, 4}, 2, 2)
	b, _ := Of([]float32{1, 0, 0, 1, 1, 1}, 3, 2)
	dst := New(F32, 2, 3)
	if err := cpu.MatMulTo(dst, a, b, false, true, Epilogue{}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(dst)
	// Output: f32[2 3]{{1 2 3} {3 4 7}}
}

func TestNewIsAlignedAndZero(t *testing.T) {
	for dt := F32; dt.Valid(); dt++ {
		for n := range 70 {
			x := New(dt, n, 3)
			if x.Len() != 3*n || len(x.Bytes()) != 3*n*dt.Size() || x.DType() != dt || x.Rank() != 2 || x.Dim(0) != n {
				t.Fatalf("New(%v, %d, 3) is %v%v of %d elements and %d bytes", dt, n, x.DType(), x.Shape(), x.Len(), len(x.Bytes()))
			}
			if uintptr(unsafe.Pointer(unsafe.SliceData(x.Bytes())))%Align != 0 {
				t.Fatalf("New(%v, %d, 3) is not aligned", dt, n)
			}
			for _, b := range x.Bytes() {
				if b != 0 {
					t.Fatalf("New(%v, %d, 3) is not zero", dt, n)
				}
			}
		}
	}
	if x := Aligned[float64](5); len(x) != 5 || uintptr(unsafe.Pointer(&x[0]))%Align != 0 {
		t.Error("Aligned gives what is not aligned")
	}
}

func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if r := fmt.Sprint(recover()); !strings.Contains(r, want) {
			t.Errorf("panics with %q, want %q in it", r, want)
		}
	}()
	f()
}

func TestPanics(t *testing.T) {
	mustPanic(t, "axis 1 is negative", func() { New(F32, 2, -1) })
	mustPanic(t, "no dtype", func() { New(0, 2) })
	mustPanic(t, "more bytes than an int", func() { New(F64, math.MaxInt/2, 2) })
	mustPanic(t, "Flat of f64 elements on a tensor of f32", func() { Flat[float64](New(F32, 1)) })
	mustPanic(t, "Rows(1, 4) of a tensor of shape [3 2]", func() { New(F32, 3, 2).Rows(1, 4) })
	mustPanic(t, "Rows(0, 0)", func() { New(F32).Rows(0, 0) })
}

func TestViewsShareMemory(t *testing.T) {
	flat := []int32{0, 1, 2, 3, 4, 5}
	x, err := Of(flat, 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	Flat[int32](x.Rows(1, 2))[1] = 30
	y, err := x.Reshape(2, -1)
	if err != nil {
		t.Fatal(err)
	}
	Flat[int32](y)[0] = -1
	if got := fmt.Sprint(flat); got != "[-1 1 2 30 4 5]" {
		t.Errorf("after writes to views: %v", got)
	}
	if got := y.String(); got != "i32[2 3]{{-1 1 2} {30 4 5}}" {
		t.Errorf("reshaped: %v", got)
	}
	c := x.Clone()
	Flat[int32](c)[0] = 7
	if flat[0] != -1 {
		t.Error("Clone shares memory")
	}
	if r := x.Rows(3, 3); r.Len() != 0 || !r.Shape().Equal(Shape{0, 2}) {
		t.Errorf("no rows: %v", r)
	}
}

func TestErrors(t *testing.T) {
	x := New(F32, 2, 3)
	bad := []struct {
		err  error
		want string
	}{}
	add := func(want string, err error) {
		bad = append(bad, struct {
			err  error
			want string
		}{err, want})
	}
	_, err := Of([]float32{1, 2}, 3)
	add("shape [3] has 3 elements, the slice 2", err)
	_, err = Of([]float32{1, 2}, -2, -1)
	add("axis 0 is negative", err)
	_, err = x.Reshape(4, 2)
	add("reshape [2 3] to [4 2]: the first has 6 elements", err)
	_, err = x.Reshape(-1, -1)
	add("axis 1 is negative", err)
	_, err = x.Reshape(-1, 4)
	add("reshape [2 3] to [-1 4]", err)
	_, err = x.Reshape(-1, 0)
	add("reshape", err)
	_, err = New(F32, 0).Reshape(1<<32, 1<<32) // whose product is 0 in 64 bits
	add("more bytes than an int can count", err)
	var c *CPU
	add("want three matrices", c.MatMulTo(x, x, New(F64, 3, 3), false, false, Epilogue{}))
	add("want m×k, k×n and m×n", c.MatMulTo(x, x, x, false, false, Epilogue{}))
	add("one f32 for each column", c.MatMulTo(New(F32, 2, 2), x, x, false, true, Epilogue{Bias: New(F32, 3)}))
	for _, b := range bad {
		if b.err == nil || !strings.Contains(b.err.Error(), b.want) || !strings.HasPrefix(b.err.Error(), "tensor: ") {
			t.Errorf("error %v, want %q in it", b.err, b.want)
		}
	}
}

func TestString(t *testing.T) {
	for want, x := range map[string]*Tensor{
		"f64[]{2.5}":          Scalar(2.5),
		"bool[2]{true false}": must(Of([]bool{true, false}, 2)),
		"bf16[1]{1.5}":        must(Of([]BFloat16{ToBFloat16(1.5)}, 1)),
		"f16[1]{-2}":          must(Of([]Float16{ToFloat16(-2)}, 1)),
		"u8[0]{}":             New(U8, 0),
		"i64[1 1 1]{{{0}}}":   New(I64, 1, 1, 1),
		"f32[100]":            New(F32, 100),
	} {
		if got := x.String(); got != want {
			t.Errorf("String is %q, want %q", got, want)
		}
	}
}

func must(t *Tensor, err error) *Tensor {
	if err != nil {
		panic(err)
	}
	return t
}

// Every 16-bit number must survive a round trip, and every float32 must go to the nearer of its neighbours, ties to the even one.
func TestHalfPrecision(t *testing.T) {
	type half struct {
		name string
		from func(uint16) float32
		to   func(float32) uint16
		inf  uint16
	}
	for _, h := range []half{
		{"f16", func(b uint16) float32 { return Float16(b).Float32() }, func(x float32) uint16 { return uint16(ToFloat16(x)) }, 0x7c00},
		{"bf16", func(b uint16) float32 { return BFloat16(b).Float32() }, func(x float32) uint16 { return uint16(ToBFloat16(x)) }, 0x7f80},
	} {
		for b := range uint16(1<<16 - 1) {
			x := h.from(b)
			if x != x {
				if y := h.from(h.to(x)); y == y {
					t.Fatalf("%s %04x: a NaN becomes %v", h.name, b, y)
				}
				continue
			}
			if got := h.to(x); got != b {
				t.Fatalf("%s %04x is %v, which becomes %04x", h.name, b, x, got)
			}
			if b&0x7fff >= h.inf-1 { // the next one is no number
				continue
			}
			low, high := float64(x), float64(h.from(b+1))
			middle := (low + high) / 2
			even := b + b&1
			for y, want := range map[float32]uint16{
				float32(middle): even,
				math.Nextafter32(float32(middle), float32(low)): b, math.Nextafter32(float32(middle), float32(high)): b + 1,
			} {
				if float64(float32(middle)) != middle {
					break // below the smallest float32
				}
				if got := h.to(y); got != want {
					t.Fatalf("%s: %v becomes %04x, want %04x", h.name, y, got, want)
				}
			}
		}
		for x, want := range map[float32]uint16{float32(math.Inf(1)): h.inf, float32(math.Inf(-1)): h.inf | 1<<15, math.MaxFloat32: h.inf, 0: 0} {
			if got := h.to(x); got != want {
				t.Errorf("%s: %v becomes %04x, want %04x", h.name, x, got, want)
			}
		}
	}
}

func testMatMul[T kernel.Float](t *testing.T, dt DType) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(rows, cols int) *Tensor {
		x := New(dt, rows, cols)
		for i := range Flat[T](x) {
			Flat[T](x)[i] = T(r.NormFloat64())
		}
		return x
	}
	for _, s := range [][3]int{{1, 1, 1}, {5, 7, 3}, {32, 100, 50}, {65, 130, 33}, {4, 0, 3}, {0, 2, 3}} {
		m, k, n := s[0], s[1], s[2]
		for form := range 4 {
			ta, tb := form&1 != 0, form&2 != 0
			a, b := random(m, k), random(k, n)
			if ta {
				a = random(k, m)
			}
			if tb {
				b = random(n, k)
			}
			bias := random(1, n)
			var want []T
			for threads := 1; threads <= 3; threads++ {
				cpu := &CPU{ISA: kernel.Best(), Pool: NewPool(threads)}
				dst := New(dt, m, n)
				if err := cpu.MatMulTo(dst, a, b, ta, tb, Epilogue{Bias: bias, Act: kernel.ActReLU}); err != nil {
					t.Fatal(err)
				}
				cpu.Close()
				if threads == 1 {
					want = Flat[T](dst)
				}
				for i, v := range Flat[T](dst) {
					if v != want[i] {
						t.Fatalf("%v ta %v tb %v on %d threads: element %d is %v, want %v", s, ta, tb, threads, i, v, want[i])
					}
					exact := 0.0
					for j := range k {
						x, y := Flat[T](a), Flat[T](b)
						ai, bi := i/n*k+j, j*n+i%n
						if ta {
							ai = j*m + i/n
						}
						if tb {
							bi = i%n*k + j
						}
						exact += float64(x[ai]) * float64(y[bi])
					}
					exact = max(0, exact+float64(Flat[T](bias)[i%n]))
					if !(math.Abs(float64(v)-exact) <= 1e-4) {
						t.Fatalf("%v ta %v tb %v: element %d is %v, want %v", s, ta, tb, i, v, exact)
					}
				}
			}
		}
	}
}

func TestMatMulF32(t *testing.T) { testMatMul[float32](t, F32) }
func TestMatMulF64(t *testing.T) { testMatMul[float64](t, F64) }

func TestSplitCoversOnce(t *testing.T) {
	cpu := NewCPU(3, false)
	defer cpu.Close()
	for _, grain := range []int{1, 4, 100} {
		for n := range 300 {
			seen := make([]byte, n)
			cpu.Split(n, grain, func(from, to, _ int) {
				if from%grain != 0 || from >= to {
					t.Errorf("a run [%d, %d) of %d by %d", from, to, n, grain)
				}
				for i := from; i < to; i++ {
					seen[i]++
				}
			})
			for i, s := range seen {
				if s != 1 {
					t.Fatalf("%d of %d is seen %d times", i, n, s)
				}
			}
		}
	}
}

func TestNewCPU(t *testing.T) {
	c := NewCPU(2, true)
	defer c.Close()
	if c.ISA == kernel.Go {
		t.Error("an exact CPU has the inexact twin")
	}
	if want := kernel.Exact(); c.ISA != want || c.Threads() != 2 {
		t.Errorf("kernels %v, threads %d, want %v and 2", c.ISA, c.Threads(), want)
	}
	var none *CPU
	none.Close()
	if got := none.Threads(); got != 1 {
		t.Errorf("nil has %d threads", got)
	}
}
