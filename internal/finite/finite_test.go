package finite_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/trivium-ml/trivium/internal/finite"
)

var (
	numbers = []float64{0, math.Copysign(0, -1), 1, -1, math.SmallestNonzeroFloat64, math.MaxFloat64, -math.MaxFloat64}
	none    = []float64{math.NaN(), math.Float64frombits(0xfff0_0000_0000_0001), math.Inf(1), math.Inf(-1)}
)

func TestIs(t *testing.T) {
	for _, x := range numbers {
		if !finite.Is(x) {
			t.Errorf("%v is none", x)
		}
	}
	for _, x := range none {
		if finite.Is(x) || finite.Is(float32(x)) {
			t.Errorf("%v is a number", x)
		}
	}
	if !finite.Is(float32(math.MaxFloat32)) || finite.Is(float32(numbers[5])) {
		t.Error("a float32 is one up to its own largest")
	}
}

func TestFirstNot(t *testing.T) {
	if i := finite.FirstNot(numbers); i != -1 {
		t.Errorf("of numbers: %d, want -1", i)
	}
	for _, x := range none {
		if i := finite.FirstNot([]float64{1, x, 2, x}); i != 1 {
			t.Errorf("of 1, %v, 2, %v: %d, want 1", x, x, i)
		}
	}
	if i := finite.FirstNot([]float32(nil)); i != -1 {
		t.Errorf("of nothing: %d, want -1", i)
	}
}

func TestOrNil(t *testing.T) {
	for x, want := range map[float64]string{1.5: "1.5", math.NaN(): "null", math.Inf(-1): "null"} {
		if got, err := json.Marshal(finite.OrNil(x)); err != nil || string(got) != want {
			t.Errorf("%v: %s, %v; want %s", x, got, err, want)
		}
	}
}
