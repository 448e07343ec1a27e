package kernel

// Dropout zeroes each x[i] with probability rate and divides the others by 1-rate. Whether element from+i is dropped depends on key
// and from+i alone, so tiles and recomputation repeat it, and the gradient is Dropout of dy with the same key.
func Dropout[T Float](isa ISA, dst, x []T, rate float64, key uint64, from int64) {
	scale := T(1 / (1 - rate))
	bound := uint64(rate * (1 << 53))
	for i := range dst {
		if mix(key+uint64(from+int64(i))*weyl)>>11 < bound {
			dst[i] = 0
		} else {
			dst[i] = x[i] * scale
		}
	}
}

// DropoutKey is the key of one node of a graph in one step: mix in the step by using it as the seed of another key.
func DropoutKey(seed, node uint64) uint64 { return mix(mix(seed+weyl) + node*weyl) }

const weyl = 0x9e3779b97f4a7c15 // 2^64 / the golden ratio, the step of a Weyl sequence

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
