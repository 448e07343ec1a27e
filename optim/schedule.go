package optim

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium/internal/elementary"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/internal/nearest"
)

// A schedule is what the learning rate is multiplied by at an update, the first being 1. Nil is constant.
type schedule func(step int64) float64

// parseSchedule reads a schedule: all lengths are in updates, t counts updates from 0.
//
//	constant             1
//	step:N,F             F^⌊t/N⌋: multiplied by F every N updates
//	exponential:F        F^t
//	exponential:N,F      F^(t/N)
//	cosine:N             (1 + cos(π·t/N)) / 2 until N, then 0
//	cosine:N,F           the same from 1 to F
//	linear:N             1 - t/N until N, then 0; linear:N,F from 1 to F
//	inverse:K            1 / (1 + K·t)
//	warmup:N             step/N until N, then 1
//	warmup:N+OTHER       step/N until N, then the other one, its t counting from there
func parseSchedule(s string) (schedule, error) {
	if s == "" {
		return nil, nil
	}
	first, rest, warm := cutPlus(s)
	name, args, err := parseCall(first)
	if err != nil {
		return nil, mistaken("schedule", "schedule %q: %w", s, err)
	}
	if name != "warmup" {
		if warm {
			return nil, mistaken("schedule", "schedule %q: only warmup comes before a %q", s, "+")
		}
		f, err := makeSchedule(name, args)
		if err != nil {
			return nil, mistaken("schedule", "schedule %q: %w", s, err)
		}
		return f, nil
	}
	if len(args) != 1 || !whole(args[0]) {
		return nil, mistaken("schedule", "schedule %q: warmup wants a whole number of updates, such as warmup:100+cosine:1000", s)
	}
	var after schedule
	if warm {
		if rest == "" {
			return nil, mistaken("schedule", "schedule %q: nothing follows the %q", s, "+")
		}
		if after, err = parseSchedule(rest); err != nil {
			return nil, err
		}
	}
	n := int64(args[0])
	return func(step int64) float64 {
		switch {
		case step < n:
			return float64(step) / float64(n)
		case after == nil:
			return 1
		}
		return after(max(step-n, 1))
	}, nil
}

// cutPlus cuts s at its first plus sign that is not a number's, as that of 1e+3 is.
func cutPlus(s string) (first, rest string, found bool) {
	for i := range len(s) {
		if s[i] == '+' && (i+1 == len(s) || !strings.Contains(".0123456789", s[i+1:i+2])) {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

func parseCall(s string) (name string, args []float64, err error) {
	name, list, found := strings.Cut(strings.TrimSpace(s), ":")
	if !found {
		return name, nil, nil
	}
	for a := range strings.SplitSeq(list, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(a), 64)
		if err != nil || !finite.Is(v) {
			return "", nil, fmt.Errorf("%q is no number", a)
		}
		args = append(args, v)
	}
	return name, args, nil
}

// whole reports whether v is a number of updates.
func whole(v float64) bool { return v >= 1 && v <= 1<<53 && v == math.Trunc(v) }

// factor reports whether v makes a rate smaller, or leaves it.
func factor(v float64) bool { return v >= 0 && v <= 1 }

func makeSchedule(name string, args []float64) (schedule, error) {
	arg := func(i int) float64 {
		if i < len(args) {
			return args[i]
		}
		return 0
	}
	n, f := arg(0), arg(1)
	switch name {
	case "constant":
		if len(args) == 0 {
			return nil, nil
		}
		return nil, fmt.Errorf("constant takes no arguments")
	case "step":
		if len(args) == 2 && whole(n) && factor(f) {
			return func(step int64) float64 { return elementary.Pow(f, float64(max(0, step-1)/int64(n))) }, nil
		}
		return nil, fmt.Errorf("step wants a whole number of updates and a factor from 0 to 1, such as step:100,0.1")
	case "exponential":
		if len(args) == 1 {
			n, f = 1, n
		}
		if len(args) >= 1 && len(args) <= 2 && whole(n) && factor(f) {
			return func(step int64) float64 { return elementary.Pow(f, float64(max(0, step-1))/n) }, nil
		}
		return nil, fmt.Errorf("exponential wants a factor from 0 to 1, after a whole number of updates if not for each: such as exponential:0.999 or exponential:100,0.9")
	case "cosine", "linear":
		if len(args) >= 1 && len(args) <= 2 && whole(n) && factor(f) {
			return func(step int64) float64 {
				t := min(float64(step-1)/n, 1)
				if name == "cosine" {
					t = (1 - elementary.CosPi(t)) / 2
				}
				return f + float64((1-f)*(1-t))
			}, nil
		}
		return nil, fmt.Errorf("%s wants a whole number of updates, and perhaps the factor, from 0 to 1, to end at: such as %[1]s:1000 or %[1]s:1000,0.1", name)
	case "inverse":
		if len(args) == 1 && n >= 0 {
			return func(step int64) float64 { return 1 / (1 + float64(n*float64(step-1))) }, nil
		}
		return nil, fmt.Errorf("inverse wants one number of 0 or more, such as inverse:0.01")
	}
	return nil, fmt.Errorf("no schedule is called %q; %s", name, nearest.Sentence(name, []string{"constant", "step", "exponential", "cosine", "linear", "inverse", "warmup"}))
}
