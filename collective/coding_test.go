package collective

import (
	"math"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/tensor"
)

// TestCodings: what is counted to be encoded and decoded one after the other is what the tasks of the plans do.
func TestCodings(t *testing.T) {
	const n = 20160 // which all these divide
	for _, v := range []struct {
		a     Algorithm
		size  int
		hosts [][]int
	}{
		{Pairwise, 2, nil},
		{Pairwise, 3, nil},
		{Pairwise, 8, nil},
		{GatherCast, 3, nil},
		{GatherCast, 5, nil},
		{Hierarchy, 4, hostsOf(4, 2)},
		{Hierarchy, 6, [][]int{{0, 3}, {1, 4}, {2, 5}}},
		{Hierarchy, 6, hostsOf(6, 3)},
		{Hierarchy, 3, [][]int{{0, 1}, {2}}},
		{Hierarchy, 7, hostsOf(7, 3)},
	} {
		encoded, decoded := make([]int, v.size), make([]int, v.size) // by rank
		for r := range v.size {
			j := &job{Op: Op{Codec: compress.F16{}}, n: n, dtype: tensor.F32}
			for _, task := range planOf(j, v.a, r, v.size, 1<<16, 1<<20, v.hosts, [2]bool{}).Tasks {
				switch task.Do {
				case DoEncode:
					encoded[r] += task.From[0].Len()
				case DoSumCoded:
					for _, s := range task.From {
						if s.Buf == Coded {
							decoded[r] += task.To.Len()
						}
					}
				case DoEncodeSum:
					encoded[r] += task.From[0].Len()
					decoded[r] += task.From[0].Len()
				case DoDecodeInto:
					decoded[r] += task.To.Len()
				}
			}
		}
		e, d := encoded[0], decoded[0] // of the first rank, which does as much as any
		if v.a == GatherCast {         // for which the others wait
			e, d = e+encoded[1], d+decoded[1]
		}
		gotE, gotD := codings(v.a, v.size, v.hosts)
		if !(math.Abs(gotE*n-float64(e)) <= 1e-6) || !(math.Abs(gotD*n-float64(d)) <= 1e-6) {
			t.Errorf("%v among %d on %v: %v values are encoded and %v decoded, want %d and %d of %d", v.a, v.size, v.hosts, gotE*n, gotD*n, e, d, n)
		}
	}
}

// TestPredictCoded: a sum that is encoded takes what is encoded and decoded, and what a shorter sum takes; within hosts it is as long as without.
func TestPredictCoded(t *testing.T) {
	const bytes = 1 << 20
	near := func(what string, got time.Duration, want float64) {
		t.Helper()
		if d := math.Abs(got.Seconds() - want); d > 1e-8 {
			t.Errorf("%s: predicted %v, want %.9f s", what, got, want)
		}
	}
	x := Coding{Encode: 2e-9, Decode: 0.5e-9, Share: 0.25, Within: 3e-9}
	c := Costs{Alpha: 10e-6, Beta: 1e-8}
	near("two ranks", c.PredictCoded(Pairwise, 2, bytes, nil, x), 20e-6+bytes/4*1e-8+bytes/4*(2e-9+1.5*0.5e-9))
	near("five to one", c.PredictCoded(GatherCast, 5, bytes, nil, x), 8*(10e-6+bytes/4*1e-8)+bytes/4*(2*2e-9+6*0.5e-9))
	hosts := hostsOf(4, 2)
	near("unmeasured", c.PredictCoded(Hierarchy, 4, bytes, hosts, x), 0)
	c.Ranks = 4
	c.Times[c.Times.of(Hierarchy, 4)] = [len(timedBytes)]float64{0: 1e-3, 7: 11e-3} // of 1 KiB and 1 MiB
	sum := 1e-3 + 10e-3*(bytes/4-1024)/(bytes-1024.0)
	near("two hosts", c.PredictCoded(Hierarchy, 4, bytes, hosts, x), sum+0.75*bytes*3e-9+bytes/4*(2e-9/2+0.5e-9*1.5/2))
	near("alone", c.PredictCoded(Pairwise, 1, bytes, nil, x), 0)
}

// TestSlowLinks: on links so slow that there is time for short sums alone, those tell what a byte costs; on fast ones they do not, and long ones do.
func TestSlowLinks(t *testing.T) {
	for _, v := range []struct {
		beta float64
		most int // bytes that were measured
		slow bool
		only Algorithm // of which more than the shortest sums were measured; Auto: of all
	}{
		{80e-9, 1 << 16, true, Auto}, // 100 Mbit/s
		{80e-9, 1 << 16, true, Doubling},
		{80e-9, 1 << 16, true, Halving},
		{800e-9, 1 << 14, true, Auto},
		{0.4e-9, 1 << 24, false, Auto},
		{0.05e-9, 1 << 14, false, Auto},
	} {
		link := Costs{Alpha: 50e-6, Beta: v.beta, Gamma: 0.1e-9}
		c := Costs{Ranks: 2, Gamma: 0.1e-9}
		for line, a := range timed {
			for col, n := range timedBytes {
				if n <= v.most && (col == 0 || v.only == Auto || v.only == a) {
					c.Times[line][col] = link.formula(a, 2, float64(n), 1)
				}
			}
		}
		c.fit(2)
		if v.slow || v.most >= fitLong {
			for _, n := range []int{1 << 18, 1 << 20, 1 << 23} {
				got, want := c.Predict(Ring, 2, n, 1).Seconds(), link.formula(Ring, 2, float64(n), 1)
				if !(math.Abs(got-want) <= 0.15*want) {
					t.Errorf("%v s for a byte, measured up to %d bytes: %d are predicted to take %v s, want %v", v.beta, v.most, n, got, want)
				}
			}
		} else if !(math.Abs(c.Beta-guess.Beta) <= 0.2*guess.Beta) {
			t.Errorf("%v s for a byte, measured up to %d bytes: it is taken for %v, want a guess", v.beta, v.most, c.Beta)
		}
	}
}
