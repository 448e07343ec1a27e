package app

import (
	_ "embed"
	"fmt"
	"os"
	"strings"

	"github.com/trivium-ml/trivium"
)

//go:embed job.yaml
var jobTemplate string

type initVerb struct {
	Model string `arg:"" optional:"" default:"softmax" help:"A model, such as mlp:100 (help models)."`
	To    string `name:"to" short:"t" default:"job.yaml" placeholder:"FILE" help:"Where to write; - is standard output (default job.yaml)."`
	Data  string `short:"d" placeholder:"PATH" help:"The data source to write into it."`
	Force bool   `help:"Overwrite a file that is there."`
}

func (v *initVerb) Run(s *session) error {
	if err := s.checkModel(v.Model); err != nil {
		return misused(err)
	}
	job := trivium.Job{Version: trivium.JobVersion, Model: v.Model}
	fillDefaults(&job, given{})
	batch := fmt.Sprint(job.Batch)
	if job.Batch == trivium.FullBatch {
		batch = "full"
	}
	text := strings.NewReplacer(
		"MODEL", job.Model, "SOURCE", fmt.Sprintf("%q", v.Data), "BATCH", batch, "EPOCHS", fmt.Sprint(job.Epochs),
		"OPTIMIZER", job.Optimizer.Name, "RATE", fmt.Sprint(job.Optimizer.Rate), "SEED", fmt.Sprint(job.Seed),
		"PROGRAM", s.name,
	).Replace(jobTemplate)
	if v.To == "-" {
		_, err := fmt.Fprint(s.out, text)
		return err
	}
	mode := os.O_CREATE | os.O_WRONLY | os.O_EXCL
	if v.Force {
		mode = os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	}
	f, err := os.OpenFile(v.To, mode, 0o644)
	if os.IsExist(err) {
		return misusedf("init: %s is there already; --force overwrites it, --to names another file", v.To)
	}
	if err != nil {
		return unwritable(v.To, err)
	}
	if _, err := f.WriteString(text); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "wrote %s; train with: %s\n", v.To, shellWords([]string{s.command, "train", "-f", v.To}))
	return err
}
