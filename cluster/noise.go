package cluster

import (
	"math/bits"
	"time"
)

// spread measures the scheduling noise: the gaps between signs of life, of all watched peers together, over the last minute. The budget
// of silence is four times their 99.9th percentile.
type spread struct {
	windows [6][buckets]uint32 // ten seconds each
	sum     [buckets]uint32    // of the windows
	total   uint32
	at      int
	began   time.Duration // of windows[at]
}

// Buckets are an eighth of an octave wide, of microseconds: a bound is at most 12.5 % above what it bounds.
const (
	buckets = 8 * 24 // up to 8 s
	window  = 10 * time.Second
)

func bucketOf(gap time.Duration) int {
	us := uint64(max(gap, 8*time.Microsecond) / time.Microsecond)
	e := bits.Len64(us) // at least 4
	return min(e*8+int(us>>(e-4)&7), buckets-1)
}

// upper is the end of a bucket.
func upper(b int) time.Duration {
	e, m := b/8, b%8
	return time.Duration(uint64(8+m+1)<<(e-4)) * time.Microsecond
}

func (s *spread) add(now, gap time.Duration) {
	s.turn(now)
	b := bucketOf(gap)
	s.windows[s.at][b]++
	s.sum[b]++
	s.total++
}

// turn forgets windows that are over a minute old.
func (s *spread) turn(now time.Duration) {
	for n := 0; now-s.began >= window; n++ {
		if n == len(s.windows) { // nothing is left of what was known
			s.began = now
			return
		}
		s.began += window
		s.at = (s.at + 1) % len(s.windows)
		for b, c := range s.windows[s.at] {
			s.sum[b] -= c
			s.total -= c
		}
		s.windows[s.at] = [buckets]uint32{}
	}
}

// high is the 99.9th percentile, or what bounds it; of fewer than a thousand gaps, the largest.
func (s *spread) high() time.Duration {
	above := uint32(0)
	for b := buckets - 1; b >= 0; b-- {
		if above += s.sum[b]; above > s.total/1000 {
			return upper(b)
		}
	}
	return 0
}

// gaps are the last intervals between one peer's signs of life, for the judgement of Hayashibara et al. 2004 ("The phi accrual failure
// detector"): how unlikely it is, after what was seen, that a living peer is silent for so long.
type gaps struct {
	ring         [64]uint32 // microseconds
	n, at        int
	sum, squares uint64
}

func (g *gaps) add(gap time.Duration) {
	us := uint32(min(max(gap/time.Microsecond, 0), 60e6))
	old := uint64(g.ring[g.at])
	g.sum += uint64(us) - old
	g.squares += uint64(us)*uint64(us) - old*old
	g.ring[g.at] = us
	g.at = (g.at + 1) % len(g.ring)
	g.n = min(g.n+1, len(g.ring))
}

// moments are mean and variance, in microseconds. A peer that is not known yet is taken to be as regular as its heartbeat; none is
// taken to be more regular than a quarter of it.
func (g *gaps) moments(heartbeat time.Duration) (mean, variance uint64) {
	least := uint64(heartbeat/time.Microsecond) / 4
	if g.n == 0 {
		return 4 * least, least * least
	}
	mean = g.sum / uint64(g.n)
	if v := g.squares / uint64(g.n); v > mean*mean {
		variance = v - mean*mean
	}
	return mean, max(variance, least*least)
}

// unlikely says whether phi is at least 8 after that silence: a chance of 10⁻⁸, which the normal distribution has 5.612 deviations above
// its mean. In whole numbers, so that all machines agree.
func (g *gaps) unlikely(silence, heartbeat time.Duration) bool {
	mean, variance := g.moments(heartbeat)
	t := uint64(max(silence/time.Microsecond, 0))
	return t > mean && (t-mean)*(t-mean)*2 >= 63*variance
}
