package compress_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/draw"
)

// codecs are all codecs, with those of a share at a tenth.
var codecs = []string{"f16", "bf16", "int8", "int8:64", "1bit", "1bit:l2", "topk:0.1", "randomk:0.1", "qsgd:1", "qsgd:7", "qsgd:127", "powersgd:1"}

func parse(t testing.TB, spec string) compress.Codec {
	t.Helper()
	c, err := compress.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func normal(n int, seed uint64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(draw.Normal(seed, 77, uint64(i)))
	}
	return x
}

func Example() {
	c, _ := compress.Parse("topk:1")
	e := compress.NewResidual(3)
	sum := make([]float32, 3)
	for range 3 {
		p, _ := c.Encode(nil, []float32{1, 0.75, 0}, e)
		_ = c.DecodeAdd(sum, p)
		fmt.Println(sum, e.Cells())
	}
	// Output:
	// [1 0 0] [0 0.75 0]
	// [1 1.5 0] [1 0 0]
	// [3 1.5 0] [0 0.75 0]
}

func TestParse(t *testing.T) {
	for _, spec := range codecs {
		if c := parse(t, spec); c.String() != spec {
			t.Errorf("Parse(%q) prints %q", spec, c)
		}
	}
	for _, spec := range []string{"", "none"} {
		if c, err := compress.Parse(spec); c != nil || err != nil {
			t.Errorf("Parse(%q) = %v, %v", spec, c, err)
		}
	}
}

// Case B8 of the bad inputs, and case 18: refused at the start.
func TestParseRefusals(t *testing.T) {
	for _, bad := range []string{
		"zip", "f16:3", "topk", "topk:", "topk:0", "topk:-1", "topk:-0.5", "topk:NaN", "topk:Inf", "topk:1.5", "topk:1e12", "topk:2147483648", "topk:x", "randomk:0", "randomk:NaN",
		"qsgd", "qsgd:0", "qsgd:-1", "qsgd:128", "qsgd:1.5", "qsgd:NaN", "powersgd:0", "powersgd", "powersgd:-2", "int8:0", "int8:-1", "int8:x", "1bit:l3", "1bit:",
	} {
		c, err := compress.Parse(bad)
		if err == nil {
			t.Errorf("Parse(%q) = %v", bad, c)
		} else if !strings.HasPrefix(err.Error(), "compress: ") {
			t.Errorf("Parse(%q): %v", bad, err)
		}
	}
}

func TestParseAuto(t *testing.T) {
	for _, v := range []struct {
		spec, codec string
		auto        bool
	}{{"auto", "bf16", true}, {"auto:f16", "f16", true}, {"auto:topk:0.01", "topk:0.01", true}, {"topk:0.01", "topk:0.01", false}, {"int8:64", "int8:64", false}} {
		if c, auto, err := compress.ParseAuto(v.spec); err != nil || c.String() != v.codec || auto != v.auto {
			t.Errorf("ParseAuto(%q) = %v, %v, %v", v.spec, c, auto, err)
		}
	}
	if c, auto, err := compress.ParseAuto(""); c != nil || auto || err != nil {
		t.Errorf("no codec: %v, %v, %v", c, auto, err)
	}
	for _, bad := range []string{"auto:", "auto:none", "auto:zip", "auto:topk", "auto:auto", "auto:auto:f16", "automatic", "Auto"} {
		if c, _, err := compress.ParseAuto(bad); err == nil || !strings.HasPrefix(err.Error(), "compress: ") {
			t.Errorf("ParseAuto(%q) = %v, %v", bad, c, err)
		}
	}
	if c, err := compress.Parse("auto:f16"); err == nil { // who predicts nothing takes no auto
		t.Errorf("Parse takes auto, as %v", c)
	}
}

