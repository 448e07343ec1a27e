package train

import "context"

// Refresh tells r how to bring Params up to date where the model lives elsewhere: f is called before what is measured or saved is looked
// at, by the rank that looks.
func (r *Run) Refresh(f func(ctx context.Context) error) { r.refresh = f }

// UpdateRows is the number of rows, at all workers together, of the update at hand.
func (r *Run) UpdateRows() int64 { return r.updateRows() }
