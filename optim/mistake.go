package optim

import "fmt"

// A mistake is in one field of a trivium.OptimizerSpec.
type mistake struct {
	field string // as a job's file has it, such as "rate" or "params.beta1"
	error
}

// mistaken makes a mistake of field.
func mistaken(field, format string, args ...any) error {
	return &mistake{field, fmt.Errorf("optim: "+format, args...)}
}

// Field returns the job's field, for those who know on which line of a file it stands.
func (m *mistake) Field() string { return "optimizer." + m.field }
func (m *mistake) Unwrap() error { return m.error }
