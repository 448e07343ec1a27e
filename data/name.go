package data

import (
	"bytes"
	"math"
	"strconv"
)

// plainName is a value of a column of names as every format may have it: one table is written by some programs with True and 1.0 and by others
// with true and 1, and a model that was trained on the one is to know the names of the other. Texts that are neither truth values nor numbers are
// plain as they are; so is what only looks like a number, such as the code 007, or one of so many digits that it would run together with others.
// The result may lie in buf, which has room for it in 32 bytes.
func plainName(buf, text []byte) []byte {
	if truth, ok := parseTruth(text); ok {
		return strconv.AppendBool(buf[:0], truth)
	}
	digits := bytes.TrimPrefix(text, []byte{'-'})
	if len(digits) > 1 && digits[0] == '0' && digits[1] != '.' {
		return text
	}
	v, ok := parseNumber(text)
	if !ok || !(math.Abs(v) < exactNames) {
		return text
	}
	return appendName(buf[:0], v, 64)
}

// exactNames is from where on whole numbers run together.
const exactNames = 1 << 53

// appendName writes a number of 32 or 64 bits as a file of text has it: without an exponent, but for the very small, and with no more digits than
// tell it from others of its bits.
func appendName(buf []byte, v float64, bits int) []byte {
	v += 0 // -0 is called 0
	format := byte('f')
	if v != 0 && math.Abs(v) < 1e-6 {
		format = 'e'
	}
	return strconv.AppendFloat(buf, v, format, -1, bits)
}

// parseTruth reads true or false, however large the letters are.
func parseTruth(text []byte) (truth, ok bool) {
	switch {
	case len(text) == len("true") && bytes.EqualFold(text, []byte("true")):
		return true, true
	case len(text) == len("false") && bytes.EqualFold(text, []byte("false")):
		return false, true
	}
	return false, false
}
