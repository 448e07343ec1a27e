package svg

import (
	"math"
	"slices"

	"github.com/trivium-ml/trivium/internal/quantity"
)

// A scale takes values to pixels. Its range holds all that is drawn, so that nothing has to be cut off.
type scale struct {
	log      bool
	lo, hi   float64 // of the values, or of their logarithms to base 10
	from, to float64 // pixels
}

func (s scale) at(v float64) float64 {
	if s.log {
		v = math.Log10(v)
	}
	return s.from + float64((v-s.lo)/(s.hi-s.lo)*(s.to-s.from)) // the product is rounded, so that no machine fuses
}

// A tick is a place on an axis with its label.
type tick struct {
	at    float64 // a value
	label string
}

// A span is the range of the values seen.
type span struct {
	lo, hi float64
	any    bool
}

func (s *span) add(v float64) {
	if !s.any {
		s.lo, s.hi, s.any = v, v, true
		return
	}
	s.lo, s.hi = min(s.lo, v), max(s.hi, v)
}

// resolve makes the scale and the ticks of an axis whose values span s, between two pixels. About every gap pixels stands a tick. With
// snap the range ends at ticks.
func (a Axis) resolve(s span, from, to, gap float64, snap bool) (scale, []tick) {
	if a.Lo != 0 || a.Hi != 0 {
		if a.has(a.Lo) {
			s.add(a.Lo)
		}
		if a.has(a.Hi) {
			s.add(a.Hi)
		}
	}
	count := max(2, int(math.Abs(to-from)/gap))
	var sc scale
	var places []float64
	var step float64
	if a.Log {
		lo, hi := widenLog(s.lo, s.hi)
		if snap {
			lo, hi = roundLog(lo, hi)
		}
		places, step = logTicks(lo, hi, count)
		sc = scale{true, math.Log10(lo), math.Log10(hi), from, to}
	} else {
		lo, hi := widen(s.lo, s.hi)
		nice := niceStep
		if a.Binary {
			nice = binaryStep
		}
		places, step = linearTicks(lo, hi, count, snap, nice)
		if snap {
			lo, hi = min(lo, places[0]), max(hi, places[len(places)-1])
		}
		sc = scale{false, lo, hi, from, to}
	}
	if len(a.At) > 0 {
		places, step = nil, 0
		for _, v := range a.At {
			if a.has(v) && v >= s.lo && v <= s.hi {
				places = append(places, v)
			}
		}
	}
	return sc, a.label(places, step)
}

func (a Axis) label(places []float64, step float64) []tick {
	largestPlace := 0.0
	for _, v := range places {
		largestPlace = max(largestPlace, math.Abs(v))
	}
	ticks := make([]tick, len(places))
	for i, v := range places {
		switch {
		case a.Format != nil:
			ticks[i] = tick{v, a.Format(v)}
		case step > 0:
			ticks[i] = tick{v, quantity.Tick(v, step, largestPlace)}
		default:
			ticks[i] = tick{v, quantity.Short(v)}
		}
	}
	return ticks
}

// widen makes a range of a point, and gives one that is too narrow for the digits of a float64 the width of a millionth.
func widen(lo, hi float64) (float64, float64) {
	if math.Abs(lo) < smallest {
		lo = 0
	}
	if math.Abs(hi) < smallest {
		hi = 0
	}
	size := max(math.Abs(lo), math.Abs(hi))
	switch {
	case size == 0:
		return 0, 1
	case lo == hi:
		return lo - size/2, hi + size/2
	case hi-lo < size*1e-6:
		return lo - size*1e-6, hi + size*1e-6
	}
	return lo, hi
}

func widenLog(lo, hi float64) (float64, float64) {
	lo, hi = max(lo, smallest), max(hi, smallest)
	if hi/lo < 1.01 {
		return max(lo/1.5, smallest), hi * 1.5
	}
	return lo, hi
}

