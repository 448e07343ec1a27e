package compare

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/internal/nearest"
	"github.com/trivium-ml/trivium/train"
)

// A Target is the point at which a task counts as done: a metric of a split, at least or at most a value.
type Target struct {
	Split  string  `json:"split"` // train, valid, test
	Metric string  `json:"metric"`
	Value  float64 `json:"value"`
	Least  bool    `json:"least"` // at least Value; else at most
}

// ParseTarget reads "valid.auc >= 0.78" or "train.loss <= 0.3".
func ParseTarget(s string) (Target, error) {
	wrong := fmt.Errorf("want split.metric >= VALUE or <= VALUE, such as 'valid.auc >= 0.78'; found %q", s)
	for _, op := range []string{">=", "<="} {
		name, value, ok := strings.Cut(s, op)
		if !ok {
			continue
		}
		split, metric, ok := strings.Cut(strings.TrimSpace(name), ".")
		v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if !ok || metric == "" || err != nil || !finite.Is(v) || !slices.Contains([]string{"train", "valid", "test"}, split) {
			return Target{}, wrong
		}
		if err := train.CheckTarget(metric, op, v); err != nil {
			return Target{}, err
		}
		return Target{split, metric, v, op == ">="}, nil
	}
	return Target{}, wrong
}

func (t Target) String() string {
	op := "<="
	if t.Least {
		op = ">="
	}
	return fmt.Sprintf("%s.%s %s %v", t.Split, t.Metric, op, t.Value)
}

// Met reports whether v is there.
func (t Target) Met(v float64) bool {
	if t.Least {
		return v >= t.Value
	}
	return v <= t.Value
}

// better reports whether a is nearer to the target than b, where NaN is nowhere.
func (t Target) better(a, b float64) bool {
	return b != b || a == a && (a > b) == t.Least && a != b
}

// Rules of the paper's tasks: SGD at a fixed rate, rows in index order, the short last update dropped.
const (
	paperRate = 0.1
	paperSeed = 42
)

var paperBatches = []Batch{100, 500, trivium.FullBatch}

// Tasks are the paper's, and a convolutional net: explicit, so that a reader finds all of them here. Those of MNIST come on the set that there is:
// the four files, the 10,000 test images alone (their names end in -10k), or generated digits; see Sources.
func Tasks(s Sources) []Task {
	list := []Task{paperTask("logistic", "logistic", trivium.Data{Source: "logistic"}, Target{"train", "loss", 0.30, false}, 25)}
	for _, x := range []struct {
		name, model string
		accuracy    float64
		tenth       float64
	}{{"softmax", "softmax", 0.90, 0.90}, {"mlp1", "mlp:100", 0.95, 0.94}, {"mlp2", "mlp:128,32", 0.95, 0.94}} {
		if s.MNIST != "" {
			list = append(list, paperTask(x.name, x.model, trivium.Data{Source: s.MNIST}, Target{"test", "accuracy", x.accuracy, true}, 60))
		} else {
			list = append(list, paperTask(x.name, x.model, trivium.Data{Source: "digits"}, Target{"test", "accuracy", x.accuracy, true}, 60))
		}
		if s.Tenth != "" {
			d := trivium.Data{Source: s.Tenth, Train: "0:8000", Test: "8000:"}
			list = append(list, paperTask(x.name+"-10k", x.model, d, Target{"test", "accuracy", x.tenth, true}, 30))
		}
	}
	return append(list, convolutional(s)...)
}

// convolutional are the tasks of a net in LeNet's style. A row of it takes three hundred times the arithmetic of one of softmax, in
// training as in every look at the loss, so it trains on as many images as the tasks of the 10,000. At the paper's rate the last bit of a sum decides
// what its loss is 40 updates later, by up to a fifth, and nothing could be proven; at a tenth of it two orders of summation agree.
func convolutional(s Sources) []Task {
	net := func(name string, d trivium.Data) Task {
		t := paperTask(name, "cnn:20,50,500", d, Target{"test", "accuracy", 0.90, true}, 30)
		t.Batches, t.Job.Optimizer.Rate = paperBatches[:1], paperRate/10
		return t
	}
	list := []Task{net("cnn", trivium.Data{Source: "digits", Rows: 8000})}
	if s.MNIST != "" {
		list[0] = net("cnn", trivium.Data{Source: s.MNIST, Train: "0:8000", Test: "8000:10000"})
	}
	if s.Tenth != "" {
		list = append(list, net("cnn-10k", trivium.Data{Source: s.Tenth, Train: "0:8000", Test: "8000:"}))
	}
	return list
}

