package compress

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/tensor/kernel"
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
	x, err := e.add(c, src)
	if err != nil {
		return dst, err
	}
	var seed uint64
	if e == nil {
		seed = drawSeed(c.Seed, qsgdStream, x, nil)
	}
	all, out := grow(dst, c.MaxLen(len(x)))
	var w qsgdWork
	for block := uint64(0); len(x) > 0; block++ {
		n := min(len(x), qsgdBlock)
		step, inverse := qsgdScale(x[:n], float32(c.Levels))
		binary.LittleEndian.PutUint32(out, math.Float32bits(step))
		switch {
		case inverse == 0:
			w.zero(x[:n], step, e != nil)
		case e == nil:
			w.random(x[:n], inverse, c.Levels, seed+block<<32)
		default:
			w.nearest(x[:n], inverse, step, c.Levels)
		}
		out = out[4+kernel.Codes(kernel.Best(), out[4:], w.biased[:n], c.bits(), c.Levels):]
		x = x[n:]
	}
	return all, nil
}

// A qsgdWork is the memory for a block, which stays in the first-level cache. Levels are kept as kernel.Codes takes them: plus
// kernel.RoundBias.
type qsgdWork struct{ biased, level, rest [qsgdBlock]float32 }

// qsgdScale returns the distance of two levels of x, and its inverse; 0, if all values become level 0.
func qsgdScale(x []float32, levels float32) (step, inverse float32) {
	switch most := kernel.Peak(kernel.Best(), x); {
	case !finite.Is(most):
		return float32(math.NaN()), 0
	case most < tiny:
		return 0, 0
	default:
		return levelStep(most, levels), levels / most
	}
}

// zero makes all values level 0. Of what is not finite, keep leaves nothing.
func (w *qsgdWork) zero(x []float32, step float32, keep bool) {
	for i := range x {
		w.biased[i] = kernel.RoundBias
	}
	if keep && step != 0 {
		clear(x)
	}
}

// random rounds up or down at random. It draws 64 bits for two values.
func (w *qsgdWork) random(x []float32, inverse float32, levels int, seed uint64) {
	most, scale := int32(levels), float64(inverse)
	for i := 0; i+2 <= len(x); i += 2 {
		seed += draw.Weyl
		u := draw.Mix(seed)
		pair, to := x[i:i+2:i+2], w.biased[i:i+2:i+2]
		to[0] = biased(level(pair[0], scale, float64(uint32(u))*0x1p-32, most))
		to[1] = biased(level(pair[1], scale, float64(u>>32)*0x1p-32, most))
	}
	if i := len(x) - 1; i&1 == 0 {
		w.biased[i] = biased(level(x[i], scale, float64(uint32(draw.Mix(seed+draw.Weyl)))*0x1p-32, most))
	}
}

// nearest rounds to nearest, and leaves in x what that drops. What float32 cannot tell from the middle of two levels is rounded by the
// definition, in float64; so the bits are the definition's.
func (w *qsgdWork) nearest(x []float32, inverse, step float32, levels int) {
	isa := kernel.Best()
	b, f, rest := w.biased[:len(x)], w.level[:len(x)], w.rest[:len(x)]
	kernel.Scale(isa, rest, x, inverse)
	kernel.AddScalar(isa, b, rest, kernel.RoundBias)
	kernel.AddScalar(isa, f, b, -kernel.RoundBias)
	kernel.Sub(isa, rest, rest, f)
	kernel.Abs(isa, rest, rest)
	// A product below 128 is rounded by 2⁻¹⁸ at most. Levels times a step may be infinite only if it is near the largest number.
	if kernel.MaxOf(isa, rest) < 0.5-0x1p-16 && step < math.MaxFloat32/256 {
		kernel.Axpy(isa, x, -step, f)
		return
	}
	most, scale := int32(levels), float64(inverse)
	for i, v := range x {
		q := level(v, scale, 0.5, most)
		b[i] = biased(q)
		x[i] = dropped(v - float32(float32(q)*step))
	}
}

// level is that of v, rounded up if the fraction and up reach one. In float64 their sum is exact enough that the mean over up is right to
// 2⁻³².
func level(v float32, scale, up float64, most int32) int32 {
	b := math.Float32bits(v)
	q := min(int32(float64(float64(math.Float32frombits(b&0x7fffffff))*scale)+up), most)
	sign := int32(b) >> 31 // 0 or −1
	return q ^ sign - sign
}

func biased(level int32) float32 { return float32(kernel.RoundBias + level) }

func (c QSGD) DecodeAdd(dst []float32, src []byte) error { return c.decode(dst, src, kernel.AddCodes) }

func (c QSGD) Decode(dst []float32, src []byte) error { return c.decode(dst, src, kernel.FromCodes) }

// decode checks the length and all codes of src, and applies the levels of each block.
func (c QSGD) decode(dst []float32, src []byte, apply func(isa kernel.ISA, dst []float32, p []byte, width, most int, step float32)) error {
	if err := Fits(c, len(dst)); err != nil {
		return err
	}
	if want := c.MaxLen(len(dst)); len(src) != want {
		return badLen(c, len(dst), want, len(src))
	}
	if err := c.verify(len(dst), src); err != nil {
		return err
	}
	for len(dst) > 0 {
		n := min(len(dst), qsgdBlock)
		step := math.Float32frombits(binary.LittleEndian.Uint32(src))
		src = src[4:]
		apply(kernel.Best(), dst[:n], src, c.bits(), c.Levels, step)
		dst, src = dst[n:], src[(n*c.bits()+7)/8:]
	}
	return nil
}

// verify checks all codes of src, eight at a time: adding what the highest is below 2ʷ − 1 carries out of a code that is too high.
func (c QSGD) verify(n int, src []byte) error {
	w, most := c.bits(), uint64(2*c.Levels)
	var add, top uint64
	for k := range 8 {
		add |= (1<<w - 1 - most) << (k * w)
		top |= 1 << (k*w + w - 1)
	}
	rest := add &^ top
	for from := 0; from < n; from += qsgdBlock {
		src = src[4:]
		for at := from; at < min(n, from+qsgdBlock); at += 8 {
			k := min(8, n-at)
			word, used := loadCodes(src, k, w)
			if k < 8 {
				word &= 1<<(k*w) - 1
			}
			carry := (word &^ top) + rest
			if (word&add|(word|add)&carry)&top != 0 {
				return c.badLevel(word, at, w, most)
			}
			src = src[used:]
		}
	}
	return nil
}

// badLevel is the error for the first code of word that is too high.
func (c QSGD) badLevel(word uint64, at, w int, most uint64) error {
	for word&(1<<w-1) <= most {
		word >>= w
		at++
	}
	return fmt.Errorf("compress: %s: value %d has level %d", c, at, int(word&(1<<w-1))-c.Levels)
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
