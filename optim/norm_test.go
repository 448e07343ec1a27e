package optim_test

import (
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// TestGradientNorm: where a gradient is clipped by its norm, the norm is that of the mean, before it is scaled; else it is not known.
func TestGradientNorm(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{2}}, trivium.Spec{Name: "b", Shape: []int{1}, Buffer: true})
	for _, clip := range []float64{0, 1, 100} {
		s, err := optim.NewState(l, rule(t, trivium.OptimizerSpec{Name: "sgd", Rate: 0.1, ClipNorm: clip}, kernel.Go), nil)
		if err != nil {
			t.Fatal(err)
		}
		if norm, known := s.GradientNorm(); known {
			t.Errorf("clip_norm %v: before the first update it is %v", clip, norm)
		}
		p, g := trivium.NewParams(l), trivium.NewGradient(l)
		copy(g.Flat, []float32{6, 8, 1000})
		s.Step(1, p, g, 2)
		if norm, known := s.GradientNorm(); known != (clip > 0) || known && norm != 5 {
			t.Errorf("clip_norm %v: %v (known: %v), want 5", clip, norm, known)
		}
	}
}
