package collective

import (
	"fmt"
	"math"

	"github.com/trivium-ml/trivium/transport"
)

// A Bucket is a range of a gradient's cells that is reduced by one operation: whole tensors, or a part of a large one. The tag of its
// operation is its index.
type Bucket struct {
	From, To int // cells
	Tensors  []int
	Priority Priority
}

// Limits of a bucket, in bytes. The first is small, so that something travels early. The last ones are ever shorter, down to lastBucket,
// since nothing is left to hide them behind. Two ranks exchange halves.
const (
	firstBucket = transport.LongPayload
	lastBucket  = transport.LongPayload / 2
	leastBucket = transport.LongPayload
	mostBucket  = 16 << 20
)

// BucketBytes is the size of the buckets after the first, for a gradient of so many bytes: √(n·L·α/β′), with L = 2(P−1) messages an
// operation and β′ = 2(P−1)/P·β, which is √(n·P·α/β). Smaller ones pay too often for starting, larger ones start too late (and the last
// cannot hide at all).
func (c Costs) BucketBytes(bytes, ranks int) int {
	if ranks < 2 || bytes < 1 {
		return mostBucket
	}
	if c == (Costs{}) {
		c = guess
	}
	best := math.Sqrt(float64(bytes) * float64(ranks) * c.Alpha / c.Beta)
	return min(max(int(best), leastBucket), mostBucket)
}

// Cut makes the buckets of a gradient whose tensors have these lengths, in the order of the parameters, with cells of so many bytes. They
// come in reverse order, which is that of the backward pass: bucket 0 holds the last tensors. Small tensors share a bucket, which has at
// most half of the cells that are left. The last bucket holds what the next forward pass needs first, and goes before others.
func Cut(lens []int, cell, bytes int) []Bucket {
	var list []Bucket
	limit := max(1, min(firstBucket, max(bytes, 1))/cell)
	at := 0
	for _, n := range lens {
		at += n
	}
	now := Bucket{From: at, To: at}
	flush := func() {
		if len(now.Tensors) > 0 {
			list = append(list, now)
			limit = max(1, max(bytes, 1)/cell)
		}
		now = Bucket{From: at, To: at}
	}
	for i := len(lens) - 1; i >= 0; i-- {
		for left := lens[i]; ; {
			full := now.To - now.From
			short := min(limit, max((at+full)/2, lastBucket/cell, 1))
			if full > 0 && full+left > short && (full >= short/2 || left > short) {
				flush()
			}
			take := left
			if take > limit+limit/2 {
				take = limit
			}
			at -= take
			now.From = at
			if n := len(now.Tensors); n == 0 || now.Tensors[n-1] != i {
				now.Tensors = append(now.Tensors, i)
			}
			if left -= take; left == 0 {
				break
			}
			flush()
		}
	}
	flush()
	if n := len(list); n > 1 {
		list[n-1].Priority = Front
	}
	return list
}

// A Launcher starts buckets as their tensors become final, always in the order of their index: at every rank alike, so that no rank
// waits for a bucket that another has behind others. It belongs to one goroutine, or to callers that take turns.
type Launcher struct {
	buckets []Bucket
	start   func(i int)
	missing []int   // tensors of each bucket that are not final
	in      [][]int // buckets of each tensor
	final   []bool
	next    int
}

// NewLauncher calls start(i) for each bucket once all its tensors, and those of the buckets before, are final.
func NewLauncher(buckets []Bucket, start func(i int)) *Launcher {
	l := &Launcher{buckets: buckets, start: start, missing: make([]int, len(buckets))}
	for i, b := range buckets {
		for _, t := range b.Tensors {
			for len(l.in) <= t {
				l.in = append(l.in, nil)
			}
			l.in[t] = append(l.in[t], i)
		}
	}
	l.final = make([]bool, len(l.in))
	l.Reset()
	return l
}

// Len is the number of buckets.
func (l *Launcher) Len() int { return len(l.buckets) }

// Reset begins the next step.
func (l *Launcher) Reset() {
	for i, b := range l.buckets {
		l.missing[i] = len(b.Tensors)
	}
	clear(l.final)
	l.next = 0
}

// Ready says that a tensor of the gradient is final. To say it twice does nothing.
func (l *Launcher) Ready(tensor int) error {
	if tensor < 0 || tensor >= len(l.final) {
		return fmt.Errorf("collective: there is no tensor %d in %d buckets", tensor, len(l.buckets))
	}
	if l.final[tensor] {
		return nil
	}
	l.final[tensor] = true
	for _, i := range l.in[tensor] {
		l.missing[i]--
	}
	for l.next < len(l.buckets) && l.missing[l.next] == 0 {
		l.next++
		l.start(l.next - 1)
	}
	return nil
}

// Rest starts what has not been started: tensors that took no part in the step are final as they are.
func (l *Launcher) Rest() {
	for l.next < len(l.buckets) {
		l.next++
		l.start(l.next - 1)
	}
}
