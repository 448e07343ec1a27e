package train

// Rounds makes so many rows, of all workers together, what lies between two updates of the shared parameters: for strategies whose
// workers take several steps by themselves before they meet. FullBatch is an epoch. What else counts updates (Job.Steps, evaluations,
// checkpoints, progress) counts these. It is called before Updates.
func (r *Run) Rounds(rows int) error {
	if c := r.env.Resume; c != nil { // the epoch may have no update of the job's batch left, and a round
		r.at.Epoch, r.at.Row = c.Progress.Epoch, c.Progress.Row
	}
	if err := r.size(rows); err != nil {
		return &JobError{err}
	}
	return nil
}

// Extent is the number of rows of an update that is not short, at all workers together, and of an epoch.
func (r *Run) Extent() (update, epoch int64) {
	if r.batch < 0 {
		return r.epochRows, r.epochRows
	}
	return min(int64(r.batch), r.epochRows), r.epochRows
}

// Identify fills IDs of the batches, for models that keep something for each row.
func (r *Run) Identify() { r.ids = true }
