// Package compress makes gradients small and keeps what that dropped: half precision, quantised blocks, one bit, the largest or random
// elements, low rank; each with error feedback.
//
// A [Codec] turns float32 values into bytes and adds them up again at the other end. A [Residual] holds what it dropped, and adds it to
// the next gradient: part of the training state, saved and moved with it.
//
//	c, err := compress.Parse("topk:0.01")
//	e := compress.NewResidual(len(gradient))
//	for {
//		p, err = c.Encode(p[:0], gradient, e)
//		// ... to whoever sums:
//		err = c.DecodeAdd(sum, p)
//	}
//
// Encoding is deterministic: the same values, residual and codec give the same bytes on every machine, also where elements are drawn
// at random. What is not finite passes: a NaN among the values becomes NaN in what is decoded (of its element, block or message), so
// that a run that diverges is seen; a residual never keeps one.
package compress

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A Codec makes vectors of float32 small. Its methods may be called from any goroutine.
type Codec interface {
	// String is the codec as Parse reads it.
	String() string

	// MaxLen is the number of bytes that n values take at most: the receiver's bound.
	MaxLen(n int) int

	// Encode appends src to dst. With a residual, of src's length, it encodes src + e and stores in e what was dropped of that. Without
	// one (nil), codecs that choose at random (random-k, QSGD) scale what they send so that its mean is src.
	Encode(dst []byte, src []float32, e *Residual) ([]byte, error)

	// DecodeAdd adds the values in src to dst, and Decode writes them there. Both check src first: an error leaves dst as it was.
	DecodeAdd(dst []float32, src []byte) error
	Decode(dst []float32, src []byte) error
}

// Parse reads a codec:
//
//	none                  nil
//	f16, bf16             half precision, rounded to nearest
//	int8, int8:64         8 bits and a scale for each block of 256, or so many, values
//	1bit, 1bit:l2         the sign, and the mean absolute value or the root mean square
//	topk:0.01, topk:100   the largest 1 % of the values, or 100 of them
//	randomk:0.01          as many, drawn at random
//	qsgd:7                7 levels on each side of zero, rounded at random
//	powersgd:4            a matrix of rank 4
func Parse(spec string) (Codec, error) {
	name, arg, has := strings.Cut(spec, ":")
	none := func(c Codec) (Codec, error) {
		if has {
			return nil, fmt.Errorf("compress: %q: %s takes no parameter", spec, name)
		}
		return c, nil
	}
	whole := func(what string, most int) (int, error) {
		n, err := strconv.Atoi(arg)
		if err != nil || n < 1 || n > most {
			return 0, fmt.Errorf("compress: %q: %s must be a whole number from 1 to %d, as in %s:%d", spec, what, most, name, min(most, 4))
		}
		return n, nil
	}
	switch name {
	case "", "none":
		return none(nil)
	case "f16":
		return none(F16{})
	case "bf16":
		return none(BF16{})
	case "int8":
		if !has {
			return Int8{}, nil
		}
		n, err := whole("the block", maxBlock)
		if err != nil {
			return nil, err
		}
		return Int8{Block: n}, nil
	case "1bit":
		switch {
		case !has || arg == "l1":
			return OneBit{}, nil
		case arg == "l2":
			return OneBit{L2: true}, nil
		}
		return nil, fmt.Errorf("compress: %q: the scale is l1 (the mean absolute value) or l2 (the root mean square)", spec)
	case "topk", "randomk":
		k, err := parseShare(spec, name, arg)
		if err != nil {
			return nil, err
		}
		if name == "topk" {
			return TopK{k}, nil
		}
		return RandomK{Share: k}, nil
	case "qsgd":
		n, err := whole("the number of levels", maxLevels)
		if err != nil {
			return nil, err
		}
		return QSGD{Levels: n}, nil
	case "powersgd":
		n, err := whole("the rank", maxRank)
		if err != nil {
			return nil, err
		}
		return PowerSGD{Rank: n}, nil
	}
	return nil, fmt.Errorf("compress: %q: no such codec; there are none, f16, bf16, int8, 1bit, topk:K, randomk:K, qsgd:LEVELS and powersgd:RANK", spec)
}

