package exec

import (
	"fmt"
	"hash/fnv"
	"math"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// initial draws a Variable's first value: a pure function of the seed and of the Variable's name, shape and Init, with the same bits on every
// processor.
func initial(seed uint64, v *graph.Variable) (*tensor.Tensor, error) {
	t := tensor.New(v.DType(), v.Shape()...)
	in := v.Init
	if in.Kind > graph.InitTruncated {
		return nil, fmt.Errorf("Variable %q: unknown kind of initial value %d", v.Name, in.Kind)
	}
	key, scale := initialKey(seed, v.Name), 1/math.Sqrt(in.Scale.Fan(v.Shape()))
	value := func(i int) float64 { return in.At(key, 0, uint64(i)) * scale }
	switch v.DType() {
	case graph.F32:
		each(tensor.Flat[float32](t), value)
	case graph.F64:
		each(tensor.Flat[float64](t), value)
	case graph.I32:
		each(tensor.Flat[int32](t), value)
	case graph.I64:
		each(tensor.Flat[int64](t), value)
	case graph.U8:
		each(tensor.Flat[uint8](t), value)
	default:
		if in.Kind != graph.InitZeros {
			return nil, fmt.Errorf("Variable %q: initial values of %v are zeros only", v.Name, v.DType())
		}
	}
	return t, nil
}

// initialKey is the seed of one Variable's numbers.
func initialKey(seed uint64, name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return graph.Key(seed, int64(h.Sum64()), 0, 0)
}

func each[T number](x []T, value func(i int) float64) {
	for i := range x {
		x[i] = T(value(i))
	}
}
