package data

// Seed is the seed of every generated data set, so that all systems and machines see the same one.
const Seed = 42

const golden = 0x9e3779b97f4a7c15 // 2⁶⁴ / the golden ratio, SplitMix64's increment

// Hash is the project's counter-based random function: SplitMix64's finaliser of s + golden·(2⁴⁰t + k + 1), all mod 2⁶⁴, for seed s,
// stream t and counter k. Any machine or language can compute any value by itself, in any order.
func Hash(s, t, k uint64) uint64 { return mix(s + golden*(t<<40+k+1)) }

// HashInt returns the top 24 bits of Hash as an integer in [−2²³, 2²³).
func HashInt(s, t, k uint64) int64 { return int64(Hash(s, t, k)>>40) - 1<<23 }

// HashUnit returns HashInt / 2²³, in [−1, 1) and exact in float32.
func HashUnit(s, t, k uint64) float64 { return float64(HashInt(s, t, k)) * (1.0 / (1 << 23)) }

// mix is SplitMix64's finaliser (Steele, Lea, Flood 2014).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
