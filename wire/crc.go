package wire

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum is the CRC-32C (Castagnoli) of parts, one after the other.
func Sum(parts ...[]byte) uint32 {
	var s uint32
	for _, p := range parts {
		s = UpdateSum(s, p)
	}
	return s
}

// UpdateSum is the Sum of what gave s, followed by p. The Sum of nothing is 0.
func UpdateSum(s uint32, p []byte) uint32 {
	if len(p) >= foldFrom && folds {
		state, n := foldAll(^s, p)
		s, p = ^state, p[n:]
	}
	return crc32.Update(s, castagnoli, p)
}
