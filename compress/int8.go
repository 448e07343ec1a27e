package compress

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Int8 sends each value as 8 bits: blocks of values share a scale, their largest absolute value divided by 127. In a block with a value
// that is not finite all become NaN; below 1e-36 all become 0.
type Int8 struct {
	Block int // values that share a scale; 0: 256
}

const (
	defaultBlock = 256 // 1.6 % of scales, and blocks that lie in the first-level cache while they are measured and written
	maxBlock     = 1 << 20
	tiny         = 1e-36 // 127 divided by less than that overflows
	roundBias    = 3 << 22
)

func (c Int8) String() string {
	if c.Block == 0 {
		return "int8"
	}
	return fmt.Sprintf("int8:%d", c.Block)
}

func (c Int8) block() int {
	if c.Block <= 0 {
		return defaultBlock
	}
	return c.Block
}

func (c Int8) MaxLen(n int) int { return n + 4*((n+c.block()-1)/c.block()) }

func (c Int8) fits(int) error {
	if c.Block < 0 || c.Block > maxBlock {
		return fmt.Errorf("the block must be from 1 to %d, found %d", maxBlock, c.Block)
	}
	return nil
}

func (c Int8) Encode(dst []byte, src []float32, e *Residual) ([]byte, error) {
	x, err := e.add(c, src)
	if err != nil {
		return dst, err
	}
	all, out := grow(dst, c.MaxLen(len(x)))
	for len(x) > 0 {
		n := min(len(x), c.block())
		encode8(out[:4+n], x[:n], e != nil)
		x, out = x[n:], out[4+n:]
	}
	return all, nil
}

// encode8 writes the scale and the block x, and with keep leaves in x what was dropped.
func encode8(out []byte, x []float32, keep bool) {
	var top uint32 // the bits of absolute values are in their order, with NaN above all
	for _, v := range x {
		top = max(top, math.Float32bits(v)&0x7fffffff)
	}
	most := math.Float32frombits(top)
	scale, inverse := most/127, 127/most
	switch {
	case top >= 0x7f800000:
		scale, inverse = float32(math.NaN()), 0
	case most < tiny:
		scale, inverse = 0, 0
	}
	binary.LittleEndian.PutUint32(out, math.Float32bits(scale))
	out = out[4:]
	if !keep {
		for i, v := range x {
			out[i] = byte(math.Float32bits(float32(v*inverse) + roundBias)) // the sum's last bits are the nearest whole number
		}
		return
	}
	for i, v := range x {
		q := byte(math.Float32bits(float32(v*inverse) + roundBias))
		out[i] = q
		x[i] = dropped(v - float32(float32(int8(q))*scale))
	}
}

func (c Int8) DecodeAdd(dst []float32, src []byte) error {
	return c.blocks(dst, src, func(dst []float32, q []byte, scale float32) {
		for i := range dst {
			dst[i] += float32(float32(int8(q[i])) * scale)
		}
	})
}

func (c Int8) Decode(dst []float32, src []byte) error {
	return c.blocks(dst, src, func(dst []float32, q []byte, scale float32) {
		for i := range dst {
			dst[i] = float32(int8(q[i])) * scale
		}
	})
}

func (c Int8) blocks(dst []float32, src []byte, apply func(dst []float32, q []byte, scale float32)) error {
	if err := Fits(c, len(dst)); err != nil {
		return err
	}
	if want := c.MaxLen(len(dst)); len(src) != want {
		return badLen(c, len(dst), want, len(src))
	}
	for len(dst) > 0 {
		n := min(len(dst), c.block())
		apply(dst[:n], src[4:4+n], math.Float32frombits(binary.LittleEndian.Uint32(src)))
		dst, src = dst[n:], src[4+n:]
	}
	return nil
}
