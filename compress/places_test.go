package compress_test

import (
	"math"
	"testing"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/draw"
)

func TestTopKAgainstSort(t *testing.T) {
	for seed := range uint64(300) {
		n := 1 + int(draw.Below(seed, 1, 0, 200))
		k := 1 + int(draw.Below(seed, 1, 1, uint64(n)))
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(int(draw.Below(seed, 2, uint64(i), 9))-4) * 1e-3 // many ties
		}
		left := map[int]bool{}
		for i := range x {
			larger := 0
			for j := range x {
				if a, b := math.Abs(float64(x[j])), math.Abs(float64(x[i])); a > b || a == b && j < i {
					larger++
				}
			}
			left[i] = larger < k
		}
		c := compress.TopK{Share: compress.Share(k)}
		p, err := c.Encode(nil, x, nil)
		if err != nil {
			t.Fatal(err)
		}
		y := make([]float32, n)
		if err := c.Decode(y, p); err != nil {
			t.Fatal(err)
		}
		for i := range x {
			if want := x[i]; left[i] != (y[i] != 0) && want != 0 {
				t.Fatalf("seed %d: top-%d of %v is %v", seed, k, x, y)
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
