package compare

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/trivium-ml/trivium/internal/median"
)

// An Outcome is what a comparison came to.
type Outcome string

// The outcomes.
const (
	Faster       Outcome = "faster"
	Slower       Outcome = "slower"
	NoDifference Outcome = "no difference"
	TooFew       Outcome = "too few repeats"
)

// A Verdict compares two sets of times or rates: of times, the smaller is the faster.
type Verdict struct {
	Name    string  `json:"name,omitempty"`
	Outcome Outcome `json:"outcome"`
	Ratio   float64 `json:"ratio"` // median of b over that of a: how many times a's speed is b's, where they are times
	Low     float64 `json:"low"`   // bootstrap 95 % interval of the ratio
	High    float64 `json:"high"`
	U       float64 `json:"u"` // Mann and Whitney's statistic, the smaller of the two
	P       float64 `json:"p"` // exact, two-sided
}

const (
	resamples = 10_000
	level     = 0.05
	fewest    = 4 // repeats a side, for a verdict: three against three cannot reach 5 %
)

// Judge compares the seconds of a with those of b, before correction: Faster means that a is. The test is Mann and Whitney's, exact, by
// enumeration of all ways to choose; the interval of the ratio of medians comes from 10,000 resamples with seed 42. A verdict needs p
// below 0.05, an interval without 1, and at least four values a side.
func Judge(a, b []float64) Verdict {
	v := Verdict{Outcome: NoDifference, Ratio: math.NaN(), Low: math.NaN(), High: math.NaN(), P: 1}
	if len(a) == 0 || len(b) == 0 {
		return v
	}
	v.U, v.P = mannWhitney(a, b)
	v.Ratio = median.Of(b) / median.Of(a)
	v.Low, v.High = bootstrap(a, b)
	v.decide(v.P)
	if len(a) < fewest || len(b) < fewest {
		v.Outcome = NoDifference
	}
	return v
}

// canProve reports whether n values against m can prove a difference, beside so many verdicts: where all of one side are below all of the other, p is
// twice one of all the ways to choose, and Holm's correction of the smallest p is by their number.
func canProve(n, m, verdicts int) bool {
	ways := 1.0
	for i := 1; i <= n; i++ {
		ways *= float64(m+i) / float64(i)
	}
	return min(n, m) >= fewest && 2/ways*float64(max(1, verdicts)) < level
}

// decide makes the outcome from p.
func (v *Verdict) decide(p float64) {
	v.Outcome = NoDifference
	if !(p < level) || v.Low <= 1 && v.High >= 1 {
		return
	}
	if v.Ratio > 1 {
		v.Outcome = Faster
	} else {
		v.Outcome = Slower
	}
}

// Holm returns what a report may print: p values corrected for so many verdicts (Holm 1979), and outcomes that hold after that.
func Holm(v []Verdict) []Verdict { return correct(v, len(v)) }

// correct is Holm's correction of verdicts that are among so many, of which the others have no smaller p.
func correct(v []Verdict, among int) []Verdict {
	out := slices.Clone(v)
	own := make([]float64, len(out))
	for i := range out {
		own[i] = out[i].P
	}
	for i, p := range holm(own, among) {
		was := out[i].Outcome
		out[i].P = p
		if was != NoDifference {
			out[i].decide(p)
		}
	}
	return out
}

// holm corrects p values that are the least of so many.
func holm(p []float64, among int) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(p[i], p[j]) })
	out, most := make([]float64, len(p)), 0.0
	for k, i := range order {
		most = max(most, min(1, p[i]*float64(among-k)))
		out[i] = most
	}
	return out
}

// simes is the p of n hypotheses together: small where one of them at least is false. These are the p of some; the others have none below 1. It
// is right too where tests share a side, as those of one row against many do (Simes 1986).
func simes(p []float64, n int) float64 {
	least := 1.0
	for k, x := range slices.Sorted(slices.Values(p)) {
		least = min(least, x*float64(n)/float64(k+1))
	}
	return least
}

// atLeast is as simes, but small where k of the n at least are false: Bonferroni's p of what is left once the k-1 smallest are set aside (Benjamini and Heller 2008).
func atLeast(k int, p []float64, n int) float64 {
	if len(p) < k {
		return 1
	}
	return min(1, slices.Sorted(slices.Values(p))[k-1]*float64(n-k+1))
}

// mannWhitney returns the smaller U and its exact two-sided p, also where values are equal: of all ways to choose len(a) of the values,
// those whose U is as far from the middle. Ranks are counted in halves, so that all sums are whole numbers.
func mannWhitney(a, b []float64) (u, p float64) {
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	rank := func(x float64) int { // twice the mean rank
		first, _ := slices.BinarySearch(all, x)
		last := first
		for last < len(all) && all[last] == x {
			last++
		}
		return first + 1 + last
	}
	sum := 0
	for _, x := range a {
		sum += rank(x)
	}
	n, m := len(a), len(b)
	least := n * (n + 1) // twice the least sum
	u2 := sum - least    // twice U of a
	small := min(u2, 2*n*m-u2)
	// ways[k][s]: of the values so far, the ways to choose k with that sum of ranks.
	total := 0
	var ranks []int
	for _, x := range all {
		ranks = append(ranks, rank(x))
		total += rank(x)
	}
	ways := make([][]float64, n+1)
	for k := range ways {
		ways[k] = make([]float64, total+1)
	}
	ways[0][0] = 1
	for i, r := range ranks {
		for k := min(i+1, n); k >= 1; k-- {
			for s := total; s >= r; s-- {
				ways[k][s] += ways[k-1][s-r]
			}
		}
	}
	var count, as float64
	for s, w := range ways[n] {
		count += w
		d := s - least
		if min(d, 2*n*m-d) <= small {
			as += w
		}
	}
	return float64(small) / 2, as / count
}

// bootstrap returns the 95 % interval of median(b)/median(a).
func bootstrap(a, b []float64) (low, high float64) {
	r := rand.New(rand.NewPCG(42, 0))
	ratios := make([]float64, resamples)
	x, y := make([]float64, len(a)), make([]float64, len(b))
	for i := range ratios {
		for k := range x {
			x[k] = a[r.IntN(len(a))]
		}
		for k := range y {
			y[k] = b[r.IntN(len(b))]
		}
		ratios[i] = median.Of(y) / median.Of(x)
	}
	slices.Sort(ratios)
	return ratios[resamples*25/1000], ratios[resamples*975/1000-1]
}
