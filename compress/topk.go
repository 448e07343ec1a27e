package compress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/trivium-ml/trivium/tensor/kernel"
)

// TopK sends the values of largest absolute value; of equal ones, those of lower index. NaN counts as largest.
//
// A message is their number, the distances between their indices (base 128: a byte up to 127, which is most of them at 1 %), and the
// values.
type TopK struct{ Share Share }

func (c TopK) String() string   { return "topk:" + c.Share.String() }
func (c TopK) MaxLen(n int) int { return 5 + 9*c.Share.bound(n) }

func (c TopK) fits(n int) error {
	_, err := c.Share.of(n)
	return err
}

func (c TopK) Encode(dst []byte, src []float32, e *Residual) ([]byte, error) {
	x, err := e.add(c, src)
	if err != nil {
		return dst, err
	}
	k := c.Share.bound(len(x))
	var own largest
	l := &own
	if e != nil {
		l = &e.largest
	}
	least := l.find(x, k)
	dst, room := grow(dst, c.MaxLen(len(x)))
	start := len(dst) - len(room)
	n := binary.PutUvarint(room, uint64(k))
	last := -1
	for _, i := range l.at {
		n += binary.PutUvarint(room[n:], uint64(int(i)-last-1))
		last = int(i)
	}
	for _, v := range l.values {
		binary.LittleEndian.PutUint32(room[n:], math.Float32bits(v))
		n += 4
	}
	if e != nil {
		for _, i := range l.at {
			x[i] = 0
		}
		if least >= infinite { // more such than are sent
			for i, v := range x {
				x[i] = dropped(v)
			}
		}
	}
	return dst[:start+n], nil
}

// infinite are the bits of the smallest absolute value that is not finite.
const infinite = 0x7f800000

func magnitude(v float32) uint32 { return math.Float32bits(v) &^ (1 << 31) }

// largest are some values of a vector and where they are, in the order of their indices. Its memory is used again.
type largest struct {
	at     []int32
	values []float32
}

// find makes l the k of x that are largest, of equal ones the first, and returns the magnitude of the k-th.
func (l *largest) find(x []float32, k int) (least uint32) {
	l.at, l.values = slices.Grow(l.at[:0], k), slices.Grow(l.values[:0], k)
	if floor := sampled(x, k); floor > 0 {
		l.reach(x, floor)
		if len(l.at) >= k {
			least, above := threshold(l.values, k)
			l.cut(least, k-above)
			return least
		}
		l.at, l.values = l.at[:0], l.values[:0]
	}
	least, above := threshold(x, k)
	equal := k - above
	for i, v := range x {
		if b := magnitude(v); b > least || b == least && equal > 0 {
			if b == least {
				equal--
			}
			l.at, l.values = append(l.at, int32(i)), append(l.values, v)
		}
	}
	return least
}

// reach makes l what is as large as floor, or larger.
func (l *largest) reach(x []float32, floor uint32) {
	const piece = 4096 // the room for what is found in one
	for from := 0; from < len(x); from += piece {
		of := x[from:min(from+piece, len(x))]
		n := len(l.at)
		l.at = slices.Grow(l.at, len(of))
		l.at = l.at[:n+kernel.AtLeast(kernel.Best(), l.at[n:n+len(of)], of, floor, int32(from))]
	}
	for _, i := range l.at {
		l.values = append(l.values, x[i])
	}
}

// cut leaves what is larger than least, and the first so many that equal it.
func (l *largest) cut(least uint32, equal int) {
	n := 0
	for i, v := range l.values {
		if b := magnitude(v); b > least || b == least && equal > 0 {
			if b == least {
				equal--
			}
			l.at[n], l.values[n] = l.at[i], v
			n++
		}
	}
	l.at, l.values = l.at[:n], l.values[:n]
}

// sampled guesses a magnitude that at least k of x have, and not many more: what is below it need not be sorted out. 0: there is no good
// guess. Of a sample, so many reach the k-th largest as it has of the k, and four standard deviations more.
func sampled(x []float32, k int) uint32 {
	const most = 4096
	n := len(x)
	stride := max(8, n/most) | 1 // of rows of an even length, all columns
	size := min(n/stride, most)
	hits := float64(k) / float64(stride)
	rank := int(hits + 4*math.Sqrt(hits) + 4)
	if k == 0 || 4*rank > size {
		return 0
	}
	var sample [most]float32
	for i := range size {
		sample[i] = x[i*stride]
	}
	floor, _ := threshold(sample[:size], rank)
	return floor
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
			if b := magnitude(v); b&mask == prefix {
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
