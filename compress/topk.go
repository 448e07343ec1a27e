package compress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// TopK sends the values of largest absolute value; of equal ones, those of lower index. NaN counts as largest.
//
// A message is their number, the distances between their indices (base 128: a byte up to 127, which is most of them at 1 %), and the
// values.
type TopK struct{ Share Share }

func (c TopK) String() string   { return "topk:" + c.Share.String() }
func (c TopK) Linear() bool     { return false }
func (c TopK) MaxLen(n int) int { return 5 + 9*c.Share.bound(n) }

func (c TopK) fits(n int) error {
	_, err := c.Share.of(n)
	return err
}

func (c TopK) Encode(dst []byte, src []float32, e *Residual) ([]byte, error) {
	if err := Fits(c, len(src)); err != nil {
		return dst, err
	}
	x, err := e.add(c, src)
	if err != nil {
		return dst, err
	}
	k := c.Share.bound(len(x))
	dst, room := grow(dst, c.MaxLen(len(x)))
	start := len(dst) - len(room)
	at := binary.PutUvarint(room, uint64(k))
	least, above := threshold(x, k)
	equal := k - above // so many of those that equal the threshold are sent
	values := room[len(room)-4*k:]
	last, sent := -1, 0
	for i, v := range x {
		b := math.Float32bits(v) & 0x7fffffff
		if b < least {
			continue
		}
		if b == least {
			if equal == 0 {
				continue
			}
			equal--
		}
		at += binary.PutUvarint(room[at:], uint64(i-last-1))
		last = i
		binary.LittleEndian.PutUint32(values[4*sent:], math.Float32bits(v))
		if sent++; e != nil {
			x[i] = 0
		}
		if sent == k {
			break
		}
	}
	at += copy(room[at:], values)
	if e != nil {
		for i, v := range x {
			x[i] = dropped(v)
		}
	}
	return dst[:start+at], nil
}

// threshold returns the bits of the k-th largest absolute value of x, and how many are larger. It looks at 11, 10 and 10 bits in turn,
// the highest first: three passes at most, whatever the values.
func threshold(x []float32, k int) (least uint32, above int) {
	if k == 0 {
		return math.MaxUint32, 0
	}
	var prefix, mask uint32
	for _, digit := range [3]struct{ shift, bits uint }{{20, 11}, {10, 10}, {0, 10}} {
		var count [2][2048]uint32 // two, since a counter that is hit again at once makes the processor wait
		low := uint32(1)<<digit.bits - 1
		for i, v := range x {
			if b := math.Float32bits(v) & 0x7fffffff; b&mask == prefix {
				count[i&1][b>>digit.shift&low]++
			}
		}
		d := low
		for ; d > 0; d-- {
			n := int(count[0][d] + count[1][d])
			if above+n >= k {
				break
			}
			above += n
		}
		prefix |= d << digit.shift
		mask |= low << digit.shift
	}
	return prefix, above
}

func (c TopK) DecodeAdd(dst []float32, src []byte) error {
	return c.decode(dst, src, func(at int, v float32) { dst[at] += v }, nil)
}

func (c TopK) Decode(dst []float32, src []byte) error {
	return c.decode(dst, src, func(at int, v float32) { dst[at] = v }, dst)
}

// decode reads the indices twice: to check, and to apply. zero is cleared between.
func (c TopK) decode(dst []float32, src []byte, apply func(at int, v float32), zero []float32) error {
	k, head := binary.Uvarint(src)
	if head <= 0 || k > uint64(len(dst)) || uint64(len(src)-head) < 5*k {
		return fmt.Errorf("compress: %s: %d bytes announce %d of %d values", c, len(src), k, len(dst))
	}
	indices, values := src[head:len(src)-4*int(k)], src[len(src)-4*int(k):]
	if err := checkIndices(indices, int(k), len(dst)); err != nil {
		return fmt.Errorf("compress: %s: %w", c, err)
	}
	clear(zero)
	at, p := -1, 0
	for i := range int(k) {
		d := uint64(indices[p])
		if d < 0x80 {
			p++
		} else {
			var n int
			d, n = binary.Uvarint(indices[p:])
			p += n
		}
		at += int(d) + 1
		apply(at, math.Float32frombits(binary.LittleEndian.Uint32(values[4*i:])))
	}
	return nil
}

func checkIndices(p []byte, k, n int) error {
	at := -1
	for i := range k {
		d, size := binary.Uvarint(p)
		if size <= 0 {
			return fmt.Errorf("index %d of %d is cut off", i, k)
		}
		if d >= uint64(n-at-1) {
			return fmt.Errorf("index %d of %d is beyond the %d values", i, k, n)
		}
		at += int(d) + 1
		p = p[size:]
	}
	if len(p) > 0 {
		return errors.New("bytes follow the last index")
	}
	return nil
}
