package exec

import (
	"fmt"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/internal/finite"
)

// checkFinite looks for a NaN or an infinity in a node's results.
func checkFinite(b *bound) error {
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
	if i := finite.FirstNot(x); i >= 0 {
		return i, float64(x[i])
	}
	return -1, 0
}
