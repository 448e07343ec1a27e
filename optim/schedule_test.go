package optim_test

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/elementary"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

func TestSchedules(t *testing.T) {
	for _, c := range []struct {
		schedule string
		step     int64
		want     float64
	}{
		{"", 100, 1},
		{"constant", 100, 1},
		{"step:10,0.5", 10, 1},
		{"step:10,0.5", 11, 0.5},
		{"step:10,0.5", 21, 0.25},
		{"exponential:0.9", 1, 1},
		{"exponential:0.9", 3, 0.81},
		{"exponential:4,0.25", 3, 0.5},
		{"cosine:10", 1, 1},
		{"cosine:10", 6, 0.5},
		{"cosine:10", 11, 0},
		{"cosine:10", 1000, 0},
		{"cosine:10,0.2", 6, 0.6},
		{"cosine:10,0.2", 50, 0.2},
		{"linear:10", 1, 1},
		{"linear:10", 6, 0.5},
		{"linear:10,0.1", 12, 0.1},
		{"inverse:0.5", 1, 1},
		{"inverse:0.5", 3, 0.5},
		{"warmup:4", 1, 0.25},
		{"warmup:4", 4, 1},
		{"warmup:4", 9, 1},
		{"warmup:4+step:2,0.5", 2, 0.5},
		{"warmup:4+step:2,0.5", 4, 1},
		{"warmup:4+step:2,0.5", 6, 1},
		{"warmup:4+step:2,0.5", 7, 0.5},
		{"cosine:1e+1", 6, 0.5},
		{"cosine:+10,+0.2", 6, 0.6},
		{"warmup:4e+0+step:2e+0,0.5", 7, 0.5},
	} {
		o := rule(t, trivium.OptimizerSpec{Name: "sgd", Rate: 2, Schedule: c.schedule}, kernel.Best())
		if got := o.(*optim.Rule).Rate(c.step); !(math.Abs(got-2*c.want) <= 1e-15) {
			t.Errorf("%q: the rate of update %d is %v, want %v", c.schedule, c.step, got, 2*c.want)
		}
	}
	for s, want := range map[string]string{
		"step:1.5,0.1":    "step wants a whole number of updates and a factor from 0 to 1",
		"cosine:10,2":     "cosine wants a whole number of updates, and perhaps the factor, from 0 to 1, to end at",
		"exponential:0,1": "after a whole number of updates",
		"warmup:2.5":      "warmup wants a whole number of updates",
	} {
		if _, err := optim.New(trivium.OptimizerSpec{Name: "sgd", Schedule: s}, kernel.Best()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("schedule %q: error %v, want %q", s, err, want)
		}
	}
	for _, s := range []string{"cosine", "cosine:", "cosine:0", "cosine:1.5", "cosine:10,2", "step:10", "step:x,0.1", "warmup", "warmup:0", "warmup:5+", "warmup:5+nix:1", "warmup:5+7", "cosine:1e+", "cosine:5+step:1,1", "inverse:-1", "exponential", "constant:1", "linear:NaN", "nix"} {
		if _, err := optim.New(trivium.OptimizerSpec{Name: "sgd", Schedule: s}, kernel.Best()); err == nil || !strings.Contains(err.Error(), "schedule") {
			t.Errorf("schedule %q: error %v", s, err)
		}
	}
}

// FuzzSchedule parses any text: an error, or rates that are numbers of 0 or more and never above the first or the warmed-up one.
func FuzzSchedule(f *testing.F) {
	for _, s := range []string{"", "step:100,0.1", "exponential:0.9", "cosine:10,0.2", "linear:5", "inverse:1e300", "warmup:5+warmup:3+step:1,0"} {
		f.Add(s, int64(7))
	}
	f.Fuzz(func(t *testing.T, s string, step int64) {
		o, err := optim.New(trivium.OptimizerSpec{Name: "sgd", Rate: 2, Schedule: s}, kernel.Go)
		if err != nil || step < 1 {
			return
		}
		if rate := o.(*optim.Rule).Rate(step); !(rate >= 0 && rate <= 2.0000001) {
			t.Fatalf("%q: the rate of update %d is %v", s, step, rate)
		}
	})
}

// TestSameBitsSchedule: schedules do not depend on whether the processor rounds a product before it is added (arm64 does not, unless told
// to), nor on its package math: they are what arithmetic of 53 bits in software makes them, of functions that are the same everywhere. CI runs it on
// both.
func TestSameBitsSchedule(t *testing.T) {
	number := func(x float64) *big.Float { return new(big.Float).SetPrec(53).SetFloat64(x) }
	op := func(f func(z, x, y *big.Float) *big.Float, x, y *big.Float) *big.Float {
		return f(new(big.Float).SetPrec(53), x, y)
	}
	one := number(1)
	power := func(y *big.Float, f float64, n int) *big.Float {
		for square := number(f); n > 0; n >>= 1 {
			if n&1 == 1 {
				y = op((*big.Float).Mul, y, square)
			}
			square = op((*big.Float).Mul, square, square)
		}
		return y
	}
	for _, c := range []struct {
		schedule string
		want     func(before float64) *big.Float // after so many updates
	}{
		{"inverse:0.01", func(before float64) *big.Float {
			return op((*big.Float).Quo, one, op((*big.Float).Add, one, op((*big.Float).Mul, number(0.01), number(before))))
		}},
		{"linear:5000,0.1", func(before float64) *big.Float {
			left := op((*big.Float).Sub, one, op((*big.Float).Quo, number(before), number(5000)))
			return op((*big.Float).Add, number(0.1), op((*big.Float).Mul, op((*big.Float).Sub, one, number(0.1)), left))
		}},
		{"cosine:5000,0.1", func(before float64) *big.Float {
			at, _ := op((*big.Float).Quo, number(before), number(5000)).Float64()
			gone := op((*big.Float).Quo, op((*big.Float).Sub, one, number(elementary.CosPi(at))), number(2))
			left := op((*big.Float).Sub, one, gone)
			return op((*big.Float).Add, number(0.1), op((*big.Float).Mul, op((*big.Float).Sub, one, number(0.1)), left))
		}},
		{"step:7,0.9", func(before float64) *big.Float { return power(one, 0.9, int(before)/7) }},
		{"exponential:0.999", func(before float64) *big.Float { return power(one, 0.999, int(before)) }},
		{"exponential:7,0.9", func(before float64) *big.Float {
			at, _ := op((*big.Float).Quo, number(before), number(7)).Float64()
			n, rest := math.Modf(at)
			if rest > 0.5 {
				n, rest = n+1, rest-1
			}
			exponent, _ := op((*big.Float).Mul, number(rest), number(elementary.Log(0.9))).Float64()
			return power(number(elementary.Exp(exponent)), 0.9, int(n))
		}},
	} {
		o, err := optim.New(trivium.OptimizerSpec{Name: "sgd", Rate: 1, Schedule: c.schedule}, kernel.Go)
		if err != nil {
			t.Fatal(err)
		}
		rate := optim.RateOf(o)
		for step := int64(1); step <= 5000; step++ {
			if want, _ := c.want(float64(step - 1)).Float64(); rate(step) != want {
				t.Fatalf("%s: update %d at %v, want %v", c.schedule, step, rate(step), want)
			}
		}
	}
}
