package trivium

import (
	"context"
	"fmt"
)

// A Strategy is one topology: a whole training loop that fits on a screen. The seam is here, not at push and pull: those fit servers
// and rings, and misrepresent a driver, which owns the loop.
//
// Next in the life of a gradient: train/local.
type Strategy interface {
	// Train runs job until its epochs, its steps, its early stop or ctx end it. On an error the Result says how far it came.
	Train(ctx context.Context, job *Job) (Result, error)
}

// A Result is what came of a job.
type Result struct {
	Params  Params
	Reason  Reason
	Steps   int64              // updates
	Epochs  int                // finished
	Samples int64              // rows consumed
	Metrics map[string]float64 // the last evaluation, by split.metric
}

// A Reason says why training ended.
type Reason string

const (
	Finished    Reason = "finished"    // its epochs or steps are done
	Stopped     Reason = "stopped"     // no progress within the patience of EarlyStop
	TargetMet   Reason = "target met"  // the target of EarlyStop
	Interrupted Reason = "interrupted" // its context ended; a checkpoint says where to resume
	Diverged    Reason = "diverged"    // the loss is not finite
	Failed      Reason = "failed"
)

// A DivergedError says where the loss stopped being finite. Where training is by gradients, a lower learning rate or clipping usually helps.
type DivergedError struct {
	Step   int64
	Loss   float64
	Tensor string // the first tensor with a cell that is not finite; empty: none, the loss alone

	// Largest is, where no cell is, the tensor whose gradient has the largest one: that is where the loss grew from. Empty: not known.
	Largest string
}

func (e *DivergedError) Error() string {
	if e.Tensor == "" && e.Largest != "" {
		return fmt.Sprintf("diverged at update %d: the loss is %v, while all tensors are finite still, with the largest gradient in tensor %q", e.Step, e.Loss, e.Largest)
	}
	if e.Tensor == "" {
		return fmt.Sprintf("diverged at update %d: the loss is %v", e.Step, e.Loss)
	}
	return fmt.Sprintf("diverged at update %d: the loss is %v, and tensor %q has values that are not finite", e.Step, e.Loss, e.Tensor)
}
