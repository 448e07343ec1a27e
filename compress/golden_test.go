package compress_test

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"testing"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/draw"
)

// TestGoldenBits compares what this machine sends and keeps with what every other one does. (With the race detector it is what a
// machine without kernels in assembly does.) A hash changes only when what travels does: then parties of two versions do not agree, and it
// is replaced by what the test prints, which must be the same everywhere.
func TestGoldenBits(t *testing.T) {
	for spec, want := range map[string]uint64{
		"f16":          0x8ebe382d2c0f8715,
		"bf16":         0x9d5d6ea4bf292e3c,
		"int8":         0xe13b1d50657daa87,
		"int8:64":      0x2a2f01b078b8869c,
		"1bit":         0x1dbd6a09c1e4f6c8,
		"1bit:l2":      0x93fa9c3323d54a2e,
		"topk:0.1":     0xf41b36bd49cfede4,
		"randomk:0.1":  0x82305c15ee7b845b,
		"qsgd:1":       0xcc0321212a3cfc0e,
		"qsgd:7":       0x08dc377aab8f2b79,
		"qsgd:127":     0x44aa9bfd8da74374,
		"powersgd:1":   0x494731142de5c2a8,
		"powersgd:4":   0x150da0949daaa89c,
		"powersgd:6":   0x855142daad9a6776,
		"powersgd:31":  0xadc48763522f9a70,
		"powersgd:100": 0xc8361518f5932c2d,
	} {
		c := parse(t, spec)
		h := fnv.New64a()
		for _, n := range []int{0, 1, 9, 1000, 12_345} {
			if compress.Fits(c, n) != nil {
				continue
			}
			x, y := make([]float32, n), make([]float32, n)
			e := compress.NewResidual(n)
			for round := range uint64(3) {
				for i := range x { // of many sizes, exactly the same on every machine
					at := uint64(i)
					x[i] = draw.Unit(round, 70, at) * draw.Unit(round, 71, at) * float32(math.Ldexp(1, -int(draw.Below(round, 72, at, 12))))
				}
				for _, e := range []*compress.Residual{nil, e} {
					p, err := c.Encode(nil, x, e)
					if err != nil {
						t.Fatal(err)
					}
					if err := c.DecodeAdd(y, p); err != nil {
						t.Fatal(err)
					}
					h.Write(p)
				}
				for i, v := range e.Cells() {
					_ = binary.Write(h, binary.LittleEndian, [2]float32{v, y[i]})
				}
			}
		}
		if got := h.Sum64(); got != want {
			t.Errorf("%q: %#016x, want %#016x", spec, got, want)
		}
	}
}
