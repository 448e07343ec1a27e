package graphtest

import (
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// Evaluate is Eval over tensors: what autodiff.CheckNumeric asks for.
func Evaluate(g *graph.Graph, feeds map[graph.Value]*tensor.Tensor, fetches []graph.Value) ([]*tensor.Tensor, error) {
	in := Feeds{}
	for v, t := range feeds {
		in[v] = FromTensor(t)
	}
	arrays, err := Eval(g, in, fetches...)
	if err != nil {
		return nil, err
	}
	out := make([]*tensor.Tensor, len(arrays))
	for i, a := range arrays {
		out[i] = a.Tensor(g.TypeOf(fetches[i]).DType)
	}
	return out, nil
}

// FromTensor copies a tensor.
func FromTensor(t *tensor.Tensor) Array {
	a := Zeros(t.Shape()...)
	switch t.DType() {
	case graph.F32:
		widen(a.Data, tensor.Flat[float32](t))
	case graph.F64:
		copy(a.Data, tensor.Flat[float64](t))
	case graph.I32:
		widen(a.Data, tensor.Flat[int32](t))
	case graph.I64:
		widen(a.Data, tensor.Flat[int64](t))
	case graph.U8:
		widen(a.Data, tensor.Flat[uint8](t))
	case graph.Bool:
		for i, x := range tensor.Flat[bool](t) {
			a.Data[i] = truth(x)
		}
	case graph.BF16:
		for i, x := range tensor.Flat[tensor.BFloat16](t) {
			a.Data[i] = float64(x.Float32())
		}
	case graph.F16:
		for i, x := range tensor.Flat[tensor.Float16](t) {
			a.Data[i] = float64(x.Float32())
		}
	}
	return a
}

// Tensor copies a into a tensor of the given type.
func (a Array) Tensor(dt graph.DType) *tensor.Tensor {
	t := tensor.New(dt, a.Shape...)
	switch dt {
	case graph.F32:
		narrow(tensor.Flat[float32](t), a.Data)
	case graph.F64:
		copy(tensor.Flat[float64](t), a.Data)
	case graph.I32:
		narrow(tensor.Flat[int32](t), a.Data)
	case graph.I64:
		narrow(tensor.Flat[int64](t), a.Data)
	case graph.U8:
		narrow(tensor.Flat[uint8](t), a.Data)
	case graph.Bool:
		for i, x := range a.Data {
			tensor.Flat[bool](t)[i] = x != 0
		}
	case graph.BF16:
		for i, x := range a.Data {
			tensor.Flat[tensor.BFloat16](t)[i] = tensor.ToBFloat16(float32(x))
		}
	case graph.F16:
		for i, x := range a.Data {
			tensor.Flat[tensor.Float16](t)[i] = tensor.ToFloat16(float32(x))
		}
	}
	return t
}

type number interface {
	float32 | int32 | int64 | uint8
}

func widen[T number](dst []float64, src []T) {
	for i, x := range src {
		dst[i] = float64(x)
	}
}

func narrow[T number](dst []T, src []float64) {
	for i, x := range src {
		dst[i] = T(x)
	}
}
