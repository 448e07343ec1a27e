package draw_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/draw"
)

// The values that the evaluation fixes (paper's logistic set: case 2).
func TestPublishedValues(t *testing.T) {
	for i, want := range []int64{4_052_786, -5_705_757, -3_714_457} {
		if got := draw.Int24(42, 0, uint64(i)); got != want {
			t.Errorf("q(42, 0, %d) = %d, want %d", i, got, want)
		}
	}
	if got := draw.Int24(42, 0, 99_999_999); got != 924_491 {
		t.Errorf("q(42, 0, 99999999) = %d, want 924491", got)
	}
	if got := draw.Unit(42, 0, 0); got != 0.48312974 {
		t.Errorf("u(42, 0, 0) = %v, want 0.48312974", got)
	}
}

func TestBelowIsUniform(t *testing.T) {
	const n, draws = 7, 70_000
	var seen [n]int
	for i := range uint64(draws) {
		seen[draw.Below(1, draw.Stream("test"), i, n)]++
	}
	for v, k := range seen {
		if k < draws/n*95/100 || k > draws/n*105/100 { // 5 % is five standard deviations
			t.Errorf("%d was drawn %d times of %d, want about %d", v, k, draws, draws/n)
		}
	}
}

func TestStreamsStayClearOfThePapers(t *testing.T) {
	for _, name := range []string{"", "shuffle", "dropout", "x"} {
		if s := draw.Stream(name); s < 64 || s >= 1<<24 {
			t.Errorf("stream %q is %d, want 64 to 2²⁴", name, s)
		}
	}
}

func Example() {
	// The 1,000th draw needs none of those before it.
	fmt.Println(draw.Unit(42, draw.Stream("example"), 1000) == draw.Unit(42, draw.Stream("example"), 1000))
	// Output: true
}

func TestNormalHasItsMoments(t *testing.T) {
	const draws = 100_000
	var sum, squares float64
	for i := range uint64(draws) {
		x := draw.Normal(3, draw.Stream("test"), i)
		sum, squares = sum+x, squares+x*x
		if y := draw.Truncated(3, draw.Stream("test"), i); y < -2 || y > 2 {
			t.Fatalf("truncated draw %d is %v", i, y)
		}
	}
	if mean, variance := sum/draws, squares/draws; mean < -0.02 || mean > 0.02 || variance < 0.97 || variance > 1.03 {
		t.Errorf("mean %v and variance %v, want 0 and 1", mean, variance)
	}
}

// normals are the bits of the normal numbers of seed 42, stream 9, from 0 on: initial weights on every machine.
var normals = []uint64{
	0xbfdb555f4ecda74c,
	0xbfd28ce3a61bdc48,
	0x3fe5c609e1fd7c80,
	0x3fac85ed5506e3b7,
	0x3fe4c37d7e28f087,
	0xbffa620e1a7d7798,
	0xbfe16445925eae0d,
	0x3fc9a4fbb3f01333,
}

// TestSameBitsNormal compares this machine with every other one. CI runs it on arm64 too, whose compiler fuses and whose package math is
// another.
func TestSameBitsNormal(t *testing.T) {
	var found strings.Builder
	for i, want := range normals {
		x := draw.Normal(42, 9, uint64(i))
		fmt.Fprintf(&found, "\t%#x,\n", math.Float64bits(x))
		if math.Float64bits(x) != want {
			t.Errorf("normal number %d is %v (%#x), want %v (%#x)", i, x, math.Float64bits(x), math.Float64frombits(want), want)
		}
	}
	if t.Failed() {
		t.Logf("this machine has\n%s", found.String())
	}
}
