// Package nn holds models: a batch becomes a loss and its gradient.
//
// A [Builder] makes a trivium.Model for the data at hand, and [Standard] lists those that ship: logistic, linear and svm (one weight a
// column, written by hand as one pass over the rows), fm (a factorisation machine on sparse rows, by hand), and softmax, mlp, cnn and
// lstm, which are graphs. [FromGraph] makes a model of any graph with a loss per row. All of them answer predictions too, and
// draw themselves as an inference graph for export ([Graphed]).
//
//	model, err := nn.Standard().Build("mlp:128,32", schema, cpu)
//	model.Init(seed, params)
//	lossSum, weightSum, err := model.Grad(ctx, params, batch, gradient, nil)
//
// Next in the life of a gradient: package optim.
package nn

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/internal/nearest"
	"github.com/trivium-ml/trivium/tensor"
)

// A Builder makes a model for data of schema s, to run on cpu, which is not nil. args is what follows the colon in the model's name, such as "128,32" of
// "mlp:128,32". The error says what the model wants and what it found; it is an ArgumentError where no data would help.
type Builder func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error)

// Models are builders by name.
type Models map[string]Builder

// Standard returns the models that ship with Trivium. The map is the caller's own: add to it, or take away.
func Standard() Models {
	return Models{
		"logistic": Logistic,
		"linear":   Linear,
		"svm":      SVM,
		"softmax":  Softmax,
		"mlp":      MLP,
		"cnn":      CNN,
		"lstm":     LSTM,
		"fm":       FM,
	}
}

// Names returns the models' names, sorted.
func (m Models) Names() []string { return slices.Sorted(maps.Keys(m)) }

// An ArgumentError is what a Builder returns where args are nothing that its model takes, whatever the data.
type ArgumentError struct{ Err error }

func (e *ArgumentError) Error() string { return e.Err.Error() }
func (e *ArgumentError) Unwrap() error { return e.Err }

func wrongArguments(format string, args ...any) error {
	return &ArgumentError{fmt.Errorf(format, args...)}
}

// Build makes the model that spec names: a name, or a name, a colon and arguments. It runs on cpu; nil: on the caller.
func (m Models) Build(spec string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
	name, args, _ := strings.Cut(spec, ":")
	build, ok := m[name]
	if !ok {
		return nil, fmt.Errorf("nn: no such model: %q; %s", name, nearest.Sentence(name, m.Names()))
	}
	if build == nil {
		return nil, fmt.Errorf("nn: model %q, of this program's own, has no builder", name)
	}
	model, err := build(args, s, orCaller(cpu))
	if err == nil && model == nil {
		err = errors.New("its builder returned none")
	}
	if err != nil {
		return nil, fmt.Errorf("nn: model %q: %w", spec, err)
	}
	return model, nil
}

// orCaller is cpu, or one without threads.
func orCaller(cpu *tensor.CPU) *tensor.CPU {
	if cpu == nil {
		return tensor.NewCPU(1, false)
	}
	return cpu
}

// A Graphed model can draw its inference as a graph.
type Graphed interface {
	// Scores adds to b the nodes that compute Outputs().Width scores a row from inputs, by name, each with the axis "batch" first; a
	// sparse input arrives dense. The Variables that it makes have the names and shapes of the Layout's tensors.
	Scores(b *graph.Builder, inputs map[string]graph.Value) (graph.Value, error)
}

// sizes reads arguments such as "128,32": positive integers.
func sizes(args, meaning string) ([]int, error) {
	if args == "" {
		return nil, nil
	}
	var out []int
	for a := range strings.SplitSeq(args, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(a))
		if err != nil || n < 1 || n > 1<<24 {
			return nil, wrongArguments("%q is not %s: want a whole number from 1 to %d", a, meaning, 1<<24)
		}
		out = append(out, n)
	}
	return out, nil
}

// maxParameters bounds a model: every worker holds its parameters and their gradient, which are 16 GiB each at this many.
const maxParameters = 1 << 32

// newLayout is that of a model, whose sizes are each fit but may be too much together.
func newLayout(specs ...trivium.Spec) (*trivium.Layout, error) {
	l, err := trivium.NewLayout(specs...)
	if err == nil && uint64(l.Len()) > maxParameters {
		return nil, fmt.Errorf("%d parameters are more than the %d that a model may have: every worker holds them and their gradient, 4 bytes each", l.Len(), uint64(maxParameters))
	}
	return l, err
}

// noArguments refuses any.
func noArguments(args string) error {
	if args != "" {
		return wrongArguments("takes no arguments, found %q", args)
	}
	return nil
}

// oneInput returns the only input of s.
func oneInput(s trivium.Schema) (trivium.InputSpec, error) {
	if len(s.Inputs) != 1 {
		return trivium.InputSpec{}, fmt.Errorf("takes one input, the data has %d", len(s.Inputs))
	}
	return s.Inputs[0], nil
}

// twoClasses refuses labels that a binary model cannot learn.
func twoClasses(l trivium.LabelSpec) error {
	if l.Kind == trivium.Class && l.Width == 2 {
		return nil
	}
	if l.Kind == trivium.Class {
		return badLabels("takes labels of 2 classes, the data has %d; softmax takes any number", l.Width)
	}
	return noClasses("2 classes", l)
}

// noClasses says that labels are of no classes, and what learns them where they are numbers.
func noClasses(wanted string, l trivium.LabelSpec) error {
	err := badLabels("takes labels of %s, the data has %s", wanted, labelsOf(l))
	if l.Kind == trivium.Real {
		err.Text += "; linear learns real numbers"
	}
	return err
}

// A LabelError is a model's refusal of what the data has for labels: perhaps another column was meant.
type LabelError struct{ Text string }

func (e *LabelError) Error() string { return e.Text }

func badLabels(format string, args ...any) *LabelError {
	return &LabelError{fmt.Sprintf(format, args...)}
}

// labelsOf says in words what labels are.
func labelsOf(l trivium.LabelSpec) string {
	switch {
	case l.Kind == trivium.NoLabel:
		return "no labels"
	case l.Kind == trivium.Class && l.Width == 1:
		return "only 1 class"
	case l.Kind == trivium.Class:
		return fmt.Sprintf("%d classes", l.Width)
	case l.Kind == trivium.Real && l.Width != 1:
		return fmt.Sprintf("%d real labels a row", l.Width)
	}
	return fmt.Sprintf("%v labels", l.Kind)
}
