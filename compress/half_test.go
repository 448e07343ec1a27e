package compress_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/tensor"
)

// All 65,536 values survive, and rounding is that of package tensor, whose conversion is written apart from this one.
func TestHalfAgainstTensor(t *testing.T) {
	all := make([]byte, 2<<16)
	for i := range 1 << 16 {
		binary.LittleEndian.PutUint16(all[2*i:], uint16(i))
	}
	for _, c := range []compress.Codec{compress.F16{}, compress.BF16{}} {
		x := make([]float32, 1<<16)
		if err := c.Decode(x, all); err != nil {
			t.Fatal(err)
		}
		back, _ := c.Encode(nil, x, nil)
		for i, v := range x {
			want := tensor.Float16(uint16(i)).Float32()
			if _, ok := c.(compress.BF16); ok {
				want = tensor.BFloat16(uint16(i)).Float32()
			}
			switch {
			case v != v || want != want:
				if v == v || want == want {
					t.Fatalf("%s: %#04x is %v, want %v", c, i, v, want)
				}
			case math.Float32bits(v) != math.Float32bits(want):
				t.Fatalf("%s: %#04x is %v, want %v", c, i, v, want)
			case binary.LittleEndian.Uint16(back[2*i:]) != uint16(i):
				t.Fatalf("%s: %#04x came back as %#04x", c, i, back[2*i:2*i+2])
			}
		}
		// Every 8,191st float32 rounds as there.
		x = x[:0]
		for b := uint64(0); b < 1<<32; b += 8191 {
			x = append(x, math.Float32frombits(uint32(b)))
		}
		p, _ := c.Encode(nil, x, nil)
		for i, v := range x {
			want := uint16(tensor.ToFloat16(v))
			if _, ok := c.(compress.BF16); ok {
				want = uint16(tensor.ToBFloat16(v))
			}
			if got := binary.LittleEndian.Uint16(p[2*i:]); got != want && v == v {
				t.Fatalf("%s: %v (%#08x) becomes %#04x, want %#04x", c, v, math.Float32bits(v), got, want)
			}
		}
	}
}

func TestHalfExactIntegers(t *testing.T) {
	x := make([]float32, 4097)
	for i := range x {
		x[i] = float32(i - 2048)
	}
	p, _ := compress.F16{}.Encode(nil, x, nil)
	y := make([]float32, len(x))
	if err := (compress.F16{}).Decode(y, p); err != nil {
		t.Fatal(err)
	}
	for i := range x {
		if x[i] != y[i] {
			t.Fatalf("%v became %v", x[i], y[i])
		}
	}
}
