package tensor

import (
	"fmt"

	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A DType is the type of a tensor's elements. The zero DType is none of them.
type DType uint8

// BF16 and F16 are storage: they are converted to F32 to be computed with.
const (
	F32 DType = iota + 1
	F64
	I32
	I64
	U8
	Bool
	BF16
	F16
)

var dtypes = [...]struct {
	name string
	size int // bytes per element
}{F32: {"f32", 4}, F64: {"f64", 8}, I32: {"i32", 4}, I64: {"i64", 8}, U8: {"u8", 1}, Bool: {"bool", 1}, BF16: {"bf16", 2}, F16: {"f16", 2}}

// Valid says whether dt is one of the types above.
func (dt DType) Valid() bool { return 0 < dt && int(dt) < len(dtypes) }

// Size is the number of bytes of an element, 0 for an invalid type.
func (dt DType) Size() int {
	if !dt.Valid() {
		return 0
	}
	return dtypes[dt].size
}

// Float says whether kernels compute with dt: F32 and F64.
func (dt DType) Float() bool { return dt == F32 || dt == F64 }

func (dt DType) String() string {
	if !dt.Valid() {
		return fmt.Sprintf("dtype(%d)", uint8(dt))
	}
	return dtypes[dt].name
}

// BFloat16 is the upper half of a float32: 8 bits of exponent, 7 of fraction.
type BFloat16 uint16

// ToBFloat16 rounds to nearest, ties to even. A NaN stays one.
func ToBFloat16(x float32) BFloat16 { return BFloat16(kernel.ToBF16(x)) }

// Float32 is exact.
func (h BFloat16) Float32() float32 { return kernel.FromBF16(uint16(h)) }

// Float16 is IEEE 754 binary16: 5 bits of exponent, 10 of fraction.
type Float16 uint16

// ToFloat16 rounds to nearest, ties to even; beyond 65504 and its rounding that is infinity. A NaN stays one.
func ToFloat16(x float32) Float16 { return Float16(kernel.ToF16(x)) }

// Float32 is exact.
func (h Float16) Float32() float32 { return kernel.FromF16(uint16(h)) }
