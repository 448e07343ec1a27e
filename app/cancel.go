package app

import (
	"context"
	"fmt"
)

// cancelVerb cancels a job of a cluster.
type cancelVerb struct {
	Job string `arg:"" help:"The job, as status lists it."`
	onFlags
}

func (cancelVerb) Help() string {
	return "A job that waits ends at once. One that runs finishes the update at hand and saves a checkpoint."
}

func (v *cancelVerb) Run(ctx context.Context, s *session) error {
	client, err := v.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	j, err := client.Cancel(ctx, v.Job)
	if err != nil {
		return clusterError(err)
	}
	switch {
	case j.State.Ended():
		fmt.Fprintln(s.out, j.Sentence())
	default:
		fmt.Fprintf(s.out, "%s is told to end\n", j.ID)
	}
	return nil
}
