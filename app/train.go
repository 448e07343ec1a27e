package app

import (
	"errors"
	"fmt"

	"github.com/trivium-ml/trivium"
)

// trainVerb trains.
type trainVerb struct {
	Model string `arg:"" optional:"" help:"A model: ${models}, some with arguments, such as mlp:128,32 (help models)."`
	File  string `short:"f" placeholder:"JOB.YAML" help:"Read the job from a file; flags override it."`
	jobFlags

	Topology        string `group:"Run" default:"local" placeholder:"NAME" help:"Where parameters live (help topologies; default local)."`
	Threads         int    `group:"Run" placeholder:"N" help:"Threads (default: one a core)."`
	Out             string `group:"Run" default:"runs" placeholder:"DIR" help:"Where run directories go (default runs)."`
	Name            string `group:"Run" placeholder:"NAME" help:"Of the run directory; else time and model."`
	Resume          string `group:"Run" placeholder:"RUN" help:"Go on from the newest checkpoint of a run."`
	CheckpointEvery int64  `group:"Run" placeholder:"N" help:"Write a checkpoint every N updates; else once an epoch."`
	Listen          string `group:"Run" placeholder:"ADDR" help:"Serve /metrics for Prometheus there, such as 127.0.0.1:7077."`
	JSON            bool   `name:"json" group:"Output" help:"Print a JSON object a line."`
	Quiet           bool   `short:"q" group:"Output" help:"Print only what went wrong."`
}

// job puts the job together: the model's defaults, under the file, under the flags. It reports every mistake at once.
func (v *trainVerb) job(s *session) (*trivium.Job, error) {
	job := new(trivium.Job)
	g := given{}
	var file *jobFile
	var errs []error
	if v.File != "" {
		var err error
		if file, err = readJobFile(v.File, job, g); err != nil {
			errs = append(errs, each(err)...)
		}
	}
	put(g, "model", &job.Model, notEmpty(v.Model), same)
	v.apply(job, g)
	if v.Model == "" && !g["model"] {
		errs = append(errs, fmt.Errorf("no model is named; try: %s train softmax", s.name))
		job.Model = "?" // said already
	} else if err := s.checkModel(job.Model); err != nil {
		errs = append(errs, file.at(fmt.Errorf("job: model: %w", err)))
	}
	fillDefaults(job, g)
	for _, mistake := range each(job.Validate()) {
		errs = append(errs, file.at(mistake))
	}
	if err := checkTopology(v.Topology); err != nil {
		errs = append(errs, err)
	}
	if v.CheckpointEvery < 0 {
		errs = append(errs, fmt.Errorf("--checkpoint-every: want 0 or more updates, found %d", v.CheckpointEvery))
	}
	if v.Threads < 0 {
		errs = append(errs, fmt.Errorf("--threads: want 0 or more, found %d", v.Threads))
	}
	if err := joinByLine(errs); err != nil {
		return nil, misused(err)
	}
	return job, nil
}

func notEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

var errNotYet = errors.New("not built")
