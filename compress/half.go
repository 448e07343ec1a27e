package compress

import "github.com/trivium-ml/trivium/tensor/kernel"

// F16 is IEEE 754 half precision, rounded to nearest even: 11 bits, from 6e-8 to 65504. What is larger becomes infinite.
type F16 struct{}

// BF16 is the upper half of a float32, rounded to nearest even: 8 bits, with float32's range.
type BF16 struct{}

func (F16) String() string    { return "f16" }
func (F16) MaxLen(n int) int  { return 2 * n }
func (BF16) String() string   { return "bf16" }
func (BF16) MaxLen(n int) int { return 2 * n }

func (c F16) Encode(dst []byte, src []float32, e *Residual) ([]byte, error) {
	return encodeHalf(c, kernel.F16, dst, src, e)
}

func (c F16) DecodeAdd(dst []float32, src []byte) error {
	return decodeHalf(c, kernel.F16, dst, src, kernel.WidenAdd)
}

func (c F16) Decode(dst []float32, src []byte) error {
	return decodeHalf(c, kernel.F16, dst, src, kernel.Widen)
}

func (c BF16) Encode(dst []byte, src []float32, e *Residual) ([]byte, error) {
	return encodeHalf(c, kernel.BF16, dst, src, e)
}

func (c BF16) DecodeAdd(dst []float32, src []byte) error {
	return decodeHalf(c, kernel.BF16, dst, src, kernel.WidenAdd)
}

func (c BF16) Decode(dst []float32, src []byte) error {
	return decodeHalf(c, kernel.BF16, dst, src, kernel.Widen)
}

func encodeHalf(c Codec, h kernel.Half, dst []byte, src []float32, e *Residual) ([]byte, error) {
	if e == nil {
		all, out := grow(dst, 2*len(src))
		kernel.Narrow(kernel.Best(), h, out, src)
		return all, nil
	}
	if err := e.begin(c, len(src)); err != nil {
		return dst, err
	}
	all, out := grow(dst, 2*len(src))
	kernel.NarrowKeep(kernel.Best(), h, out, e.cells, src)
	return all, nil
}

func decodeHalf(c Codec, h kernel.Half, dst []float32, src []byte, decode func(kernel.ISA, kernel.Half, []float32, []byte)) error {
	if len(src) != 2*len(dst) {
		return badLen(c, len(dst), 2*len(dst), len(src))
	}
	decode(kernel.Best(), h, dst, src)
	return nil
}
