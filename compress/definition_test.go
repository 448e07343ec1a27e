package compress_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/trivium-ml/trivium/compress"
)

// overflow is the least number that is infinity as a float32.
const overflow = 0x1p128 - 0x1p103

// dumbInt8 is Int8's definition, a value at a time. It leaves in x what is dropped.
func dumbInt8(block int, x []float32) (p []byte) {
	for ; len(x) > 0; x = x[min(block, len(x)):] {
		x := x[:min(block, len(x))]
		var most float64
		for _, v := range x {
			most = max(most, math.Abs(float64(v))) // NaN, if one is
		}
		scale, inverse := float32(most)/127, 127/float32(most)
		switch {
		case most-most != 0:
			scale, inverse = float32(math.NaN()), 0
			clear(x)
		case float32(most) < 1e-36:
			scale, inverse = 0, 0
		case 127*float64(scale) >= overflow:
			scale = math.Nextafter32(scale, 0)
		}
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(scale))
		for i, v := range x {
			q := int8(0)
			if inverse != 0 {
				q = int8(math.RoundToEven(float64(float32(v * inverse))))
				if x[i] = v - float32(float32(q)*scale); x[i]-x[i] != 0 {
					x[i] = 0
				}
			}
			p = append(p, byte(q))
		}
	}
	return p
}

// dumbOneBit is OneBit's, likewise.
func dumbOneBit(l2 bool, x []float32) (p []byte) {
	var s [4]float64
	for i, v := range x {
		if l2 {
			s[i%4] += float64(v) * float64(v)
		} else {
			s[i%4] += math.Abs(float64(v))
		}
	}
	mean := (s[0] + s[1] + (s[2] + s[3])) / float64(len(x))
	if l2 {
		mean = math.Sqrt(mean)
	}
	if mean-mean != 0 {
		mean = math.NaN()
	}
	scale := float32(mean)
	p = binary.LittleEndian.AppendUint32(p, math.Float32bits(scale))
	p = append(p, make([]byte, (len(x)+7)/8)...)
	for i, v := range x {
		sent := scale
		if math.Signbit(float64(v)) {
			p[4+i/8] |= 1 << (i % 8)
			sent = -scale
		}
		if x[i] = v - sent; x[i]-x[i] != 0 {
			x[i] = 0
		}
	}
	return p
}

// TestAgainstDefinition: the bytes of Int8 and OneBit, and what they keep, are those of the definitions, bit for bit; also of blocks that are too
// small for a scale, of which nothing is sent and all is kept.
func TestAgainstDefinition(t *testing.T) {
	define := func(block int) func(x []float32) []byte {
		return func(x []float32) []byte { return dumbInt8(block, x) }
	}
	for _, v := range []struct {
		codec      compress.Codec
		definition func(x []float32) []byte
	}{
		{compress.Int8{}, define(256)},
		{compress.Int8{Block: 5}, define(5)},
		{compress.OneBit{}, func(x []float32) []byte { return dumbOneBit(false, x) }},
		{compress.OneBit{L2: true}, func(x []float32) []byte { return dumbOneBit(true, x) }},
	} {
		for seed := range uint64(120) {
			x := qsgdValues(seed, 127)
			kept, e := make([]float32, len(x)), compress.NewResidual(len(x))
			for i, v := range normal(len(x), seed+1) {
				if e.Cells()[i] = v * x[i]; e.Cells()[i]-e.Cells()[i] != 0 {
					e.Cells()[i] = 1
				}
				kept[i] = e.Cells()[i] + x[i]
			}
			want := v.definition(kept)
			got, err := v.codec.Encode(nil, x, e)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("%s, seed %d: of %d values, the bytes differ from byte %d on", v.codec, seed, len(x), differ(got, want))
			}
			for i, k := range e.Cells() {
				if math.Float32bits(k) != math.Float32bits(kept[i]) {
					t.Fatalf("%s, seed %d: of value %d of %d is kept %v, want %v", v.codec, seed, i, len(x), k, kept[i])
				}
			}
			want = v.definition(append([]float32(nil), x...))
			if got, err = v.codec.Encode(got[:0], x, nil); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s, seed %d: without a residual, the bytes differ from byte %d on (%v)", v.codec, seed, differ(got, want), err)
			}
		}
	}
}

// TestNearTheLargest: what is finite is decoded to what is finite, also where the nearest scale times the outermost level is not.
func TestNearTheLargest(t *testing.T) {
	specs := []string{"int8", "int8:5"}
	for levels := 1; levels <= 127; levels++ {
		specs = append(specs, fmt.Sprintf("qsgd:%d", levels))
	}
	rounded := 0
	for _, spec := range specs {
		c := parse(t, spec)
		for below := range 40 {
			most := math.Float32frombits(math.Float32bits(math.MaxFloat32) - uint32(below))
			x := make([]float32, 11) // some for vectors, some for the rest
			for i := range x {
				x[i] = most * float32(1-2*(i&1))
			}
			x[4] = 1e30
			for _, e := range []*compress.Residual{nil, compress.NewResidual(len(x))} {
				p, err := c.Encode(nil, x, e)
				if err != nil {
					t.Fatal(err)
				}
				y, z := make([]float32, len(x)), make([]float32, len(x))
				if err := errors.Join(c.Decode(y, p), c.DecodeAdd(z, p)); err != nil {
					t.Fatal(err)
				}
				for i, v := range x {
					near := float64(most) * 0x1p-20
					if i == 4 { // one step at most
						near = float64(most)
					}
					if !(math.Abs(float64(y[i])-float64(v)) <= near) || z[i] != y[i] {
						t.Fatalf("%s: %v, %d below the largest, is decoded to %v and %v", spec, v, below, y[i], z[i])
					}
					if e != nil && i != 4 && float64(e.Cells()[i]) != float64(v)-float64(y[i]) {
						t.Fatalf("%s: of %v, sent as %v, is kept %v", spec, v, y[i], e.Cells()[i])
					}
					if y[i] != v {
						rounded++
					}
				}
			}
		}
	}
	if rounded == 0 {
		t.Error("no scale is rounded")
	}
}
