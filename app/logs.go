package app

import (
	"context"
)

// logsVerb prints what a job of a cluster prints.
type logsVerb struct {
	Job    string `arg:"" help:"The job, as status lists it."`
	Follow bool   `short:"f" help:"Go on until the job has ended."`
	onFlags
}

func (v *logsVerb) Run(ctx context.Context, s *session) error {
	client, err := v.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return clusterError(client.Log(ctx, v.Job, v.Follow, s.out))
}
