package svg

import (
	"math"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium/internal/finite"
)

// Short writes v in three significant digits, with k, M, G or T for thousands: 21.1k. What is not finite is a dash.
func Short(v float64) string {
	a := math.Abs(v)
	switch {
	case !finite.Is(v):
		return "–"
	case a == 0:
		return "0"
	case a < 1e-4 || a >= 999.5e12:
		return scientific(v, 1)
	}
	div, suffix := thousands(a * (1 + 0.0005)) // 999.95 is 1k in three digits
	return significant(v/div, 3) + suffix
}

func thousands(a float64) (float64, string) {
	switch {
	case a >= 1e12:
		return 1e12, "T"
	case a >= 1e9:
		return 1e9, "G"
	case a >= 1e6:
		return 1e6, "M"
	case a >= 1e3:
		return 1e3, "k"
	}
	return 1, ""
}

// significant writes v in that many digits, without zeros behind the point that say nothing.
func significant(v float64, digits int) string {
	if v == 0 {
		return "0"
	}
	after := max(0, digits-1-int(math.Floor(math.Log10(math.Abs(v))+1e-9)))
	s := strconv.FormatFloat(v, 'f', min(after, 12), 64)
	if strings.Contains(s, ".") {
		s = strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
	}
	return minus(s)
}

// scientific writes v with up to that many digits after the point of its mantissa.
func scientific(v float64, digits int) string {
	s := strconv.FormatFloat(v, 'e', digits, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	if strings.Contains(mantissa, ".") {
		mantissa = strings.TrimSuffix(strings.TrimRight(mantissa, "0"), ".")
	}
	n, _ := strconv.Atoi(exponent)
	return minus(mantissa) + "e" + minus(strconv.Itoa(n))
}

// minus puts the sign that is as wide as a digit for a hyphen.
func minus(s string) string {
	if rest, ok := strings.CutPrefix(s, "-"); ok {
		if strings.Trim(rest, "0.") == "" {
			return rest
		}
		return "−" + rest
	}
	return s
}

// Grouped writes v with that many digits after the point, and commas between thousands: 21,132.
func Grouped(v float64, after int) string {
	if !finite.Is(v) {
		return "–"
	}
	if math.Abs(v) >= 1e15 {
		return scientific(v, 1)
	}
	s := strconv.FormatFloat(v, 'f', min(max(after, 0), 12), 64)
	negative := strings.HasPrefix(s, "-")
	whole, fraction, hasFraction := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	var b strings.Builder
	if negative {
		b.WriteByte('-')
	}
	for i := range len(whole) {
		if i > 0 && (len(whole)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteByte(whole[i])
	}
	if hasFraction {
		b.WriteString("." + fraction)
	}
	if strings.Trim(whole+fraction, "0") == "" {
		return strings.TrimPrefix(b.String(), "-")
	}
	return minus(b.String())
}

// Seconds writes a duration given in seconds, in the unit that suits it: 850 ns, 3.2 ms, 1.5 s, 2 min 05 s, 1 h 02 min.
func Seconds(v float64) string {
	a := math.Abs(v)
	switch {
	case !finite.Is(v):
		return "–"
	case a == 0:
		return "0 s"
	case a < 999.5e-9:
		return significant(v*1e9, 3) + " ns"
	case a < 999.5e-6:
		return significant(v*1e6, 3) + " µs"
	case a < 999.5e-3:
		return significant(v*1e3, 3) + " ms"
	case a < 119.5:
		return significant(v, 3) + " s"
	case a >= 1e9:
		return scientific(v, 1) + " s"
	}
	sign := ""
	if v < 0 {
		sign = "−"
	}
	whole := int64(math.Round(a))
	if whole < 3600 {
		return sign + strconv.FormatInt(whole/60, 10) + " min " + two(whole%60) + " s"
	}
	minutes := int64(math.Round(a / 60))
	return sign + strconv.FormatInt(minutes/60, 10) + " h " + two(minutes%60) + " min"
}

func two(n int64) string {
	if n < 10 {
		return "0" + strconv.FormatInt(n, 10)
	}
	return strconv.FormatInt(n, 10)
}

// Bytes writes a number of bytes in three significant digits: 1.21 MB. Units are powers of 1,000, as links are sold.
func Bytes(v float64) string {
	a := math.Abs(v)
	switch {
	case !finite.Is(v):
		return "–"
	case a >= 999.5e12:
		return scientific(v, 1) + " B"
	case a != 0 && a < 1e-2:
		return scientific(v, 1) + " B"
	}
	div, suffix := thousands(a * (1 + 0.0005))
	if suffix == "k" {
		suffix = "kB"
	} else {
		suffix += "B"
	}
	return significant(v/div, 3) + " " + suffix
}

// Ratio writes a factor in three significant digits: 1.64 ×.
func Ratio(v float64) string {
	if !finite.Is(v) {
		return "–"
	}
	return Short(v) + " ×"
}

// Percent writes a share of 1 as a percentage: 0.153 is 15.3 %.
func Percent(v float64) string {
	if !finite.Is(v) {
		return "–"
	}
	if math.Abs(v) >= 9.995 {
		return Grouped(v*100, 0) + " %"
	}
	return significant(v*100, 3) + " %"
}
