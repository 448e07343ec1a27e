package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkSmall is what one call costs in first-level cache.
func BenchmarkSmall(b *testing.B) {
	r := rand.New(rand.NewPCG(15, 15))
	isa := Best()
	for _, n := range []int{10, 100, 1000} {
		x, y, z := plain[float32](r, n), plain[float32](r, n), plain[float32](r, n)
		for _, k := range []struct {
			name string
			f    func()
		}{
			{"Add", func() { Add(isa, z, x, y) }},
			{"Sum", func() { Sum(isa, x) }},
			{"Exp", func() { Exp(isa, z, x) }},
			{"Adam", func() { Adam(isa, z, x, x, y, y, AdamParams{Regular{LR: 1}, 0.9, 0.99, 1, 10}) }},
		} {
			b.Run(fmt.Sprintf("%s/%d", k.name, n), func(b *testing.B) {
				for b.Loop() {
					k.f()
				}
			})
		}
	}
	x, dx, loss, labels := plain[float32](r, 1000), make([]float32, 1000), make([]float32, 100), make([]int32, 100)
	b.Run("SoftmaxCrossEntropy/100x10", func(b *testing.B) {
		for b.Loop() {
			SoftmaxCrossEntropy(isa, loss, dx, x, labels, nil, 10)
		}
	})
	b.Run("ColSums/100x10", func(b *testing.B) {
		for b.Loop() {
			ColSums(isa, loss[:10], x, 100, 10)
		}
	})
	s := Pool2D{H: 28, W: 28, C: 32, KH: 2, KW: 2, SH: 2, SW: 2, OH: 14, OW: 14}
	img, y, arg := plain[float32](r, 28*28*32), make([]float32, 14*14*32), make([]int32, 14*14*32)
	b.Run("MaxPool/28x28x32", func(b *testing.B) {
		for b.Loop() {
			MaxPool(isa, y, arg, img, 1, s)
		}
	})
	b.Run("MaxPoolGrad/28x28x32", func(b *testing.B) {
		for b.Loop() {
			MaxPoolGrad(isa, img, y, arg, 1, s)
		}
	})
	x, y = plain[float32](r, 1000), make([]float32, 1000)
	b.Run("Dropout/1000", func(b *testing.B) {
		for b.Loop() {
			Dropout(isa, y, x, 0.5, 1, 0)
		}
	})
}
