package observe

import (
	"math"
	"math/bits"
)

// NumBuckets is the number of a Histogram's buckets: 16 of width 1, and then eight an octave up to 2⁶⁴.
const NumBuckets = 496

// A Histogram counts unsigned integers in log-linear buckets at most 12.5 % wide. It needs no configuration, and merging is exact.
// The zero value is empty and ready.
type Histogram struct {
	Buckets  [NumBuckets]uint64
	Count    uint64
	Sum      uint64 // wraps around beyond 2⁶⁴
	Min, Max uint64 // meaningful if Count > 0
}

// Bucket returns the bucket of v: v itself below 16, and 8e + (v >> e) with e = bitlen(v) − 4 above.
func Bucket(v uint64) int {
	if v < 16 {
		return int(v)
	}
	e := bits.Len64(v) - 4
	return 8*e + int(v>>e)
}

// BucketBounds returns the smallest and the largest value of bucket b.
func BucketBounds(b int) (lo, hi uint64) {
	if b < 16 {
		return uint64(b), uint64(b)
	}
	e := b/8 - 1
	lo = uint64(b-8*e) << e
	return lo, lo + 1<<e - 1
}

// Add counts v.
func (h *Histogram) Add(v uint64) {
	if h.Count == 0 || v < h.Min {
		h.Min = v
	}
	h.Max = max(h.Max, v)
	h.Buckets[Bucket(v)]++
	h.Count++
	h.Sum += v
}

// Merge adds what o counted: exactly as if h had seen it all.
func (h *Histogram) Merge(o *Histogram) {
	if o.Count == 0 {
		return
	}
	if h.Count == 0 || o.Min < h.Min {
		h.Min = o.Min
	}
	h.Max = max(h.Max, o.Max)
	for b, n := range o.Buckets {
		h.Buckets[b] += n
	}
	h.Count += o.Count
	h.Sum += o.Sum
}

// Since returns what h counted after the earlier snapshot o of the same histogram; its Min and Max are bounds of buckets.
func (h *Histogram) Since(o *Histogram) Histogram {
	var d Histogram
	for b, n := range h.Buckets {
		k := n - o.Buckets[b]
		if k == 0 {
			continue
		}
		lo, hi := BucketBounds(b)
		if d.Count == 0 {
			d.Min = max(lo, h.Min)
		}
		d.Max = min(hi, h.Max)
		d.Buckets[b] = k
		d.Count += k
	}
	d.Sum = h.Sum - o.Sum
	return d
}

// Quantile returns the bounds of the bucket that holds the q-quantile, 0 ≤ q ≤ 1, narrowed by the smallest and largest value seen.
// An empty histogram has 0, 0.
func (h *Histogram) Quantile(q float64) (lo, hi uint64) {
	if h.Count == 0 {
		return 0, 0
	}
	want := uint64(math.Ceil(min(max(q, 0), 1) * float64(h.Count)))
	want = min(max(want, 1), h.Count)
	var seen uint64
	for b, n := range h.Buckets {
		if seen += n; seen >= want {
			lo, hi = BucketBounds(b)
			return max(lo, h.Min), min(hi, h.Max)
		}
	}
	return h.Max, h.Max
}

// Mean returns the mean of the values, 0 if there are none.
func (h *Histogram) Mean() float64 {
	if h.Count == 0 {
		return 0
	}
	return float64(h.Sum) / float64(h.Count)
}
