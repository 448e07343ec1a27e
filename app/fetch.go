package app

import (
	"context"
	"fmt"

	"github.com/trivium-ml/trivium/cluster/fleet"
)

// fetchVerb fetches what a job of a cluster left.
type fetchVerb struct {
	Job string `arg:"" help:"The job, as status lists it."`
	Out string `default:"runs" placeholder:"DIR" help:"Where the run directory goes (default runs)."`
	onFlags
}

func (fetchVerb) Help() string {
	return "For a job whose command was interrupted: else that has fetched it. A cluster keeps what its newest 200 jobs left."
}

func (v *fetchVerb) Run(ctx context.Context, s *session) error {
	client, err := v.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	runs, err := fetchFiles(ctx, client, v.Out, v.Job)
	if err != nil {
		return err
	}
	for _, dir := range runs {
		fmt.Fprintf(s.out, "run directory %s\n", dir)
	}
	j, err := client.Job(ctx, v.Job)
	switch {
	case err != nil:
		return clusterError(err)
	case len(runs) == 0 && j.State == fleet.Done && j.Why != "":
		return leftNoRun(&j)
	case len(runs) == 0:
		fmt.Fprintf(s.out, "%s left no run\n", v.Job)
	}
	if j.State != fleet.Done {
		fmt.Fprintln(s.out, j.Sentence())
	}
	return nil
}
