package nn

import (
	"fmt"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A pointLoss is the loss of one score a row.
type pointLoss interface {
	outputs() trivium.Outputs

	// targets writes what the scores should be, from labels whose kind the model has checked against its schema.
	targets(dst []float32, l *trivium.Labels) error

	// point writes weight × loss and weight × d loss / d score for each score. weights may be nil; deriv may be scores.
	point(loss, deriv, scores, targets, weights []float32)
}

// logLoss is log(1 + e^−z) for class 1 and log(1 + e^z) for class 0.
type logLoss struct{ isa kernel.ISA }

func (logLoss) outputs() trivium.Outputs { return trivium.Outputs{Task: trivium.Binary, Width: 1} }

func (logLoss) targets(dst []float32, l *trivium.Labels) error { return classTargets(dst, l, 0) }

func (l logLoss) point(loss, deriv, scores, targets, weights []float32) {
	kernel.SigmoidCrossEntropy(l.isa, loss, deriv, scores, targets, weights)
}

// hingeLoss is max(0, 1 − y·z), y being −1 for class 0; at the kink its derivative is 0.
type hingeLoss struct{}

func (hingeLoss) outputs() trivium.Outputs {
	return trivium.Outputs{Task: trivium.Binary, Width: 1, Margin: true}
}

func (hingeLoss) targets(dst []float32, l *trivium.Labels) error { return classTargets(dst, l, -1) }

func (hingeLoss) point(loss, deriv, scores, targets, weights []float32) {
	for i, z := range scores {
		w, y := weightOf(weights, i), targets[i]
		loss[i], deriv[i] = 0, 0
		if short := 1 - float32(y*z); short > 0 {
			loss[i], deriv[i] = w*short, -w*y
		} else if short != short {
			loss[i], deriv[i] = short, short // NaN is not a margin that was met
		}
	}
}

// squaredLoss is (z − y)².
type squaredLoss struct{}

func (squaredLoss) outputs() trivium.Outputs {
	return trivium.Outputs{Task: trivium.Regression, Width: 1}
}

func (squaredLoss) targets(dst []float32, l *trivium.Labels) error {
	if l.Kind != trivium.Real || len(l.Real) != len(dst) {
		return fmt.Errorf("nn: want %d real labels, the batch has %d of kind %v", len(dst), len(l.Real), l.Kind)
	}
	copy(dst, l.Real)
	return nil
}

func (squaredLoss) point(loss, deriv, scores, targets, weights []float32) {
	for i, z := range scores {
		w, e := weightOf(weights, i), z-targets[i]
		loss[i], deriv[i] = w*float32(e*e), w*float32(2*e)
	}
}

// classTargets writes 1 for class 1 and negative for class 0.
func classTargets(dst []float32, l *trivium.Labels, negative float32) error {
	if l.Kind != trivium.Class || len(l.Class) != len(dst) {
		return fmt.Errorf("nn: want %d labels of 2 classes, the batch has %d of kind %v", len(dst), len(l.Class), l.Kind)
	}
	for i, c := range l.Class {
		switch c {
		case 0:
			dst[i] = negative
		case 1:
			dst[i] = 1
		default:
			return fmt.Errorf("nn: row %d: want class 0 or 1, found %d", i, c)
		}
	}
	return nil
}

func weightOf(weights []float32, i int) float32 {
	if weights == nil {
		return 1
	}
	return weights[i]
}
