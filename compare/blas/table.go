package main

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A table measures and prints row by row.
type table struct {
	isa    kernel.ISA
	peers  *peers
	match  *regexp.Regexp
	rounds int
	each   time.Duration
	ratios []float64 // of the targets, since the last mean
}

// A contender is what ours is compared with. The time of empty, a call that does nothing, is subtracted from its own, since calling C
// from Go costs something that a program in C would not pay.
type contender struct {
	name        string
	call, empty func()
}

// row alternates ours with the contenders and prints a line for each of them. A target's ratio to the better of them goes into the mean.
func (t *table) row(name string, flops float64, target bool, ours func(), contenders ...contender) {
	if !t.match.MatchString(name) {
		return
	}
	ours() // warm: grow the workspace, page in, compile
	n := t.repeats(ours)
	times := make([][]float64, len(contenders)+1)
	repeats, overhead := make([]int, len(contenders)), make([]float64, len(contenders))
	for i, c := range contenders {
		c.call()
		repeats[i] = t.repeats(c.call)
		overhead[i] = math.Inf(1)
		for range 5 {
			overhead[i] = min(overhead[i], nanos(c.empty, 200))
		}
	}
	for range t.rounds {
		times[0] = append(times[0], nanos(ours, n))
		for i, c := range contenders {
			times[i+1] = append(times[i+1], nanos(c.call, repeats[i])-overhead[i])
		}
	}
	better := math.Inf(1)
	for i, c := range contenders {
		var single []float64
		for r := range t.rounds {
			single = append(single, times[i+1][r]/times[0][r])
		}
		median := quantile(times[i+1], 0.5) / quantile(times[0], 0.5)
		best := slices.Min(times[i+1]) / slices.Min(times[0])
		better = min(better, median)
		fmt.Printf("%-34s %9.1f %-9s  %6.2f  (%.2f, %.2f)   %6.2f  %.1f\n", name, flops/slices.Min(times[0]), c.name, median,
			quantile(single, 0.25), quantile(single, 0.75), best, flops/slices.Min(times[i+1]))
	}
	if target {
		t.ratios = append(t.ratios, better)
	}
}

// mean prints the geometric mean of the targets' ratios to the better peer.
func (t *table) mean(what string) {
	sum := 0.0
	for _, r := range t.ratios {
		sum += math.Log(r)
	}
	if len(t.ratios) > 0 {
		fmt.Printf("%s: geometric mean of %d ratios of medians to the better peer: %.2f, least %.2f\n", what, len(t.ratios),
			math.Exp(sum/float64(len(t.ratios))), slices.Min(t.ratios))
	}
	t.ratios = nil
}

// agree complains where our result is not the peers'.
func (t *table) agree(name string, difference float64) {
	if t.match.MatchString(name) && difference > 1 {
		fmt.Printf("%s: RESULTS DIFFER by %.3g times the error expected\n", name, difference)
	}
}

// repeats returns how many calls take the least time of a measurement.
func (t *table) repeats(f func()) int {
	for n := 1; ; n *= 2 {
		if ns := nanos(f, n) * float64(n); ns > float64(t.each.Nanoseconds())/2 {
			return max(1, int(float64(n)*float64(t.each.Nanoseconds())/ns))
		}
	}
}

// nanos is the time of one of n calls.
func nanos(f func(), n int) float64 {
	start := time.Now()
	for range n {
		f()
	}
	return float64(time.Since(start).Nanoseconds()) / float64(n)
}

func quantile(x []float64, q float64) float64 {
	s := slices.Clone(x)
	slices.Sort(s)
	return s[int(q*float64(len(s)-1)+0.5)]
}
