package trivium

import "context"

// A Model turns parameters and a batch into a loss and its gradient. It knows no machine and keeps no state between calls but
// buffers to reuse; it is used by one goroutine at a time.
type Model interface {
	Layout() *Layout

	// Init writes the initial parameters, a pure function of seed.
	Init(seed uint64, p Params)

	// Grad writes to g the sum over b's rows of weight × gradient (never a mean), and calls ready once for each tensor of g as it
	// becomes final, so that communication can start while the backward pass runs. ready may be nil. It returns the sums of weight ×
	// loss and of weight, the latter 0 or more. A batch that does not fit the model is an error that names the input, what was wanted and
	// what was found.
	Grad(ctx context.Context, p Params, b Batch, g Gradient, ready func(tensor int)) (lossSum, weightSum float64, err error)
}

// A RowReader is a Model that may be given Dense inputs whose rows lie apart (Input.Rows): those of a shuffled epoch need not be copied next to
// one another before they are read.
type RowReader interface {
	ReadsRows() bool
}

// A Predictor is a Model that can be asked for its outputs: what evaluation, prediction and ONNX need.
type Predictor interface {
	Outputs() Outputs

	// Predict writes Outputs().Width scores for each row of b, row-major: raw scores, before any softmax or sigmoid.
	Predict(ctx context.Context, p Params, b Batch, scores []float32) error

	// Loss returns the sums of weight × loss and of weight over b's rows, for scores that Predict wrote.
	Loss(b Batch, scores []float32) (lossSum, weightSum float64, err error)
}

// Outputs says what the scores of a Predictor mean.
type Outputs struct {
	Task  Task
	Width int // scores a row: the number of classes; 1 for Binary and a single real number

	// Margin: a Binary score is no log-odds, but a margin, whose sign alone says the class, as of a support vector machine. It makes no
	// probability, and no log-loss.
	Margin bool
}

// A Task is the kind of question that a model answers.
type Task uint8

const (
	Regression Task = iota // scores are predictions
	Binary                 // one score: the log-odds of class 1, or a margin
	MultiClass             // one logit per class
)

func (t Task) String() string { return [...]string{"regression", "binary", "multi-class"}[t] }
