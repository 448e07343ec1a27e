// Package quantity writes numbers for people: in three significant digits, with the unit that suits them. What is not finite is a dash.
package quantity

import (
	"math"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium/internal/finite"
)

// Short writes v in three significant digits, with k, M, G or T for thousands: 21.1k.
func Short(v float64) string {
	a := math.Abs(v)
	switch {
	case !finite.Is(v):
		return "–"
	case a == 0:
		return "0"
	case a < 1e-4 || a >= 999.5e12:
		return scientific(v, 2)
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

// Figure writes a value in four significant digits, as the command does of losses and metrics: 0.8966, 1.538e−5, 5.428e8.
func Figure(v float64) string {
	switch s := strconv.FormatFloat(v, 'g', 4, 64); {
	case !finite.Is(v):
		return "–"
	case strings.Contains(s, "e"):
		return scientific(v, 3)
	default:
		return minus(s)
	}
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

// Bytes writes n in three significant digits, or as a whole number of its unit: 64 KiB, 1.21 MiB, 1020 MiB. Units are powers of 1,024, in
// which memory is sold and limits are set, so that these are shown as they were given. n is not negative.
func Bytes[N int | int64 | uint64 | float64](n N) string {
	v := float64(n)
	if !finite.Is(v) {
		return "–"
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	for len(units) > 1 && math.Round(v) >= 1024 {
		v, units = v/1024, units[1:]
	}
	if v >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64) + " " + units[0]
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + " " + units[0]
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

// Count is a number of things, as pages and the command write it: 1 worker, 2 workers, 1,234 classes.
func Count[N int | int64 | uint64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "s") {
		what += "e"
	}
	return Grouped(float64(n), 0) + " " + what + "s"
}

// Tick writes a tick of a linear axis whose ticks are step apart and at most largest: with as many digits as the step needs, and one suffix
// for the whole axis.
func Tick(v, step, largest float64) string {
	if math.Abs(v) < step/1e6 {
		return "0"
	}
	div, suffix := 1.0, ""
	if largest >= 1e4 {
		div, suffix = thousands(largest)
	}
	after := int(max(0, -math.Floor(math.Log10(step/div)+1e-9)))
	if after > 6 && largest < 1e-3 || largest >= 1e15 {
		return scientific(v, max(1, int(math.Floor(math.Log10(math.Abs(v))+1e-9)-math.Floor(math.Log10(step)+1e-9))))
	}
	return Grouped(v/div, after) + suffix
}
