package metric_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/metric"
	"github.com/trivium-ml/trivium/wire"
)

// TestAUCOfScoresThatAreNone: rows whose score is not a number leave no area, wherever they were added and however they came; of -0 and 0 neither is
// ahead.
func TestAUCOfScoresThatAreNone(t *testing.T) {
	nan := float32(math.NaN())
	area := func(scores ...float32) float64 { // of a positive and a negative row at a time, which travel and are merged
		all := must(metric.New("auc", binary))
		for i := 0; i < len(scores); i += 2 {
			m, arrived := must(metric.New("auc", binary)), must(metric.New("auc", binary))
			if err := m.Add(binary, classesOf(2, nil, 1, 0), scores[i:i+2]); err != nil {
				t.Fatal(err)
			}
			p, err := m.AppendBinary(nil)
			if err := errors.Join(err, arrived.UnmarshalBinary(p), all.Merge(arrived)); err != nil {
				t.Fatal(err)
			}
		}
		return all.Value()
	}
	for _, scores := range [][]float32{{nan, 1}, {1, 0, 1, nan}, {nan, nan, 1, 0}, {1, 0, nan, nan, nan, 1}} {
		if v := area(scores...); !math.IsNaN(v) {
			t.Errorf("of scores %v it is %v, want NaN", scores, v)
		}
	}
	if v := area(1, 0, 2, -1); v != 1 {
		t.Errorf("of scores that are numbers it is %v, want 1", v)
	}
	if v := area(0, float32(math.Copysign(0, -1))); v != 0.5 {
		t.Errorf("of 0 and -0 it is %v, want 0.5", v)
	}
	small := math.Nextafter32(0, 1)
	if v := area(small, 0); v != 1 {
		t.Errorf("of %v and 0 it is %v, want 1", small, v)
	}
}

// TestCountsOfOthers: sums that are of other classes, or no sums of weights, are refused, and what was counted stays.
func TestCountsOfOthers(t *testing.T) {
	for _, name := range []string{"confusion", "f1"} {
		m, fewer := must(metric.New(name, three)), must(metric.New(name, binary))
		if err := m.Add(three, classesOf(3, nil, 1), []float32{0, 1, 0}); err != nil {
			t.Fatal(err)
		}
		want := m.Value()
		p, err := fewer.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		errs := map[string]error{"a merge of 2 classes": m.Merge(fewer), "counts of 2 classes": m.UnmarshalBinary(p)}
		other := must(metric.New("recall", three)) // which has as many sums as f1
		if p, err = other.AppendBinary(nil); err != nil {
			t.Fatal(err)
		}
		errs["sums of another metric"] = m.UnmarshalBinary(p)
		if p, err = m.AppendBinary(nil); err != nil {
			t.Fatal(err)
		}
		p[0]++
		errs["another version"] = m.UnmarshalBinary(p)
		for _, wrong := range []float64{-1, math.Inf(1), math.NaN()} {
			p, err := m.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			errs[fmt.Sprint(wrong)] = m.UnmarshalBinary(wire.AppendFloat64(p[:len(p)-8], wrong))
		}
		for what, err := range errs {
			if err == nil {
				t.Errorf("%s takes %s", name, what)
			}
		}
		if got := m.Value(); got != want || got == 0 {
			t.Errorf("%s was %v, and is %v", name, want, got)
		}
	}
}

// TestR2OfParts: a single row counts where it is merged, parts without rows and what was forgotten do not; rows and sums of others are refused.
func TestR2OfParts(t *testing.T) {
	one := trivium.Outputs{Task: trivium.Regression, Width: 1}
	of := func(m trivium.Metric, score float32, labels ...float32) trivium.Metric {
		b := trivium.Batch{Rows: len(labels), Labels: trivium.Labels{Kind: trivium.Real, Width: 1, Real: labels}}
		scores := make([]float32, len(labels))
		for i := range scores {
			scores[i] = score
		}
		if err := m.Add(one, b, scores); err != nil {
			t.Fatal(err)
		}
		return m
	}
	empty := func() trivium.Metric { return must(metric.New("r2", one)) }
	m := of(empty(), 9, 100, 200, 300)
	m.Reset()
	for _, part := range []trivium.Metric{empty(), of(empty(), 2, 1), empty(), of(empty(), 3, 3), of(empty(), 6, 5)} {
		if err := m.Merge(part); err != nil {
			t.Fatal(err)
		}
	}
	// Labels 1, 3 and 5 with errors 1, 0 and 1: 1 - 2/8.
	if v := m.Value(); !(math.Abs(v-0.75) <= 1e-15) { // NaN too
		t.Errorf("of three parts with a row it is %v, want 0.75", v)
	}
	if err := m.Merge(must(metric.New("r2", real2))); err == nil {
		t.Error("it takes in that of two labels a row")
	}
	if err := m.Add(one, classesOf(2, nil, 1), []float32{1}); err == nil {
		t.Error("it takes classes for real labels")
	}
	if v := m.Value(); !(math.Abs(v-0.75) <= 1e-15) { // NaN too
		t.Errorf("after what was refused it is %v, want 0.75", v)
	}
}
