package data

import (
	"context"

	"github.com/trivium-ml/trivium"
)

// Splits are the data sets of a job.
type Splits struct {
	Train, Valid, Test Dataset // nil where there is none
	Transform          *Transform
	Checksum           string   // of the contents, however they are compressed
	Notes              []string // what a reader of the run should know, such as that the data is generated

	closers []func() error
}

// A Source makes the data sets of a job: a generator, or a program's own reader.
type Source func(ctx context.Context, d trivium.Data) (*Splits, error)

// Sources are the sources that a job may name.
type Sources map[string]Source

type Transform struct{}
