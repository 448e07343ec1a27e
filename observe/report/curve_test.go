package report

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// A curve of any length stays within its bounds, keeps every extreme and the mean, and its points come in order.
func TestCurve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5000).Draw(t, "n")
		gaps := rapid.IntRange(2, 50).Draw(t, "one in so many is not finite")
		seed := rapid.Uint64().Draw(t, "seed")
		want := rapid.IntRange(1, 200).Draw(t, "points")
		var c curve
		lo, hi, sum, count := math.Inf(1), math.Inf(-1), 0.0, 0
		for i := range n {
			seed = seed*6364136223846793005 + 1442695040888963407
			y := float64(seed>>40) / (1 << 24)
			if i%gaps == 1 {
				c.add(float64(i), math.NaN())
				continue
			}
			c.add(float64(i), y)
			lo, hi, sum, count = min(lo, y), max(hi, y), sum+y, count+1
		}
		if len(c.buckets) > maxBuckets {
			t.Fatalf("%d buckets", len(c.buckets))
		}
		seenLo, seenHi, seenSum, seen := math.Inf(1), math.Inf(-1), 0.0, 0
		for _, b := range c.buckets {
			seenSum, seen = seenSum+b.sum, seen+b.n
		}
		points := c.points(want, 2)
		if len(points) > want || len(points) == 0 {
			t.Fatalf("%d points; want at most %d", len(points), want)
		}
		for i, p := range points {
			if i > 0 && p.X <= points[i-1].X {
				t.Fatalf("out of order: %v", points)
			}
			if !math.IsNaN(p.Y) {
				seenLo, seenHi = min(seenLo, p.Lo), max(seenHi, p.Hi)
				if p.Y < p.Lo-1e-9 || p.Y > p.Hi+1e-9 {
					t.Fatalf("%v is outside of its range", p)
				}
			}
		}
		if seenLo != lo || seenHi != hi || seen != count || !(math.Abs(seenSum-sum) <= 1e-6) {
			t.Fatalf("%g to %g of %d values; want %g to %g of %d", seenLo, seenHi, seen, lo, hi, count)
		}
		if points[len(points)-1].X != 2*float64(n-1) {
			t.Fatalf("the last point is at %g", points[len(points)-1].X)
		}
	})
}

func TestWithoutZeros(t *testing.T) {
	table := Table{Columns: []Column{{Name: "a"}, {Name: "b", Group: "g"}, {Name: "c"}}, Rows: []Row{
		{Cells: []Cell{Name("x"), Number(0, nil), Number(1, nil)}},
		{Cells: []Cell{Name("y"), Number(0, nil), Number(0, nil)}},
	}}.withoutZeros()
	if len(table.Columns) != 2 || len(table.Rows[0].Cells) != 2 || len(table.Notes) != 1 || table.Notes[0] != "Zero throughout, and left out: g b." {
		t.Errorf("%+v", table)
	}
}

func TestLetters(t *testing.T) {
	for i, want := range map[int]string{0: "a", 25: "z", 26: "aa", 51: "az", 52: "ba", 701: "zz", 702: "aaa"} {
		if got := letters(i); got != want {
			t.Errorf("%d: %s; want %s", i, got, want)
		}
	}
}
