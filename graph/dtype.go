package graph

import "github.com/trivium-ml/trivium/tensor"

// DType is the type of a value's elements.
type DType = tensor.DType

// Shorter names of the element types. BF16 and F16 are storage; arithmetic is on F32 and F64.
const (
	F32  = tensor.F32
	F64  = tensor.F64
	I32  = tensor.I32
	I64  = tensor.I64
	U8   = tensor.U8
	Bool = tensor.Bool
	BF16 = tensor.BF16
	F16  = tensor.F16
)

// integer reports whether values of this type may index.
func integer(d DType) bool { return d == I32 || d == I64 || d == U8 }
