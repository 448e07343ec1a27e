package app

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/nearest"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A recipe is what a model trains with where the user says nothing: chosen by trial on mnist10k and a9a, to be good and quick there.
type recipe struct {
	optimizer     string
	rate          float64
	batch, epochs int
}

// recipes are by the model's name; a model of the user's own gets the last one.
var recipes = map[string]recipe{
	"logistic": {"adagrad", 0.1, 100, 10},
	"softmax":  {"adam", 0.001, 100, 20},
	"linear":   {"adam", 0.01, 100, 20},
	"svm":      {"adagrad", 0.1, 100, 10},
	"mlp":      {"adam", 0.001, 100, 10},
	"cnn":      {"adam", 0.001, 50, 5},
	"lstm":     {"adam", 0.002, 50, 10},
	"fm":       {"adagrad", 0.1, 100, 10},
	"":         {"adam", 0.001, 100, 10},
}

// rates are the learning rates of optimizers other than the recipe's own, where the user names only the optimizer.
var rates = map[string]float64{
	"sgd": 0.1, "momentum": 0.02, "nesterov": 0.02, "adagrad": 0.05, "rmsprop": 0.001, "adam": 0.001, "adamw": 0.001, "ftrl": 0.1, "lbfgs": 1,
}

// defaultSeed is the seed of the published evaluation, and ours wherever none is given.
const defaultSeed = 42

// fillDefaults completes the fields of job that nobody gave.
func fillDefaults(job *trivium.Job, g given) {
	name, _, _ := strings.Cut(job.Model, ":")
	r, ok := recipes[name]
	if !ok {
		r = recipes[""]
	}
	if !g["version"] {
		job.Version = trivium.JobVersion
	}
	if !g["seed"] {
		job.Seed = defaultSeed
	}
	if !g["optimizer.name"] {
		job.Optimizer.Name = r.optimizer
	}
	if job.Optimizer.Rate == 0 { // given or not: no optimizer trains at it
		job.Optimizer.Rate = r.rate
		if job.Optimizer.Name != r.optimizer {
			job.Optimizer.Rate = rates[job.Optimizer.Name] // 0 for one of the program's own: it has its own
		}
	}
	if !g["batch"] {
		job.Batch = r.batch
		if job.Optimizer.Name == "lbfgs" { // it is defined on all rows
			job.Batch = trivium.FullBatch
		}
	}
	if !g["epochs"] {
		job.Epochs = r.epochs
		if job.Batch == trivium.FullBatch { // an epoch is one update
			job.Epochs = max(r.epochs, 50)
		}
	}
}

// checkOptimizer refuses the optimizer of a run where this program does not take it.
func (s *session) checkOptimizer(job *trivium.Job) error {
	if job.Optimizer.Name == "lbfgs" {
		return nil
	}
	if _, err := s.optimizers.New(job.Optimizer, kernel.Go); err != nil {
		return fmt.Errorf("%w; the program that trained it takes it", err)
	}
	return nil
}

// checkModel refuses a name that this program has no model for.
func (s *session) checkModel(spec string) error {
	name, _, _ := strings.Cut(spec, ":")
	if _, ok := s.models[name]; !ok {
		return fmt.Errorf("no model is called %q; %s", name, nearest.Sentence(name, slices.Sorted(maps.Keys(s.models))))
	}
	return nil
}

// checkStandard is checkArguments for a model that ships with Trivium. A program's own may count on the data of its job.
func (s *session) checkStandard(spec string) error {
	name, _, _ := strings.Cut(spec, ":")
	if reflect.ValueOf(s.models[name]).Pointer() != reflect.ValueOf(nn.Standard()[name]).Pointer() { // it may have replaced one
		return nil
	}
	return s.checkArguments(spec)
}

// checkArguments refuses a model whose arguments are wrong whatever the data, as it turns out where it is built for the smallest there are. That it
// wants other data than these is no mistake.
func (s *session) checkArguments(spec string) error {
	if !strings.Contains(spec, ":") {
		return nil
	}
	_, err := s.models.Build(spec, trivium.Schema{
		Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.Dense, Shape: []int{1}}},
		Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 2},
	}, nil)
	if wrong, ok := errors.AsType[*nn.ArgumentError](err); ok {
		return wrong
	}
	return nil
}
