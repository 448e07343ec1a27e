package ps

import (
	"math/big"
	"testing"
)

// TestSameBitsInit: an untouched cell does not depend on whether the processor rounds a product before it is added (arm64 does not, unless
// told to): it is what arithmetic of 53 bits in software makes of the number that is drawn. CI runs it on both.
func TestSameBitsInit(t *testing.T) {
	number := func(x float64) *big.Float { return new(big.Float).SetPrec(53).SetFloat64(x) }
	for _, kind := range []InitKind{Uniform, Normal} {
		plain, init := Init{Kind: kind, B: 1, Seed: 5}, Init{Kind: kind, A: 0.3, B: 0.9, Seed: 5}
		factor := init.B
		if kind == Uniform {
			factor -= init.A
		}
		for col := range int64(1000) {
			drawn := plain.value(7, col)
			cell := new(big.Float).SetPrec(53).Mul(number(factor), number(drawn))
			want, _ := cell.Add(cell, number(init.A)).Float64()
			if got := init.value(7, col); got != want || got == init.A {
				t.Fatalf("%v: cell %d of %v, drawn %v, is %v, want %v", kind, col, init, drawn, got, want)
			}
		}
	}
}