// ParseAuto is Parse, and reads two forms more, in which auto is true: who sends encodes only where that is predicted to save time.
//
//	auto:topk:0.01        topk:0.01, or as it is
//	auto                  auto:bf16: half of the bytes for little work, and sums of any size, which f16 makes infinite from 65520 on
func ParseAuto(spec string) (c Codec, auto bool, err error) {
	name, rest, has := strings.Cut(spec, ":")
	if name != "auto" {
		c, err = Parse(spec)
		return c, false, err
	}
	if !has {
		return BF16{}, true, nil
	}
	if c, err = Parse(rest); err == nil && c == nil {
		err = fmt.Errorf("compress: %q: want the codec that may be used, as in auto:f16", spec)
	}
	return c, true, err
}

// A Share says how many of n values are sent: below 1 a part of them, from 1 on so many.
type Share float64

func parseShare(spec, name, arg string) (Share, error) {
	k, err := strconv.ParseFloat(arg, 64)
	if err != nil {
		return 0, fmt.Errorf("compress: %q: want how many values to send: a part of them, as in %s:0.01, or a number, as in %s:100", spec, name, name)
	}
	if err := Share(k).validate(); err != nil {
		return 0, fmt.Errorf("compress: %q: %w", spec, err)
	}
	return Share(k), nil
}

func (s Share) validate() error {
	switch k := float64(s); {
	case math.IsNaN(k):
		return errors.New("the number of values to send is not a number")
	case k <= 0:
		return fmt.Errorf("%v values would be sent, that is none; want more than 0", k)
	case k >= 1 && k != math.Trunc(k), k >= 1<<31:
		return fmt.Errorf("%v values cannot be sent; want a part below 1, or a whole number below 2³¹", k)
	}
	return nil
}

// of returns how many of n values are sent: at least one, unless there are none.
func (s Share) of(n int) (int, error) {
	if err := s.validate(); err != nil {
		return 0, err
	}
	if s < 1 {
		k := int(float64(s) * float64(n))
		if float64(k+1)/float64(n) <= float64(s) { // the product is rounded: 0.29 of 100 would be 28
			k++
		}
		return min(n, max(1, k)), nil
	}
	if int(s) > n && n > 0 {
		return 0, fmt.Errorf("%d values are to be sent of a vector of %d", int(s), n)
	}
	return min(n, int(s)), nil
}

// bound is of without its errors.
func (s Share) bound(n int) int {
	k, err := s.of(n)
	if err != nil {
		return n
	}
	return k
}

func (s Share) String() string { return strconv.FormatFloat(float64(s), 'g', -1, 64) }

// Fits says why c cannot encode vectors of n values; nil: it can. It is asked at the start of a job, for each length that occurs.
func Fits(c Codec, n int) error {
	f, ok := c.(interface{ fits(n int) error })
	if !ok {
		return nil
	}
	if err := f.fits(n); err != nil {
		return fmt.Errorf("compress: %s: %w", c, err)
	}
	return nil
}

// grow makes room for n more bytes in p and returns p with them, and they alone.
func grow(p []byte, n int) (all, added []byte) {
	at := len(p)
	all = slices.Grow(p, n)[:at+n]
	return all, all[at:]
}

// badLen is the error for a message of another length than n values have.
func badLen(c Codec, n, want, found int) error {
	return fmt.Errorf("compress: %s: %d values take %d bytes, found %d", c, n, want, found)
}

// allFinite reports whether all of x is.
func allFinite(x []float32) bool { return finite.Is(kernel.Peak(kernel.Best(), x)) }

// dropAll makes of x what a residual keeps.
func dropAll(x []float32) {
	if allFinite(x) {
		return
	}
	for i, v := range x {
		x[i] = dropped(v)
	}
}

// dropped is what a residual keeps of the difference d: nothing that is not finite.
func dropped(d float32) float32 {
	if !finite.Is(d) {
		return 0
	}
	return d
}
