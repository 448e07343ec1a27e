package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
)

// Reseal puts the checksum of p where p has one, so that a fuzzer gets past it.
func Reseal(p []byte) []byte {
	const field = `"checksum": "`
	at := bytes.LastIndex(p, []byte(field))
	if at < 0 || len(p) < at+len(field)+len(zeros) {
		return p
	}
	p = bytes.Clone(p)
	at += len(field)
	copy(p[at:], zeros)
	sum := sha256.Sum256(p)
	copy(p[at:], hex.EncodeToString(sum[:]))
	return p
}