// TestShareOfAll: a part that is k of n, as a float64, is k values, though the product with n may be less.
func TestShareOfAll(t *testing.T) {
	x, y := make([]float32, 200), make([]float32, 200)
	for i := range x {
		x[i] = float32(i + 1)
	}
	for n := 1; n <= len(x); n++ {
		for k := 1; k < n; k++ {
			p, err := compress.TopK{Share: compress.Share(float64(k) / float64(n))}.Encode(nil, x[:n], nil)
			if err := errors.Join(err, compress.TopK{Share: 1}.Decode(y[:n], p)); err != nil {
				t.Fatal(err)
			}
			sent := 0
			for _, v := range y[:n] {
				if v != 0 {
					sent++
				}
			}
			if sent != k {
				t.Fatalf("topk:%v of %d sends %d values, want %d", float64(k)/float64(n), n, sent, k)
			}
		}
	}
}

func TestCase15OneBitAndTopK(t *testing.T) {
	for _, v := range []struct {
		codec compress.Codec
		x     []float32
		sent  []float32
		kept  []float32
	}{
		{compress.OneBit{}, []float32{1, -3, 2, -2}, []float32{2, -2, 2, -2}, []float32{-1, -1, 0, 0}},
		{compress.OneBit{L2: true}, []float32{1, -3, 2, -2}, []float32{2.1213203, -2.1213203, 2.1213203, -2.1213203}, []float32{-1.1213203, -0.87867975, -0.12132025, 0.12132025}},
		{compress.TopK{Share: 2}, []float32{1, -3, 2, -2}, []float32{0, -3, 2, 0}, []float32{1, 0, 0, -2}},
		{compress.TopK{Share: 0.5}, []float32{1, -1, 1, -1}, []float32{1, -1, 0, 0}, []float32{0, 0, 1, -1}},
	} {
		e := compress.NewResidual(len(v.x))
		p, err := v.codec.Encode(nil, v.x, e)
		if err != nil {
			t.Fatal(err)
		}
		sent := make([]float32, len(v.x))
		if err := v.codec.Decode(sent, p); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(sent) != fmt.Sprint(v.sent) || fmt.Sprint(e.Cells()) != fmt.Sprint(v.kept) {
			t.Errorf("%s of %v: sent %v, kept %v; want %v, %v", v.codec, v.x, sent, e.Cells(), v.sent, v.kept)
		}
	}
}

func TestCase16Error(t *testing.T) {
	x := normal(128*128*64, 5)
	x[7], x[9] = 0, float32(math.Copysign(0, -1))
	for _, v := range []struct {
		spec  string
		bound float64
	}{{"f16", 5e-8}, {"int8", 8e-4}} {
		c := parse(t, v.spec)
		p, err := c.Encode(nil, x, nil)
		if err != nil {
			t.Fatal(err)
		}
		y := make([]float32, len(x))
		if err := c.Decode(y, p); err != nil {
			t.Fatal(err)
		}
		var sum float64
		for i := range x {
			sum += float64(x[i]-y[i]) * float64(x[i]-y[i])
		}
		if mean := sum / float64(len(x)); !(mean < v.bound) {
			t.Errorf("%s: mean squared error %.3g, want below %g", v.spec, mean, v.bound)
		}
	}
	for _, spec := range codecs {
		c := parse(t, spec)
		p, err := c.Encode(nil, make([]float32, 1000), nil)
		if err != nil {
			t.Fatal(err)
		}
		y := normal(1000, 1)
		if err := c.Decode(y, p); err != nil {
			t.Fatal(err)
		}
		for i, v := range y {
			if v != 0 {
				t.Fatalf("%s: zero %d became %v", spec, i, v)
			}
		}
	}
}

