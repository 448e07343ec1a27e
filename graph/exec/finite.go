package exec

import (
	"fmt"
	"math"

	"github.com/trivium-ml/trivium/graph"
)

// finite looks for a NaN or an infinity in a node's results.
func finite(b *bound) error {
	for k, s := range b.out {
		at, v := -1, 0.0
		switch {
		case s.p == nil:
		case s.dt == graph.F32:
			at, v = firstBad(flat[float32](s))
		case s.dt == graph.F64:
			at, v = firstBad(flat[float64](s))
		}
		if at >= 0 {
			return fmt.Errorf("output %d%v: element %d is %v", k, s.dims, at, v)
		}
	}
	return nil
}

func firstBad[T float](x []T) (int, float64) {
	for i, v := range x {
		if v-v != 0 { // NaN for both kinds
			return i, float64(v)
		}
	}
	return -1, math.NaN()
}
