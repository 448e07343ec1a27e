package compare

import (
	"math"

	"github.com/trivium-ml/trivium/internal/finite"
)

func orNaN(x *float64) float64 {
	if x == nil {
		return math.NaN()
	}
	return *x
}

// orZero is x, or 0 where it is no number: in figures that say elsewhere that there is none.
func orZero(x float64) float64 {
	if !finite.Is(x) {
		return 0
	}
	return x
}
