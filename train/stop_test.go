package train_test

import (
	"math"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/train"
)

func TestStopper(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name   string
		stop   trivium.EarlyStop
		higher bool
		values []float64
		reason trivium.Reason // after the last value; "" before
		best   float64
		bad    int
	}{
		{"patience, lower", trivium.EarlyStop{Metric: "valid.loss", Patience: 2}, false, []float64{3, 2, 2.5, 2}, trivium.Stopped, 2, 2},
		{"patience, higher", trivium.EarlyStop{Metric: "valid.auc", Patience: 2}, true, []float64{0.5, 0.4, 0.6, 0.6, 0.5}, trivium.Stopped, 0.6, 2},
		{"small gains do not count", trivium.EarlyStop{Metric: "valid.loss", Patience: 2, MinDelta: 0.5}, false, []float64{3, 2.75, 2.5}, trivium.Stopped, 3, 2},
		{"but add up", trivium.EarlyStop{Metric: "valid.loss", Patience: 2, MinDelta: 0.5}, false, []float64{3, 2.75, 2.4}, "", 2.4, 0},
		{"target", trivium.EarlyStop{Metric: "valid.auc", Target: ">= 0.9"}, true, []float64{0.8, 0.89, 0.9}, trivium.TargetMet, 0.9, 0},
		{"strict target", trivium.EarlyStop{Metric: "valid.auc", Target: ">0.9"}, true, []float64{0.8, 0.9}, "", 0.9, 0},
		{"low target", trivium.EarlyStop{Metric: "valid.loss", Target: "< 1e-1"}, false, []float64{0.2, 0.09}, trivium.TargetMet, 0.09, 0},
		{"nor is infinity", trivium.EarlyStop{Metric: "valid.auc", Patience: 2}, true, []float64{0.5, math.Inf(1), 0.4}, trivium.Stopped, 0.5, 2},
		{"undefined is no progress", trivium.EarlyStop{Metric: "valid.auc", Patience: 3}, true, []float64{nan, 0.5, nan, nan, nan}, trivium.Stopped, 0.5, 3},
	} {
		s, err := train.NewStopper(c.stop)
		if err != nil {
			t.Fatal(err)
		}
		train.HigherIsBetter(s, c.higher)
		var at train.StopState
		for i, v := range c.values {
			reason, _ := s.Next(v, int64(i+1), &at)
			if want := c.reason; i < len(c.values)-1 && reason != "" || i == len(c.values)-1 && reason != want {
				t.Errorf("%s: after value %d: %q", c.name, i+1, reason)
			}
		}
		if at.Best == nil || *at.Best != c.best || at.Bad != c.bad {
			t.Errorf("%s: best %v, %d bad; want %v, %d", c.name, at.Best, at.Bad, c.best, c.bad)
		}
	}
	_, err := train.NewStopper(trivium.EarlyStop{Metric: "auc", Target: "= 0.9"})
	for _, want := range []string{`want split.metric, such as valid.loss or test.accuracy; found "auc"`, `want a comparison such as ">= 0.9", found "= 0.9"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for stop, want := range map[string]string{
		"test.loss >= 0.1":     "loss is better the lower it is: want a target such as <= 0.1, found >= 0.1",
		"valid.rmse > 2":       "rmse is better the lower it is",
		"test.accuracy < 0.9":  "accuracy is better the higher it is: want a target such as >= 0.9, found < 0.9",
		"test.accuracy >= 97":  "accuracy is at best 1, and never >= 97",
		"valid.top5 > 1":       "top5 is at best 1, and never > 1",
		"valid.logloss <= -.1": "logloss is at best 0, and never <= -0.1",
		"valid.auc >= 1":       "", // a hard one
		"valid.mae <= 0":       "",
		"train.loss <= -3":     "", // of a model of a program's own
		"train.r2 >= -2":       "",
		"test.mine <= 7":       "", // a program's own
		"test.mine >= 7":       "",
	} {
		name, target, _ := strings.Cut(stop, " ")
		_, err := train.NewStopper(trivium.EarlyStop{Metric: name, Target: target})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", stop, err, want)
		}
	}
	if _, err := train.NewStopper(trivium.EarlyStop{Metric: "valid.auc"}); err == nil || !strings.Contains(err.Error(), "neither patience nor target") {
		t.Errorf("error %v", err)
	}
}
