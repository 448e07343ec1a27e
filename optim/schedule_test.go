package optim_test

import (
	"math"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
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
		if got := o.(*optim.Rule).Rate(c.step); math.Abs(got-2*c.want) > 1e-15 {
			t.Errorf("%q: the rate of update %d is %v, want %v", c.schedule, c.step, got, 2*c.want)
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
