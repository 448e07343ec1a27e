// Package draw gives random numbers by name. A draw is a hash of (seed, stream, index), never the next value of a shared generator,
// so any shard, machine or language produces any of them by itself, and leaving one out changes no other.
//
// The hash is SplitMix64's finaliser (Steele, Lea and Flood 2014) over a Weyl sequence. A stream is a purpose: the streams of the
// paper's data sets and initial weights are 0 to 63; whoever draws for something else takes a number from Stream.
package draw

import (
	"math"
	"math/bits"

	"github.com/trivium-ml/trivium/internal/elementary"
)

// Bits returns 64 bits: the finaliser of seed + 0x9e3779b97f4a7c15·(2⁴⁰·stream + index + 1).
func Bits(seed, stream, index uint64) uint64 { return Mix(seed + Weyl*(stream<<40+index+1)) }

// Weyl is the step of SplitMix64's sequence: 2⁶⁴ divided by the golden ratio, made odd.
const Weyl = 0x9e3779b97f4a7c15

// Mix is SplitMix64's finaliser: every bit of z changes every bit of the result with probability near one half.
func Mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Int24 returns an integer in [−2²³, 2²³).
func Int24(seed, stream, index uint64) int64 { return int64(Bits(seed, stream, index)>>40) - 1<<23 }

// Unit returns a number in [−1, 1), a multiple of 2⁻²³, so exact in float32.
func Unit(seed, stream, index uint64) float32 {
	return float32(Int24(seed, stream, index)) / (1 << 23)
}

// Below returns an integer in [0, n), for n of at least 1, from the high bits (Lemire's multiplication; its bias is below n/2⁶⁴).
func Below(seed, stream, index, n uint64) uint64 {
	hi, _ := bits.Mul64(Bits(seed, stream, index), n)
	return hi
}

// Normal returns a number from the normal distribution of mean 0 and deviation 1 (Box and Muller 1958): the draws 2·index and
// 2·index+1 of the stream. It has the same bits on every processor.
func Normal(seed, stream, index uint64) float64 {
	radius := math.Sqrt(-2 * elementary.Log(open(Bits(seed, stream, 2*index))))
	return float64(radius * elementary.CosPi(2*open(Bits(seed, stream, 2*index+1)))) // rounded also where a caller adds it to something
}

// Truncated returns a normal number within two deviations of 0: it is drawn again until it is.
func Truncated(seed, stream, index uint64) float64 {
	for try := uint64(0); ; try++ {
		if x := Normal(seed, stream, index+try<<36); math.Abs(x) <= 2 {
			return x
		}
	}
}

// open maps bits to (0, 1).
func open(b uint64) float64 { return (float64(b>>11) + 0.5) / (1 << 53) }

// Stream names a purpose that is not one of the paper's: a hash of its name, clear of the streams below 64.
func Stream(name string) uint64 {
	h := uint64(0xcbf29ce484222325) // FNV-1a
	for _, c := range []byte(name) {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	return h>>41 | 64 // 23 bits: a stream is shifted by 40
}
