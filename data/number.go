package data

import (
	"bytes"
	"errors"
	"math"
	"strconv"
)

// parseNumber reads a decimal number through float64, correctly rounded there. ok is false if p is no number; NaN and Inf are numbers.
// A finite number beyond float32's range is returned as it is: the caller refuses it.
func parseNumber(p []byte) (v float64, ok bool) {
	i, n := 0, len(p)
	if n == 0 {
		return 0, false
	}
	neg := p[0] == '-'
	if neg || p[0] == '+' {
		i++
	}
	var mant uint64
	exp, start := 0, i
	for ; i < n && p[i]-'0' <= 9; i++ {
		mant = mant*10 + uint64(p[i]-'0')
	}
	digits := i - start
	if i < n && p[i] == '.' {
		i++
		point := i
		for ; i < n && p[i]-'0' <= 9; i++ {
			mant = mant*10 + uint64(p[i]-'0')
		}
		exp = -(i - point)
		digits += i - point
	}
	if digits == 0 || digits > 18 {
		return parseSlow(p)
	}
	if i < n && (p[i] == 'e' || p[i] == 'E') {
		i++
		eneg := false
		if i < n && (p[i] == '-' || p[i] == '+') {
			eneg = p[i] == '-'
			i++
		}
		start, e := i, 0
		for ; i < n && p[i]-'0' <= 9; i++ {
			if e < 10_000 {
				e = e*10 + int(p[i]-'0')
			}
		}
		if i == start {
			return 0, false
		}
		if eneg {
			e = -e
		}
		exp += e
	}
	if i != n {
		return parseSlow(p)
	}
	// Both mant and the power are exact in float64, so one operation rounds correctly (Clinger 1990).
	if mant >= 1<<53 || exp < -22 || exp > 22 {
		return parseSlow(p)
	}
	v = float64(mant)
	if exp < 0 {
		v /= pow10[-exp]
	} else {
		v *= pow10[exp]
	}
	if neg {
		v = -v
	}
	return v, true
}

var pow10 = [23]float64{
	1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
	1e20, 1e21, 1e22,
}

func parseSlow(p []byte) (float64, bool) {
	if bytes.ContainsAny(p, "xX_pP") { // Go's syntax for literals, which no data file means
		return 0, false
	}
	v, err := strconv.ParseFloat(string(p), 64)
	if err != nil && !(math.IsInf(v, 0) && errors.Is(err, strconv.ErrRange)) {
		return 0, false
	}
	return v, true
}

// finite32 reports whether v is a finite number of float32's range.
func finite32(v float64) bool { return math.Abs(v) <= math.MaxFloat32 }

// trim removes spaces, tabs and carriage returns around p.
func trim(p []byte) []byte {
	for len(p) > 0 && blank(p[0]) {
		p = p[1:]
	}
	for len(p) > 0 && blank(p[len(p)-1]) {
		p = p[:len(p)-1]
	}
	return p
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }
