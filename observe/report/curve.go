package report

import (
	"math"

	"github.com/trivium-ml/trivium/observe/svg"
)

// maxBuckets bounds a curve: more points than a chart is wide say nothing more.
const maxBuckets = 512

// A curve is a series of any length in bounded memory: buckets of equally many points, each with mean, least and largest value. When
// the buckets are full, two become one, so that it never has to know how long the series is.
type curve struct {
	buckets []bucket
	each    int // points a bucket
}

type bucket struct {
	n              int // values that can be shown
	seen           int // all points
	x, sum, lo, hi float64
}

// add counts a point. A value that no chart can show makes its bucket a gap, if no other value falls into it.
func (c *curve) add(x, y float64) {
	if c.each == 0 {
		c.each = 1
	}
	if n := len(c.buckets); n > 0 && c.buckets[n-1].seen < c.each {
		c.buckets[n-1].add(x, y)
		return
	}
	if len(c.buckets) == maxBuckets {
		c.halve()
	}
	c.buckets = append(c.buckets, bucket{})
	c.buckets[len(c.buckets)-1].add(x, y)
}

func (b *bucket) add(x, y float64) {
	b.seen++
	b.x = x
	if !svg.Plottable(y) {
		return
	}
	if b.n == 0 {
		b.lo, b.hi = y, y
	}
	b.n++
	b.sum += y
	b.lo, b.hi = min(b.lo, y), max(b.hi, y)
}

func (c *curve) halve() {
	half := c.buckets[:0]
	for i := 0; i+1 < len(c.buckets); i += 2 {
		a, b := c.buckets[i], c.buckets[i+1]
		switch {
		case a.n == 0:
			a.lo, a.hi = b.lo, b.hi
		case b.n > 0:
			a.lo, a.hi = min(a.lo, b.lo), max(a.hi, b.hi)
		}
		a.n, a.seen, a.sum, a.x = a.n+b.n, a.seen+b.seen, a.sum+b.sum, b.x
		half = append(half, a)
	}
	c.buckets = half
	c.each *= 2
}

// points returns the curve in at most n points, x times scale, each the mean of its neighbours with the range of single values.
func (c *curve) points(n int, scale float64) []svg.Point {
	short := curve{buckets: append([]bucket(nil), c.buckets...), each: max(c.each, 1)}
	for len(short.buckets) > n && len(short.buckets) > 1 {
		if len(short.buckets)%2 == 1 { // an odd one stays by itself
			last := short.buckets[len(short.buckets)-1]
			short.halve()
			short.buckets = append(short.buckets, last)
			continue
		}
		short.halve()
	}
	out := make([]svg.Point, 0, len(short.buckets))
	for _, b := range short.buckets {
		p := svg.Point{X: b.x * scale, Y: math.NaN()}
		if b.n > 0 {
			p.Y, p.Lo, p.Hi = b.sum/float64(b.n), b.lo, b.hi
		}
		out = append(out, p)
	}
	return out
}

// values tells how many values the curve has that can be shown, and the largest.
func (c *curve) values() (n int, largest float64) {
	largest = math.Inf(-1)
	for _, b := range c.buckets {
		if b.n > 0 {
			n += b.n
			largest = max(largest, b.hi)
		}
	}
	return n, largest
}
