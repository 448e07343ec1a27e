package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/wire"
)

func Example() {
	p := wire.AppendString(nil, "auc")
	p = wire.AppendFloat32s(p, []float32{0.5, -1})

	r := wire.NewReader("scores", p)
	name, scores := r.String("name", 16), r.Float32s("values", 1000)
	fmt.Println(name, scores, r.Done())

	r = wire.NewReader("scores", p[:len(p)-1])
	r.String("name", 16)
	r.Float32s("values", 1000)
	fmt.Println(r.Done())
	// Output:
	// auc [0.5 -1] <nil>
	// wire: scores: byte 5: values: 2 elements of 4 bytes are announced, 7 bytes are left: unexpected EOF
}

func TestRoundTrip(t *testing.T) {
	p := wire.AppendUvarint(nil, 300)
	p = wire.AppendUint32(p, 1<<31)
	p = wire.AppendUint64(p, 1<<63)
	p = wire.AppendFloat64(p, math.Copysign(0, -1))
	p = wire.AppendBools(p, true, false, true)
	p = wire.AppendBytes(p, []byte{1, 2})
	p = wire.AppendString(p, "")
	p = wire.AppendFloat32s(p, []float32{float32(math.Inf(1))})
	p = wire.AppendFloat64s(p, []float64{math.Pi})
	p = wire.AppendUint64s(p, []uint64{7, 8})

	r := wire.NewReader("all", p)
	if v := r.Uvarint("a", 300); v != 300 {
		t.Errorf("Uvarint = %d", v)
	}
	if v := r.Uint32("b"); v != 1<<31 {
		t.Errorf("Uint32 = %d", v)
	}
	if v := r.Uint64("c"); v != 1<<63 {
		t.Errorf("Uint64 = %d", v)
	}
	if v := r.Float64("d"); v != 0 || !math.Signbit(v) {
		t.Errorf("Float64 = %v, want -0", v)
	}
	x, y, z := false, true, false
	if r.Bools("d2", &x, &y, &z); !x || y || !z {
		t.Errorf("Bools = %v, %v, %v", x, y, z)
	}
	if v := r.Bytes("e", 2); !bytes.Equal(v, []byte{1, 2}) {
		t.Errorf("Bytes = %v", v)
	}
	if v := r.String("f", 0); v != "" {
		t.Errorf("String = %q", v)
	}
	if v := r.Float32s("g", 1); len(v) != 1 || !math.IsInf(float64(v[0]), 1) {
		t.Errorf("Float32s = %v", v)
	}
	if v := r.Float64s("h", 1); len(v) != 1 || v[0] != math.Pi {
		t.Errorf("Float64s = %v", v)
	}
	if v := r.Uint64s("i", 2); len(v) != 2 || v[1] != 8 {
		t.Errorf("Uint64s = %v", v)
	}
	if err := r.Done(); err != nil {
		t.Error(err)
	}
}

func TestBools(t *testing.T) {
	if p := wire.AppendBools([]byte{9}, true, false, true, true, false, false, true); !bytes.Equal(p, []byte{9, 0b1001101}) {
		t.Errorf("seven are %b", p)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		p    []byte
		read func(r *wire.Reader)
		want string
	}{
		{"over the limit", wire.AppendUvarint(nil, 11), func(r *wire.Reader) { r.Uvarint("rows", 10) }, "byte 0: rows: want at most 10, found 11"},
		{"cut number", []byte{0x80}, func(r *wire.Reader) { r.Uvarint("rows", 10) }, "unexpected EOF"},
		{"65 bits", bytes.Repeat([]byte{0xff}, 11), func(r *wire.Reader) { r.Uvarint("rows", math.MaxUint64) }, "does not fit"},
		{"a fourth truth", []byte{9}, func(r *wire.Reader) { r.Bools("flags", new(bool), new(bool), new(bool)) }, "byte 0: flags: want at most 7, found 9"},
		{"something follows", []byte{1, 2, 3}, func(r *wire.Reader) { r.Uvarint("rows", 10) }, "byte 1: end: 2 bytes follow"},
		{"cut word", []byte{1, 2, 3}, func(r *wire.Reader) { r.Uint64("sum") }, "sum: want 8 bytes, 3 are left"},
		{"the caller's check", []byte{1}, func(r *wire.Reader) { r.Uvarint("kind", 9); r.Fail("kind", errors.New("is odd")) }, "byte 1: kind: is odd"},
		{"the first stays", []byte{1}, func(r *wire.Reader) { r.Uint32("a"); r.Uint64("b") }, "byte 0: a:"},
	} {
		r := wire.NewReader("test", c.p)
		c.read(r)
		if err := r.Done(); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "wire: test: ") {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	r := wire.NewReader("test", nil)
	r.Uint32("a")
	was := true
	if r.Bools("b", &was); was {
		t.Error("a truth is read after an error")
	}
	if !errors.Is(r.Err(), io.ErrUnexpectedEOF) {
		t.Errorf("%v is not io.ErrUnexpectedEOF", r.Err())
	}
}

// FuzzReader reads any bytes as any sequence of fields: no panic, no more than the input's own size allocated, and what was read
// without an error is what the Append functions write.
func FuzzReader(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6}, wire.AppendFloat32s(wire.AppendString(nil, "x"), []float32{1}))
	f.Add([]byte{7, 1, 7}, []byte{3, 1, 2, 3, 4, 2})
	f.Add([]byte{3}, []byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, fields, p []byte) {
		r := wire.NewReader("fuzz", p)
		var back []byte
		for _, k := range fields {
			if r.Err() != nil {
				break
			}
			switch k % 8 {
			case 0:
				// Uvarint accepts padded numbers, which do not come back the same: read it last only.
				r.Uvarint("n", math.MaxUint64)
				return
			case 1:
				back = wire.AppendUint32(back, r.Uint32("a"))
			case 2:
				back = wire.AppendUint64(back, r.Uint64("b"))
			case 3:
				if v := r.Bytes("c", 1<<40); r.Err() == nil && len(v) > len(p) {
					t.Fatalf("%d bytes out of %d", len(v), len(p))
				}
				return
			case 4:
				if v := r.Float32s("d", 1<<40); 4*len(v) > len(p) {
					t.Fatalf("%d float32 out of %d bytes", len(v), len(p))
				}
				return
			case 5:
				if v := r.Float64s("e", 1<<40); 8*len(v) > len(p) {
					t.Fatalf("%d float64 out of %d bytes", len(v), len(p))
				}
				return
			case 7:
				var x, y bool
				if r.Bools("g", &x, &y); r.Err() == nil && len(p)-len(r.Rest()) == len(back)+1 { // not padded
					back = wire.AppendBools(back, x, y)
					break
				}
				return
			case 6:
				if v := r.Uint64s("f", 1<<40); 8*len(v) > len(p) {
					t.Fatalf("%d uint64 out of %d bytes", len(v), len(p))
				}
				return
			}
		}
		if r.Err() == nil && !bytes.Equal(back, p[:len(back)]) {
			t.Fatalf("%x came back as %x", p[:len(back)], back)
		}
	})
}
