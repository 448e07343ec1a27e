package compress

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/trivium-ml/trivium/draw"
)

// QSGD rounds each value to one of a few levels (Alistarh et al. 2017): blocks of 512 share a scale, their largest absolute value, as
// the paper's experiments do. Without a residual it rounds up or down at random, so that the mean is the value. With one it rounds to
// nearest: what that drops is sent later anyway, and chance would only add noise. In a block with a value that is not finite all
// become NaN.
type QSGD struct {
	Levels int    // on each side of zero
	Seed   uint64 // as RandomK's
}

const (
	maxLevels = 127
	qsgdBlock = 512
)

func (c QSGD) String() string { return fmt.Sprintf("qsgd:%d", c.Levels) }
func (c QSGD) Linear() bool   { return false }

// bits is the width of a code: the level plus Levels.
func (c QSGD) bits() int { return bits.Len(uint(2 * c.Levels)) }

func (c QSGD) MaxLen(n int) int {
	return 4*((n+qsgdBlock-1)/qsgdBlock) + (n/qsgdBlock)*qsgdBlock/8*c.bits() + (n%qsgdBlock*c.bits()+7)/8
}

func (c QSGD) fits(int) error {
	if c.Levels < 1 || c.Levels > maxLevels {
		return fmt.Errorf("the number of levels must be from 1 to %d, found %d", maxLevels, c.Levels)
	}
	return nil
}

func (c QSGD) Encode(dst []byte, src []float32, e *Residual) ([]byte, error) {
	if err := Fits(c, len(src)); err != nil {
		return dst, err
	}
	x, err := e.add(c, src)
	if err != nil {
		return dst, err
	}
	var seed uint64
	if e == nil {
		seed = drawSeed(c.Seed, qsgdStream, x, nil)
	}
	all, out := grow(dst, c.MaxLen(len(x)))
	for block := uint64(0); len(x) > 0; block++ {
		n := min(len(x), qsgdBlock)
		size := 4 + (n*c.bits()+7)/8
		c.encode(out[:size], x[:n], e != nil, seed+block<<32)
		x, out = x[n:], out[size:]
	}
	return all, nil
}

func (c QSGD) encode(out []byte, x []float32, keep bool, seed uint64) {
	var top uint32
	for _, v := range x {
		top = max(top, math.Float32bits(v)&0x7fffffff)
	}
	levels := float32(c.Levels)
	most := math.Float32frombits(top)
	step, inverse := most/levels, levels/most
	switch {
	case top >= 0x7f800000:
		step, inverse = float32(math.NaN()), 0
	case most < tiny:
		step, inverse = 0, 0
	}
	binary.LittleEndian.PutUint32(out, math.Float32bits(step))
	out = out[4:]
	w := uint(c.bits())
	var acc uint64
	var have uint
	at := 0
	u := uint32(0x80000000) // one half: to nearest
	for i, v := range x {
		if !keep {
			if i&1 == 0 {
				seed += draw.Weyl
				u = uint32(draw.Mix(seed))
			} else {
				u = uint32(draw.Mix(seed) >> 32)
			}
		}
		// In float64 the sum of the quotient and u/2³² is exact enough that the mean is right to 2⁻³².
		q := float32(0)
		if inverse != 0 {
			q = float32(math.Floor(math.Abs(float64(v))*float64(inverse) + float64(u)/(1<<32)))
			q = float32(math.Copysign(float64(min(q, levels)), float64(v)))
		}
		if keep {
			x[i] = dropped(v - float32(q*step))
		}
		acc |= uint64(int(q)+c.Levels) << have
		for have += w; have >= 8; have -= 8 {
			out[at] = byte(acc)
			acc >>= 8
			at++
		}
	}
	if have > 0 {
		out[at] = byte(acc)
	}
}

func (c QSGD) DecodeAdd(dst []float32, src []byte) error {
	return c.decode(dst, src, func(at int, v float32) { dst[at] += v })
}

func (c QSGD) Decode(dst []float32, src []byte) error {
	return c.decode(dst, src, func(at int, v float32) { dst[at] = v })
}

// decode reads src twice: to check the codes, and to apply them.
func (c QSGD) decode(dst []float32, src []byte, apply func(at int, v float32)) error {
	if err := Fits(c, len(dst)); err != nil {
		return err
	}
	if want := c.MaxLen(len(dst)); len(src) != want {
		return badLen(c, len(dst), want, len(src))
	}
	var bad error
	c.walk(len(dst), src, func(at, level int, _ float32) {
		if level > c.Levels && bad == nil {
			bad = fmt.Errorf("compress: %s: value %d has level %d", c, at, level)
		}
	})
	if bad != nil {
		return bad
	}
	c.walk(len(dst), src, func(at, level int, step float32) { apply(at, float32(float32(level)*step)) })
	return nil
}

func (c QSGD) walk(n int, src []byte, visit func(at, level int, step float32)) {
	w := uint(c.bits())
	for from := 0; from < n; from += qsgdBlock {
		step := math.Float32frombits(binary.LittleEndian.Uint32(src))
		src = src[4:]
		var acc uint64
		var have uint
		p := 0
		for at := from; at < min(n, from+qsgdBlock); at++ {
			for ; have < w; have += 8 {
				acc |= uint64(src[p]) << have
				p++
			}
			visit(at, int(acc&(1<<w-1))-c.Levels, step)
			acc >>= w
			have -= w
		}
		src = src[p:]
	}
}
