package app

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/shell"
)

//go:embed job.yaml
var jobTemplate string

type initVerb struct {
	Model string `arg:"" optional:"" default:"softmax" help:"A model, such as mlp:100 (help models)."`
	To    string `name:"to" short:"t" default:"job.yaml" placeholder:"FILE" help:"Where to write; - is standard output (default job.yaml)."`
	Data  string `short:"d" placeholder:"PATH" help:"The data source to write into it."`
	Force bool   `help:"Overwrite a file that is there."`
}

func (v *initVerb) Run(ctx context.Context, s *session) error {
	if err := s.checkModel(v.Model); err != nil {
		return misused(err)
	}
	if err := s.checkArguments(v.Model); err != nil {
		return misusedf("model %q: %w", v.Model, err)
	}
	job := trivium.Job{Version: trivium.JobVersion, Model: v.Model}
	fillDefaults(&job, given{})
	batch := fmt.Sprint(job.Batch)
	if job.Batch == trivium.FullBatch {
		batch = "full"
	}
	text := strings.NewReplacer(
		"MODEL", job.Model, "SOURCE", fmt.Sprintf("%q", v.Data), "BATCH", batch, "EPOCHS", fmt.Sprint(job.Epochs),
		"OPTIMIZERS", s.optimizerNames(), "OPTIMIZER", job.Optimizer.Name, "RATE", fmt.Sprint(job.Optimizer.Rate), "SEED", fmt.Sprint(job.Seed),
		"PROGRAM", s.name,
	).Replace(jobTemplate)
	if _, err := os.Lstat(v.To); err == nil && !v.Force {
		return misusedf("init: %s is there already; --force overwrites it, --to names another file", v.To)
	}
	err := writeTo(s.out, v.To, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if err != nil || v.To == "-" {
		return err
	}
	_, err = fmt.Fprintf(s.out, "wrote %s; train with: %s\n", v.To, shell.Words(s.command, "train", "-f", v.To))
	return err
}
