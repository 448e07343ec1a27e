package observe

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestCase5Buckets(t *testing.T) {
	for v, want := range map[uint64]int{
		0: 0, 15: 15, 16: 16, 17: 16, 18: 17, 31: 23, 32: 24, 1000: 63, 1024: 64, 1_000_000: 143,
		1 << 63: 488, math.MaxUint64: 495,
	} {
		if got := Bucket(v); got != want {
			t.Errorf("Bucket(%d) = %d, want %d", v, got, want)
		}
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	var whole, left, right Histogram
	var sum uint64 // which wraps, as theirs does
	for i := range 10_000 {
		v := rng.Uint64() >> rng.IntN(64)
		sum += v
		whole.Add(v)
		if i%2 == 0 {
			left.Add(v)
		} else {
			right.Add(v)
		}
	}
	if whole.Sum != sum {
		t.Errorf("seed %d: the sum is %d, want %d", seed, whole.Sum, sum)
	}
	before := left
	left.Merge(&right)
	if left != whole {
		t.Errorf("seed %d: the merge of two halves is not the whole", seed)
	}
	d := left.Since(&before)
	if d.Count != right.Count || d.Buckets != right.Buckets || d.Sum != right.Sum {
		t.Errorf("seed %d: the difference of the whole and one half is not the other half", seed)
	}
}

func TestBucketsCoverEverything(t *testing.T) {
	next := uint64(0)
	for b := range NumBuckets {
		lo, hi := BucketBounds(b)
		if lo != next || hi < lo || Bucket(lo) != b || Bucket(hi) != b {
			t.Fatalf("bucket %d is %d to %d, want it to begin at %d", b, lo, hi, next)
		}
		if lo >= 16 && float64(hi-lo+1) > 0.125*float64(lo) {
			t.Fatalf("bucket %d is %d to %d: wider than 12.5 %%", b, lo, hi)
		}
		next = hi + 1
	}
	if next != 0 {
		t.Errorf("the last bucket ends at %d", next-1)
	}
}

func TestQuantile(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	var h Histogram
	if lo, hi := h.Quantile(0.5); lo != 0 || hi != 0 {
		t.Errorf("an empty histogram has a median of %d to %d", lo, hi)
	}
	var all []uint64
	for range 999 {
		v := rng.Uint64N(1 << rng.IntN(40))
		all = append(all, v)
		h.Add(v)
	}
	slices.Sort(all)
	for _, q := range []float64{0, 0.01, 0.5, 0.95, 0.999, 1} {
		rank := max(int(math.Ceil(q*float64(len(all)))), 1)
		exact := all[rank-1]
		if lo, hi := h.Quantile(q); exact < lo || exact > hi || Bucket(lo) != Bucket(hi) {
			t.Errorf("seed %d: quantile %g is %d, bounds %d to %d", seed, q, exact, lo, hi)
		}
	}
}
