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
	w := c.bits()
	var codes [8]uint8
	for i := 0; i < len(x); i += len(codes) {
		part := x[i:min(i+len(codes), len(x))]
		if keep {
			c.nearest(&codes, part, inverse, step)
		} else {
			seed = c.random(&codes, part, inverse, seed)
		}
		var word uint64
		for k := range part {
			word |= uint64(codes[k]) << (k * w)
		}
		if len(out) >= 8 { // what is too much is written over
			binary.LittleEndian.PutUint64(out, word)
			out = out[w:]
			continue
		}
		for k := range (len(part)*w + 7) / 8 {
			out[k] = byte(word >> (8 * k))
		}
		out = out[(len(part)*w+7)/8:]
	}
}

// random codes up to 8 values, rounding up or down at random, and returns the seed of the next.
func (c QSGD) random(codes *[8]uint8, x []float32, inverse float32, seed uint64) uint64 {
	var u uint64
	for i, v := range x {
		if i&1 == 0 {
			seed += draw.Weyl
			u = draw.Mix(seed)
		}
		codes[i] = c.code(v, inverse, uint32(u))
		u >>= 32
	}
	return seed
}

// nearest codes up to 8 values, rounding to nearest, and leaves in them what that drops.
func (c QSGD) nearest(codes *[8]uint8, x []float32, inverse, step float32) {
	for i, v := range x {
		codes[i] = c.code(v, inverse, 1<<31)
		x[i] = dropped(v - float32(float32(int32(codes[i])-int32(c.Levels))*step))
	}
}

// code is the level of v, rounded up if the fraction and u/2³² reach one, plus Levels. In float64 their sum is exact enough that the mean
// is right to 2⁻³².
func (c QSGD) code(v, inverse float32, u uint32) uint8 {
	b := math.Float32bits(v)
	q := int32(0)
	if inverse != 0 {
		q = int32(float64(float64(math.Float32frombits(b&0x7fffffff))*float64(inverse)) + float64(u)*0x1p-32)
	}
	sign := int32(b) >> 31 // 0 or −1
	return uint8((min(q, int32(c.Levels)) ^ sign - sign) + int32(c.Levels))
}

func (c QSGD) DecodeAdd(dst []float32, src []byte) error {
	if err := c.verify(len(dst), src); err != nil {
		return err
	}
	c.walk(dst, src, func(dst []float32, codes *[8]uint8, step float32) {
		for i := range dst {
			dst[i] += float32(float32(int32(codes[i])-int32(c.Levels)) * step)
		}
	})
	return nil
}

func (c QSGD) Decode(dst []float32, src []byte) error {
	if err := c.verify(len(dst), src); err != nil {
		return err
	}
	c.walk(dst, src, func(dst []float32, codes *[8]uint8, step float32) {
		for i := range dst {
			dst[i] = float32(float32(int32(codes[i])-int32(c.Levels)) * step)
		}
	})
	return nil
}

// verify checks the length and all codes of src.
func (c QSGD) verify(n int, src []byte) error {
	if err := Fits(c, n); err != nil {
		return err
	}
	if want := c.MaxLen(n); len(src) != want {
		return badLen(c, n, want, len(src))
	}
	w, most := c.bits(), uint64(2*c.Levels)
	for from := 0; from < n; from += qsgdBlock {
		src = src[4:]
		for at := from; at < min(n, from+qsgdBlock); at += 8 {
			k := min(8, n-at)
			word, used := loadCodes(src, k, w)
			for i := range k {
				if level := word >> (i * w) & (1<<w - 1); level > most {
					return fmt.Errorf("compress: %s: value %d has level %d", c, at+i, int(level)-c.Levels)
				}
			}
			src = src[used:]
		}
	}
	return nil
}

// loadCodes returns the first k codes of src, at most 8 of w bits, and the bytes that they take.
func loadCodes(src []byte, k, w int) (word uint64, used int) {
	used = (k*w + 7) / 8
	if len(src) >= 8 {
		return binary.LittleEndian.Uint64(src), used
	}
	for i := range used {
		word |= uint64(src[i]) << (8 * i)
	}
	return word, used
}

// walk calls visit for up to 8 values at a time.
func (c QSGD) walk(dst []float32, src []byte, visit func(dst []float32, codes *[8]uint8, step float32)) {
	w := c.bits()
	mask := uint64(1)<<w - 1
	var codes [8]uint8
	for len(dst) > 0 {
		block := dst[:min(len(dst), qsgdBlock)]
		dst = dst[len(block):]
		step := math.Float32frombits(binary.LittleEndian.Uint32(src))
		src = src[4:]
		for len(block) > 0 {
			k := min(8, len(block))
			word, used := loadCodes(src, k, w)
			for i := range codes {
				codes[i] = uint8(word & mask)
				word >>= w
			}
			visit(block[:k], &codes, step)
			block, src = block[k:], src[used:]
		}
	}
}
