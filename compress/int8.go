package compress

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// Int8 sends each value as 8 bits: blocks of values share a scale, their largest absolute value divided by 127, or the next number below
// where 127 times that is infinite. In a block with a value that is not finite all become NaN; below 1e-36 all become 0.
type Int8 struct {
	Block int // values that share a scale; 0: 256
}

const (
	defaultBlock = 256 // 1.6 % of scales, and blocks that lie in the first-level cache while they are measured and written
	maxBlock     = 1 << 20
	tiny         = 1e-36 // 127 divided by less than that overflows
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
	if err := Fits(c, len(src)); err != nil {
		return dst, err
	}
	if e != nil {
		if err := e.begin(c, len(src)); err != nil {
			return dst, err
		}
	}
	all, out := grow(dst, c.MaxLen(len(src)))
	for at := 0; at < len(src); {
		n := min(len(src)-at, c.block())
		var keep []float32
		if e != nil {
			keep = e.cells[at : at+n]
		}
		encode8(out[:4+n], src[at:at+n], keep)
		at, out = at+n, out[4+n:]
	}
	return all, nil
}

// encode8 writes the scale and the block x. With keep it adds x to it first, writes that, and leaves in it what was dropped.
func encode8(out []byte, x, keep []float32) {
	isa := kernel.Best()
	if keep != nil {
		kernel.Add(isa, keep, keep, x)
		x = keep
	}
	most := kernel.Peak(isa, x)
	scale, inverse := levelStep(most, 127), 127/most
	switch {
	case !finite.Is(most):
		scale, inverse = float32(math.NaN()), 0
		clear(keep)
	case most < tiny:
		scale, inverse = 0, 0
	}
	binary.LittleEndian.PutUint32(out, math.Float32bits(scale))
	switch out = out[4:]; {
	case inverse == 0:
		clear(out)
	case keep != nil:
		kernel.ToInt8Keep(isa, out, keep, inverse, scale)
	default:
		kernel.ToInt8(isa, out, x, inverse)
	}
}

// levelStep is the distance of levels whose outermost is most: the nearest, or the next below where the outermost would be infinite.
func levelStep(most, levels float32) float32 {
	step := most / levels
	if !finite.Is(float32(step*levels)) && finite.Is(most) {
		step = math.Float32frombits(math.Float32bits(step) - 1)
	}
	return step
}

func (c Int8) DecodeAdd(dst []float32, src []byte) error { return c.blocks(dst, src, kernel.AddInt8) }

func (c Int8) Decode(dst []float32, src []byte) error { return c.blocks(dst, src, kernel.FromInt8) }

func (c Int8) blocks(dst []float32, src []byte, apply func(isa kernel.ISA, dst []float32, q []byte, scale float32)) error {
	if err := Fits(c, len(dst)); err != nil {
		return err
	}
	if want := c.MaxLen(len(dst)); len(src) != want {
		return badLen(c, len(dst), want, len(src))
	}
	for len(dst) > 0 {
		n := min(len(dst), c.block())
		apply(kernel.Best(), dst[:n], src[4:4+n], math.Float32frombits(binary.LittleEndian.Uint32(src)))
		dst, src = dst[n:], src[4+n:]
	}
	return nil
}
