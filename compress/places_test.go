package compress_test

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/draw"
)

// Against sorting all: few values with many ties, and many, of which a sample tells where the largest begin, or tells it wrongly.
func TestTopKAgainstSort(t *testing.T) {
	normal := func(seed uint64, i int) float32 {
		return float32(draw.Below(seed, 3, uint64(i), 1<<20)) * float32(draw.Below(seed, 4, uint64(i), 1<<20)) * 0x1p-30
	}
	for _, c := range []struct {
		name   string
		most   uint64 // values
		share  uint64 // one in so many at least is sent
		values func(seed uint64, i int) float32
	}{
		{"ties", 200, 1, func(seed uint64, i int) float32 { return float32(int(draw.Below(seed, 2, uint64(i), 9))-4) * 1e-3 }},
		{"all sizes", 30_000, 100, normal},
		{"many", 30_000, 3, normal},
		{"more than are sampled", 200_000, 100, normal},
		{"few are not 0", 30_000, 50, func(seed uint64, i int) float32 {
			if draw.Below(seed, 2, uint64(i), 40) > 0 {
				return 0
			}
			return -normal(seed, i)
		}},
		{"not numbers", 30_000, 300, func(seed uint64, i int) float32 {
			switch draw.Below(seed, 2, uint64(i), 500) {
			case 0:
				return float32(math.NaN())
			case 1:
				return float32(math.Inf(-1))
			}
			return normal(seed, i)
		}},
		{"only the sample is large", 30_000, 60, func(seed uint64, i int) float32 {
			if i%9 == 0 {
				return 1e6 + normal(seed, i)
			}
			return normal(seed, i)
		}},
		{"only the sample is small", 30_000, 60, func(seed uint64, i int) float32 {
			if i%9 == 0 {
				return 1e-6 * normal(seed, i)
			}
			return normal(seed, i)
		}},
	} {
		for seed := range uint64(40) {
			n := 1 + int(draw.Below(seed, 1, 0, c.most))
			k := 1 + int(draw.Below(seed, 1, 1, (uint64(n)+c.share-1)/c.share))
			x, order := make([]float32, n), make([]int, n)
			for i := range x {
				x[i], order[i] = c.values(seed, i), i
			}
			size := func(i int) uint32 { return math.Float32bits(x[i]) &^ (1 << 31) }
			slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(size(b), size(a)) })
			sent := make([]bool, n)
			for _, i := range order[:k] {
				sent[i] = true
			}
			codec, e := compress.TopK{Share: compress.Share(k)}, compress.NewResidual(n)
			if k == 1 {
				codec.Share = compress.Share(1 / float64(n))
			}
			for _, e := range []*compress.Residual{nil, e} {
				p, err := codec.Encode(nil, x, e)
				if err != nil {
					t.Fatal(err)
				}
				y := make([]float32, n)
				if err := codec.Decode(y, p); err != nil {
					t.Fatal(err)
				}
				for i, v := range x {
					if !sent[i] {
						v = 0
					}
					if math.Float32bits(y[i]) != math.Float32bits(v) && x[i] != 0 && x[i] == x[i] {
						t.Fatalf("%s, seed %d: of the largest %d of %d, element %d, %v, became %v", c.name, seed, k, n, i, x[i], y[i])
					}
				}
			}
			for i, v := range e.Cells() {
				want := x[i]
				if sent[i] || want-want != 0 {
					want = 0
				}
				if v != want {
					t.Fatalf("%s, seed %d: of element %d, %v, is kept %v", c.name, seed, i, x[i], v)
				}
			}
		}
	}
}

// Without replacement: k of n values sent means k different ones.
func TestRandomKCovers(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 16, 17, 100, 1000} {
		x := make([]float32, n)
		for i := range x {
			x[i] = 1
		}
		for _, k := range []int{1, (n + 1) / 2, n} {
			p, err := compress.RandomK{Share: compress.Share(k)}.Encode(nil, x, compress.NewResidual(n))
			if err != nil {
				t.Fatal(err)
			}
			y := make([]float32, n)
			if err := (compress.RandomK{Share: 1}).DecodeAdd(y, p); err != nil {
				t.Fatal(err)
			}
			sent := 0
			for _, v := range y {
				if v != 0 && v != 1 {
					t.Fatalf("%d of %d: a value was sent %v times", k, n, v)
				}
				sent += int(v)
			}
			if sent != k {
				t.Fatalf("%d of %d: %d were sent", k, n, sent)
			}
		}
	}
}

// TestRandomKSamePlaces: parties that have made as many calls send the same places, so that a sum of what they send can be encoded again
// without loss.
func TestRandomKSamePlaces(t *testing.T) {
	const n, calls = 100, 50
	c := compress.RandomK{Share: 0.1}
	ranks := []*compress.Residual{compress.NewResidual(n), compress.NewResidual(n), compress.NewResidual(n)}
	owner := compress.NewResidual(n)
	var sent, given float64
	for call := range calls {
		sum := make([]float32, n)
		for r, e := range ranks {
			x := normal(n, uint64(call*len(ranks)+r))
			for i := range x {
				x[i] = float32(math.Round(float64(100 * x[i]))) // whole numbers add up without rounding
				given += float64(x[i])
			}
			p, err := c.Encode(nil, x, e)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.DecodeAdd(sum, p); err != nil {
				t.Fatal(err)
			}
		}
		p, err := c.Encode(nil, sum, owner)
		if err != nil {
			t.Fatal(err)
		}
		if norm := owner.Norm(); norm != 0 {
			t.Fatalf("call %d: encoding the sum again lost %v", call, norm)
		}
		y := make([]float32, n)
		if err := c.Decode(y, p); err != nil {
			t.Fatal(err)
		}
		for _, v := range y {
			sent += float64(v)
		}
	}
	for _, e := range ranks {
		for _, v := range e.Cells() {
			sent += float64(v)
		}
	}
	if sent != given {
		t.Errorf("%v was sent or is kept, of %v", sent, given)
	}
}