// roundLog widens a range to the next 1, 2 or 5 of a decade, or, within less than half a decade, to two digits.
func roundLog(lo, hi float64) (float64, float64) {
	mantissas := []float64{1, 2, 5, 10}
	if math.Log10(hi)-math.Log10(lo) < 0.5 {
		mantissas = nil
		for m := 10; m <= 100; m++ {
			mantissas = append(mantissas, float64(m)/10)
		}
	}
	power := math.Pow(10, math.Floor(math.Log10(lo)))
	for _, m := range slices.Backward(mantissas) {
		if m*power <= lo*(1+1e-9) {
			lo = m * power
			break
		}
	}
	power = math.Pow(10, math.Floor(math.Log10(hi)))
	for _, m := range mantissas {
		if m*power >= hi*(1-1e-9) {
			hi = m * power
			break
		}
	}
	return lo, hi
}

// niceStep returns the step of 1, 2 or 5 times a power of ten, of which at most count fit into width.
func niceStep(width float64, count int) float64 {
	raw := width / float64(max(count, 1))
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= raw*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// binaryStep returns the power of two of which, as a step, at most count fit into width.
func binaryStep(width float64, count int) float64 {
	return math.Exp2(math.Ceil(math.Log2(width/float64(max(count, 1))) - 1e-9))
}

// linearTicks returns the multiples of a nice step between lo and hi, or, with around, those that enclose them: two at least, since one alone
// is no scale.
func linearTicks(lo, hi float64, count int, around bool, nice func(width float64, count int) float64) ([]float64, float64) {
	step := nice(hi-lo, count)
	for {
		first, last := math.Ceil(lo/step-1e-9), math.Floor(hi/step+1e-9)
		if around {
			first, last = math.Floor(lo/step+1e-9), math.Ceil(hi/step-1e-9)
		}
		if last <= first { // none or one inside: a finer step has more
			step = nice(step/2.6, 1) // the next of 5, 2, 1, 0.5 …, or half
			continue
		}
		places := make([]float64, 0, int(last-first)+1)
		for i := first; i <= last; i++ {
			places = append(places, i*step)
		}
		return places, step
	}
}

// logTicks returns ticks of a logarithmic axis: 1-2-5 of each decade, or 1-3, or its powers of ten, or every so many of them, as count allows;
// within less than half a decade those of a linear axis, whose step it then returns. Two do not show that an axis is logarithmic: where count has
// room for three, there are three.
func logTicks(lo, hi float64, count int) ([]float64, float64) {
	decades := math.Log10(hi) - math.Log10(lo)
	if decades < 0.5 {
		places, step := linearTicks(lo, hi, count, false, niceStep)
		for n := count + 1; len(places) < min(count, 3) && n < 4*count; n++ {
			places, step = linearTicks(lo, hi, n, false, niceStep)
		}
		return places, step
	}
	mantissas := []float64{1, 2, 5}
	every := 1.0
	if decades*3 > float64(count)*1.4 {
		if mantissas = []float64{1, 3}; math.Floor(math.Log10(hi)+1e-12)-math.Ceil(math.Log10(lo)-1e-12) >= 2 {
			mantissas = mantissas[:1]
			every = max(1, math.Ceil(decades/float64(count)))
		}
	}
	first, last := math.Floor(math.Log10(lo)+1e-12), math.Ceil(math.Log10(hi)-1e-12)
	first = math.Floor(first/every) * every
	var all []float64
	for e := first; e <= last+every; e += every {
		power := math.Pow(10, min(max(e, -305), 305)) // finite, and above 0
		for _, m := range mantissas {
			all = append(all, m*power)
		}
	}
	all = slices.DeleteFunc(all, func(v float64) bool { return v < lo*(1-1e-9) || v > hi*(1+1e-9) })
	if len(all) == 0 { // between two powers of ten that are far apart
		return []float64{lo, hi}, 0
	}
	return all, 0
}