func TestCase18Edges(t *testing.T) {
	x := normal(10, 1)
	for _, c := range []compress.Codec{
		compress.TopK{},
		compress.TopK{Share: 11},
		compress.TopK{Share: -1},
		compress.TopK{Share: compress.Share(math.NaN())},
		compress.RandomK{},
		compress.RandomK{Share: 11},
		compress.QSGD{},
		compress.QSGD{Levels: -1},
		compress.QSGD{Levels: 1000},
		compress.PowerSGD{},
		compress.PowerSGD{Rank: 4},
		compress.PowerSGD{Rank: 3, Rows: 2, Cols: 5},
		compress.PowerSGD{Rank: 1, Rows: 3, Cols: 5},
		compress.PowerSGD{Rank: 1, Cols: 5},
		compress.PowerSGD{Rank: 1, Rows: -2, Cols: -5},
		compress.Int8{Block: -1},
		compress.Int8{Block: math.MaxInt},
	} {
		if err := compress.Fits(c, len(x)); err == nil {
			t.Errorf("%#v fits 10 values", c)
		}
		_ = c.Decode(make([]float32, 10), make([]byte, c.MaxLen(10))) // does not panic
		e := compress.NewResidual(10)
		if p, err := c.Encode([]byte("x"), x, e); err == nil || string(p) != "x" || e.Norm() != 0 {
			t.Errorf("%#v: Encode returned %q, %v; residual %v", c, p, err, e.Norm())
		}
	}
	for _, spec := range codecs {
		c := parse(t, spec)
		if _, err := c.Encode(nil, x, compress.NewResidual(9)); err == nil {
			t.Errorf("%s takes a residual of another length", spec)
		}
		for _, n := range []int{0, 1, 2, 7, 8, 9, 255, 256, 257, 511, 512, 513, 1030} {
			if compress.Fits(c, n) != nil {
				continue
			}
			x := normal(n, uint64(n))
			p, err := c.Encode(nil, x, nil)
			if err != nil || len(p) > c.MaxLen(n) {
				t.Fatalf("%s: %d values: %d bytes of %d, %v", spec, n, len(p), c.MaxLen(n), err)
			}
			y := normal(n, 1)
			z := append([]float32(nil), y...)
			if err := c.Decode(y, p); err != nil {
				t.Fatal(err)
			}
			if err := c.DecodeAdd(z, p); err != nil {
				t.Fatal(err)
			}
			for i, v := range normal(n, 1) {
				if v+y[i] != z[i] {
					t.Fatalf("%s: value %d: Decode gives %v, DecodeAdd %v over %v", spec, i, y[i], z[i], v)
				}
			}
			// Every cut is refused, and leaves dst alone.
			for cut := range p {
				y := normal(n, 2)
				if err := c.Decode(y, p[:cut]); err == nil {
					t.Fatalf("%s: %d of %d bytes are taken for %d values", spec, cut, len(p), n)
				}
				if fmt.Sprint(y) != fmt.Sprint(normal(n, 2)) {
					t.Fatalf("%s: a refused message has changed dst", spec)
				}
				if cut > 40 {
					break
				}
			}
			if c.Decode(make([]float32, n), append(p, 0)) == nil {
				t.Fatalf("%s: a byte too many is taken for %d values", spec, n)
			}
		}
	}
}

// A value that is not finite shows in what is decoded, and never stays in a residual.
func TestNotFinite(t *testing.T) {
	for _, spec := range codecs {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			c := parse(t, spec)
			x := normal(100, 4)
			x[50] = bad
			e := compress.NewResidual(100)
			p, err := c.Encode(nil, x, e)
			if err != nil {
				t.Fatal(err)
			}
			y := make([]float32, 100)
			if err := c.Decode(y, p); err != nil {
				t.Fatal(err)
			}
			seen := math.IsNaN(float64(y[50])) || math.IsInf(float64(y[50]), 0)
			if strings.HasPrefix(spec, "randomk") { // of what it did not draw, the message tells
				seen = slices.ContainsFunc(y, func(v float32) bool { return v != v })
			}
			if !seen {
				t.Errorf("%s: %v became %v", spec, bad, y[50])
			}
			if n := e.Norm(); n-n != 0 {
				t.Errorf("%s: %v: the residual's norm is %v", spec, bad, n)
			}
			if p, err = c.Encode(p[:0], x, nil); err != nil {
				t.Fatal(err)
			}
			if err := c.Decode(y, p); err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(y, func(v float32) bool { return v-v != 0 }) {
				t.Errorf("%s without a residual: %v is not seen", spec, bad)
			}
		}
	}
}
