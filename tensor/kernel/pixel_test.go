package kernel

import (
	"fmt"
	"testing"
)

// A pixel is what the division gives, on every instruction set and at every place of a vector.
func TestPixels(t *testing.T) {
	p := make([]byte, 2*256+pixelUnit)
	for i := range p {
		p[i] = byte(i)
	}
	for _, isa := range Available() {
		for _, n := range []int{0, 1, pixelUnit - 1, pixelUnit, pixelUnit + 1, 256, 511} {
			for from := range pixelUnit {
				dst := make([]float32, n+1)
				dst[n] = 7
				Pixels(isa, dst[:n], p[from:])
				for i, v := range dst[:n] {
					if want := float32(p[from+i]) / 255; v != want {
						t.Fatalf("%v: %d of %d bytes from %d: %d is %v, want %v", isa, i, n, from, p[from+i], v, want)
					}
				}
				if dst[n] != 7 {
					t.Fatalf("%v: %d bytes: what follows is %v", isa, n, dst[n])
				}
			}
		}
	}
}

func BenchmarkPixels(b *testing.B) {
	const n = 784
	dst, p := make([]float32, n), make([]byte, n)
	for _, isa := range Available()[1:] {
		b.Run(fmt.Sprint(isa), func(b *testing.B) {
			b.SetBytes(4 * n)
			for b.Loop() {
				Pixels(isa, dst, p)
			}
		})
	}
}
