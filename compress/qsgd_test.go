package compress_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"testing"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/draw"
)

// dumbQSGD is QSGD's definition, a value at a time in float64, and a bit at a time. With keep it leaves in x what is dropped.
func dumbQSGD(levels int, seed uint64, x []float32, keep bool) (p []byte) {
	h := uint64(len(x))
	for _, v := range x {
		h = (h ^ uint64(math.Float32bits(v))) * draw.Weyl
		h ^= h >> 29
	}
	seed = draw.Bits(seed, draw.Stream("compress qsgd"), h>>24)
	width := bits.Len(uint(2 * levels))
	for block := 0; 512*block < len(x); block++ {
		x := x[512*block : min(512*(block+1), len(x))]
		var most float64
		for _, v := range x {
			most = max(most, math.Abs(float64(v))) // NaN, if one is
		}
		step, inverse := float32(most)/float32(levels), float32(levels)/float32(most)
		switch {
		case most-most != 0:
			step, inverse = float32(math.NaN()), 0
		case float32(most) < 1e-36:
			step, inverse = 0, 0
		case float64(levels)*float64(step) >= overflow:
			step = math.Nextafter32(step, 0)
		}
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(step))
		start := len(p)
		p = append(p, make([]byte, (len(x)*width+7)/8)...)
		for i, v := range x {
			up := 0.5
			if !keep {
				up = float64(draw.Mix(seed+uint64(block)<<32+uint64(i/2+1)*draw.Weyl)>>(i%2*32)&math.MaxUint32) / (1 << 32)
			}
			level := 0
			if inverse != 0 {
				level = min(levels, int(float64(math.Abs(float64(v))*float64(inverse))+up))
			}
			if math.Signbit(float64(v)) {
				level = -level
			}
			for b := range width {
				p[start+(i*width+b)/8] |= byte((level+levels)>>b&1) << ((i*width + b) % 8)
			}
			if keep {
				x[i] = v - float32(float32(level)*step)
				if x[i]-x[i] != 0 {
					x[i] = 0
				}
			}
		}
	}
	return p
}

// qsgdValues are vectors at which a faster QSGD could differ: of all lengths, with ties, of denormal, huge and not finite values.
func qsgdValues(seed uint64, levels int) []float32 {
	roll := func(k, n uint64) int { return int(draw.Below(seed, 5, k, n)) }
	x := normal(1+roll(0, 2100), seed)
	scale := float32([]float64{1, 1e-4, 3e-37, 1e-39, 2e37, 1e30}[roll(1, 6)])
	kind := roll(2, 6)
	for i := range x {
		switch kind {
		case 0: // multiples of half a step, and next to them
			x[i] = float32(roll(uint64(9+i), uint64(4*levels+1))-2*levels) / 2
			if b := math.Float32bits(x[i]); roll(uint64(5000+i), 3) == 0 && b&0x7fffffff != 0 {
				x[i] = math.Float32frombits(b + uint32(roll(uint64(9000+i), 3)) - 1)
			}
		case 1: // many zeros, of both signs
			if roll(uint64(9+i), 3) > 0 {
				x[i] *= 0
			}
		case 2: // far apart
			x[i] = float32(math.Ldexp(float64(x[i]), roll(uint64(9+i), 60)-60))
		}
		x[i] *= scale
	}
	at := func(k uint64) *float32 { return &x[roll(k, uint64(len(x)))] }
	switch roll(3, 12) {
	case 0:
		*at(4) = float32(math.NaN())
	case 1:
		*at(4) = float32(math.Inf(-1))
	case 2:
		*at(4), *at(5) = math.MaxFloat32, -math.MaxFloat32
	case 3:
		*at(4) = float32(levels)
	case 4:
		*at(4), *at(5) = 1e-36, math.Float32frombits(1)
	case 5:
		*at(4) = float32(math.Copysign(0, -1))
	}
	return x
}

// TestQSGDAgainstDefinition: the bytes, and what is kept, are those of the definition, bit for bit.
func TestQSGDAgainstDefinition(t *testing.T) {
	rounds := uint64(600)
	if testing.Short() {
		rounds = 60
	}
	for seed := range rounds {
		levels := []int{1, 2, 3, 4, 7, 8, 15, 16, 31, 63, 64, 100, 127}[seed%13]
		c := compress.QSGD{Levels: levels, Seed: seed}
		x := qsgdValues(seed, levels)
		want := append([]byte("before"), dumbQSGD(levels, seed, x, false)...)
		room := bytes.Repeat([]byte{0xa5}, len(want)+16)
		got, err := c.Encode(append(room[:0], "before"...), x, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("seed %d, %d levels, %d values: at random, the bytes differ from byte %d on", seed, levels, len(x), differ(got, want))
		}
		if i := differ(room[len(want):], bytes.Repeat([]byte{0xa5}, 16)); i < 16 {
			t.Fatalf("seed %d: byte %d behind the message was written", seed, i)
		}
		kept, e := normal(len(x), seed+1), compress.NewResidual(len(x))
		for i := range kept {
			kept[i] *= x[i]
			if kept[i]-kept[i] != 0 {
				kept[i] = 1
			}
		}
		copy(e.Cells(), kept)
		for i, v := range x {
			kept[i] += v
		}
		want = dumbQSGD(levels, seed, kept, true)
		if got, err = c.Encode(got[:0], x, e); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("seed %d, %d levels, %d values: to nearest, the bytes differ from byte %d on", seed, levels, len(x), differ(got, want))
		}
		for i, v := range e.Cells() {
			if math.Float32bits(v) != math.Float32bits(kept[i]) {
				t.Fatalf("seed %d, %d levels: of value %d of %d is kept %v, want %v", seed, levels, i, len(x), v, kept[i])
			}
		}
		decodesQSGD(t, c, want, len(x))
	}
}

// decodesQSGD compares what p is decoded to with its definition, and has every code that is too high refused.
func decodesQSGD(t *testing.T, c compress.QSGD, p []byte, n int) {
	t.Helper()
	y, z := make([]float32, n), normal(n, 9)
	if err := c.Decode(y, p); err != nil {
		t.Fatal(err)
	}
	if err := c.DecodeAdd(z, p); err != nil {
		t.Fatal(err)
	}
	width := bits.Len(uint(2 * c.Levels))
	size := 4 + 512*width/8 // of a whole block
	for i, before := range normal(n, 9) {
		block := p[i/512*size:]
		bit := i % 512 * width
		code := 0
		for b := range width {
			code |= int(block[4+(bit+b)/8]>>((bit+b)%8)&1) << b
		}
		v := float32(float32(code-c.Levels) * math.Float32frombits(binary.LittleEndian.Uint32(block)))
		if v == v && (math.Float32bits(y[i]) != math.Float32bits(v) || math.Float32bits(z[i]) != math.Float32bits(before+v)) || v != v && y[i] == y[i] {
			t.Fatalf("%d levels: value %d of %d is decoded to %v and %v, want %v and %v", c.Levels, i, n, y[i], z[i], v, before+v)
		}
	}
	// One code of all ones, which is above the highest level.
	i := n * 2 / 3
	at, bit := i/512*size+4, i%512*width
	bad := bytes.Clone(p)
	for b := range width {
		bad[at+(bit+b)/8] |= 1 << ((bit + b) % 8)
	}
	if err := c.Decode(y, bad); err == nil {
		t.Fatalf("%d levels: a code of all ones is taken for value %d of %d", c.Levels, i, n)
	}
}

func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
