package raw

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

// of tests numbers of a type against encoding/binary, on this machine and as on one that is not little-endian.
func of[T Number](t *testing.T, v ...T) {
	t.Helper()
	var want bytes.Buffer
	if err := binary.Write(&want, binary.LittleEndian, v); err != nil {
		t.Fatal(err)
	}
	size := want.Len() / len(v)
	here := inPlace
	defer func() { inPlace = here }()
	for _, inPlace = range []bool{here, false} {
		if got := Bytes(v); !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%T, in place %v: % x, want % x", v, inPlace, got, want.Bytes())
		}
		for shift := range 8 { // aligned or not, and with what is less than a number behind it
			p := append(append(make([]byte, shift), want.Bytes()...), make([]byte, size-1)...)[shift:]
			if got := Of[T](p); !slices.Equal(got, v) {
				t.Errorf("%T, in place %v, shifted by %d: %v", v, inPlace, shift, got)
			}
			for _, n := range []int{0, 1, len(v), len(v) + 1} {
				dst := make([]T, n)
				k := min(n, len(v))
				if got := Copy(dst, p); got != k || !slices.Equal(dst[:k], v[:k]) || n > k && dst[k] != 0 {
					t.Errorf("%T, in place %v, shifted by %d: %d numbers in %d: %v", v, inPlace, shift, got, n, dst)
				}
			}
		}
		if Bytes[T](nil) != nil || Of[T](nil) != nil || Of[T](make([]byte, size-1)) != nil {
			t.Errorf("%T, in place %v: there is something in nothing", v, inPlace)
		}
	}
}

func TestNumbers(t *testing.T) {
	of(t, float32(1.5), float32(math.Inf(-1)), math.SmallestNonzeroFloat32)
	of(t, -2.25, math.MaxFloat64, math.Pi)
	of(t, int32(-2), math.MaxInt32, math.MinInt32)
	of(t, int64(-3), math.MaxInt64, math.MinInt64)
	of(t, uint64(3), math.MaxUint64, 1<<40)
}

// TestInPlace: what is returned is the memory that was given, where that can be.
func TestInPlace(t *testing.T) {
	if !InPlace() {
		t.Skip("not run here: this machine is not little-endian")
	}
	v := []float32{1, 2}
	Bytes(v)[7] = 0xc0 // the sign, with the exponent that is there
	if v[1] != -2 {
		t.Errorf("%v, want -2", v[1])
	}
	Of[float32](Bytes(v))[0] = 3
	if v[0] != 3 {
		t.Errorf("%v, want 3", v[0])
	}
}

// TestFloats: the same memory, bit by bit.
func TestFloats(t *testing.T) {
	x := []int32{0, 1 << 23, math.MinInt32}
	f := Floats(x)
	if !slices.Equal(f, []float32{0, 0x1p-126, 0}) || !math.Signbit(float64(f[2])) || len(Floats(nil)) != 0 {
		t.Errorf("%v", f)
	}
	if f[1] = 1; x[1] != int32(math.Float32bits(1)) {
		t.Errorf("%#x", x[1])
	}
}