// optional tasks are those that the paper does not have: they are measured where they are named.
func optional(t Task) bool { return strings.HasPrefix(t.Name, "cnn") }

func paperTask(name, model string, d trivium.Data, t Target, epochs int) Task {
	d.Order = "index"
	return Task{
		Name: name, Target: t, Batches: paperBatches, Cap: epochs,
		Job: trivium.Job{
			Version: trivium.JobVersion, Model: model, Data: d, Batch: 100, Last: trivium.LastDrop, Seed: paperSeed,
			Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: paperRate},
		},
	}
}

// fullTargets are the targets of the full batch, of which an update is an epoch: training losses.
var fullTargets = map[string]float64{
	"logistic": 0.30, "softmax": 0.75, "mlp1": 0.55, "mlp2": 0.52, "softmax-10k": 0.75, "mlp1-10k": 0.55, "mlp2-10k": 0.50,
}

// fullCap is the number of updates within which those count.
const fullCap = 100

// At returns the task with the target and the cap of that batch.
func (t Task) At(b Batch) Task {
	if v, ok := fullTargets[t.Name]; ok && b == trivium.FullBatch && !t.Own {
		t.Target, t.Cap = Target{"train", "loss", v, false}, fullCap
	}
	return t
}

// within is the number of updates within which the target counts, where an epoch has so many: those after which train ends too.
func (t *Task) within(perEpoch int64) int64 {
	n := perEpoch * int64(t.Cap)
	if s := t.Job.Steps; s > 0 && (n == 0 || s < n) {
		return s
	}
	return n
}

// Sources are the folders of data sets that were found. Empty: there is none.
type Sources struct {
	MNIST string // four IDX files
	Tenth string // the 10,000 test images

	Looked []string // where for the test images alone
}

// FindSources looks for MNIST in dir, or, where dir is empty, beside the project and beside the caller.
func FindSources(dir string) (Sources, error) {
	var s Sources
	for _, d := range []string{"mnist", "data/mnist", "../shared/data/mnist", "../data/mnist"} {
		if s.MNIST == "" && dir == "" && has(d, "train-images-idx3-ubyte") && has(d, "t10k-images-idx3-ubyte") {
			s.MNIST = d
		}
	}
	s.Looked = []string{"mnist10k", "data/mnist10k", "shared/data/mnist10k", "../shared/data/mnist10k", "../data/mnist10k"}
	for _, d := range s.Looked {
		if s.Tenth == "" && dir == "" && has(d, "t10k-images-idx3-ubyte") {
			s.Tenth = d
		}
	}
	if dir != "" {
		s.Looked = []string{dir}
		switch {
		case has(dir, "train-images-idx3-ubyte") && has(dir, "t10k-images-idx3-ubyte"):
			s.MNIST = dir
		case has(dir, "t10k-images-idx3-ubyte"):
			s.Tenth = dir
		default:
			return s, fmt.Errorf("compare: %s: want MNIST's IDX files, train-images-idx3-ubyte and so on, plain or as .gz", dir)
		}
	}
	for _, p := range []*string{&s.MNIST, &s.Tenth} { // workers may have another folder
		if *p != "" {
			abs, err := filepath.Abs(*p)
			if err != nil {
				return s, err
			}
			*p = abs
		}
	}
	return s, nil
}

func has(dir, name string) bool {
	for _, n := range []string{name, name + ".gz"} {
		if _, err := os.Stat(filepath.Join(dir, n)); err == nil {
			return true
		}
	}
	return false
}

// PickTasks returns the tasks of those names. Of one that there is not the error says which is near, or which there are; of one that has no data here,
// what it lacks.
func PickTasks(s Sources, names []string) ([]Task, error) {
	all, withData := Tasks(s), Tasks(Sources{Tenth: "somewhere"})
	called := func(list []Task, name string) int {
		return slices.IndexFunc(list, func(t Task) bool { return t.Name == name })
	}
	var list []Task
	var known []string
	var errs []error
	for _, t := range all {
		known = append(known, t.Name)
	}
	for _, n := range names {
		switch i := called(all, n); {
		case i >= 0:
			list = append(list, all[i])
		case called(withData, n) >= 0:
			errs = append(errs, fmt.Errorf("compare: %s wants a folder with MNIST's test images alone (t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, plain or as .gz), and there is none: looked in %s; --data names another",
				n, strings.Join(s.Looked, ", ")))
		default:
			errs = append(errs, fmt.Errorf("compare: no task is called %q; %s", n, nearest.Sentence(n, known)))
		}
	}
	return list, errors.Join(errs...)
}
