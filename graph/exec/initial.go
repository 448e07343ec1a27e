package exec

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// initial draws a Variable's first value: a pure function of the seed and of the Variable's name, shape and Init.
func initial(seed uint64, v *graph.Variable) (*tensor.Tensor, error) {
	t := tensor.New(v.DType(), v.Shape()...)
	in := v.Init
	root := math.Sqrt(in.Scale.Fan(v.Shape()))
	a, b := in.A/root, in.B/root
	h := fnv.New64a()
	h.Write([]byte(v.Name))
	r := rand.New(rand.NewPCG(seed, h.Sum64()))
	draw, err := drawer(in.Kind, a, b, r)
	if err != nil {
		return nil, fmt.Errorf("Variable %q: %w", v.Name, err)
	}
	switch v.DType() {
	case graph.F32:
		each(tensor.Flat[float32](t), draw)
	case graph.F64:
		each(tensor.Flat[float64](t), draw)
	case graph.I32:
		each(tensor.Flat[int32](t), draw)
	case graph.I64:
		each(tensor.Flat[int64](t), draw)
	case graph.U8:
		each(tensor.Flat[uint8](t), draw)
	default:
		if in.Kind != graph.InitZeros {
			return nil, fmt.Errorf("Variable %q: initial values of %v are zeros only", v.Name, v.DType())
		}
	}
	return t, nil
}

func drawer(kind graph.InitKind, a, b float64, r *rand.Rand) (func() float64, error) {
	switch kind {
	case graph.InitZeros:
		return func() float64 { return 0 }, nil
	case graph.InitConstant:
		return func() float64 { return a }, nil
	case graph.InitUniform:
		return func() float64 { return a + (b-a)*r.Float64() }, nil
	case graph.InitNormal:
		return func() float64 { return a + b*r.NormFloat64() }, nil
	case graph.InitTruncated:
		return func() float64 {
			for {
				if z := r.NormFloat64(); math.Abs(z) <= 2 {
					return a + b*z
				}
			}
		}, nil
	}
	return nil, fmt.Errorf("unknown kind of initial value %d", kind)
}

func each[T number](x []T, draw func() float64) {
	for i := range x {
		x[i] = T(draw())
	}
}
