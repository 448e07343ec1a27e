package compress_test

import (
	"math"
	"testing"

	"github.com/trivium-ml/trivium/compress"
)

// Hostile bytes are refused with dst as it was, or decoded the same way by Decode and DecodeAdd; nothing panics.
func FuzzDecode(f *testing.F) {
	for i, spec := range codecs {
		c := parse(f, spec)
		for _, n := range []int{0, 1, 9, 600} {
			if p, err := c.Encode(nil, normal(n, 1), nil); err == nil {
				f.Add(uint8(i), uint16(n), p)
			}
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, n uint16, p []byte) {
		c := parse(t, codecs[int(which)%len(codecs)])
		n %= 2000
		y, z := make([]float32, n), make([]float32, n)
		for i := range y {
			y[i] = 3
		}
		err := c.Decode(y, p)
		if (err == nil) != (c.DecodeAdd(z, p) == nil) {
			t.Fatal("Decode and DecodeAdd disagree")
		}
		for i := range y {
			switch {
			case err != nil && (y[i] != 3 || z[i] != 0):
				t.Fatalf("a refused message changed value %d", i)
			case err == nil && y[i] != z[i] && (y[i] == y[i] || z[i] == z[i]):
				t.Fatalf("value %d: Decode gives %v, DecodeAdd %v", i, y[i], z[i])
			}
		}
	})
}

func FuzzResidualState(f *testing.F) {
	e := compress.NewResidual(5)
	e.SetRate(0.1)
	for _, spec := range codecs {
		_, _ = parse(f, spec).Encode(nil, normal(5, 1), e)
		_, _ = parse(f, spec).Encode(nil, normal(3, 1), e.Range(1, 4))
	}
	f.Add(e.AppendState(nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		e := compress.NewResidual(5)
		if e.SetState(p) != nil {
			if e.Norm() != 0 {
				t.Fatal("refused state changed the residual")
			}
			return
		}
		again := compress.NewResidual(5)
		if err := again.SetState(e.AppendState(nil)); err != nil {
			t.Fatal(err)
		}
		if n := e.Norm(); math.IsNaN(n) {
			t.Fatal("the residual is not finite")
		}
	})
}

func BenchmarkCodec(b *testing.B) {
	x := normal(1<<20, 1)
	for i := range x {
		x[i] *= 1e-4 // as gradients are: on both sides of half precision's smallest normal number
	}
	for _, spec := range []string{"f16", "bf16", "int8", "1bit", "topk:0.01", "randomk:0.01", "qsgd:7", "powersgd:4"} {
		c := parse(b, spec)
		var p []byte
		y := make([]float32, len(x))
		e := compress.NewResidual(len(x))
		p, _ = c.Encode(p[:0], x, nil)
		b.Run(spec+"/encode", func(b *testing.B) {
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				p, _ = c.Encode(p[:0], x, nil)
			}
		})
		b.Run(spec+"/feedback", func(b *testing.B) {
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				p, _ = c.Encode(p[:0], x, e)
			}
		})
		b.Run(spec+"/decode", func(b *testing.B) {
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				_ = c.DecodeAdd(y, p)
			}
		})
	}
}
