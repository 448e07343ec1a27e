package metric

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/nearest"
)

// A Builder makes an empty metric of a program's own for a model with these outputs, or says why it does not fit them. The metric's Name
// is the one that it goes by in [Metrics].
type Builder func(o trivium.Outputs) (trivium.Metric, error)

// Metrics are a program's own by name, beside those that ship. None has the name of one that ships: a job would mean either.
type Metrics map[string]Builder

// Names returns the names that New knows, those that ship and those of m, sorted; top5 stands for all of its kind.
func (m Metrics) Names() []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(Names(), maps.Keys(m)))))
}

// New returns an empty metric of that name for a model with these outputs, of m or as the function New does.
func (m Metrics) New(name string, o trivium.Outputs) (trivium.Metric, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	build, own := m[name]
	if !own {
		if err := m.CheckNames(name); err != nil {
			return nil, err
		}
		return New(name, o)
	}
	x, err := build(o)
	switch {
	case err != nil:
		return nil, fmt.Errorf("metric: %s: %w", name, err)
	case x == nil:
		return nil, fmt.Errorf("metric: %s: its builder returned none", name)
	case x.Name() != name:
		return nil, fmt.Errorf("metric: %s calls itself %q: want the name that the program knows it by", name, x.Name())
	}
	return x, nil
}

// CheckNames refuses the names that New knows for no model.
func (m Metrics) CheckNames(names ...string) error {
	var errs []error
	for _, name := range names {
		if _, own := m[name]; !own && !ships(name) {
			errs = append(errs, unknown(name, m.Names()))
		}
	}
	return errors.Join(errs...)
}

// Check returns what is wrong with the names of m, which is the program's to mend.
func (m Metrics) Check() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(m)) {
		switch {
		case name == "":
			errs = append(errs, errors.New("metric: a metric of this program's own has no name"))
		case name == loss:
			errs = append(errs, fmt.Errorf("metric: a metric of this program's own is called %q, which is measured beside all metrics", name))
		case ships(name):
			errs = append(errs, fmt.Errorf("metric: a metric of this program's own has the name of one that ships, %q: a job would mean either", name))
		case m[name] == nil:
			errs = append(errs, fmt.Errorf("metric: %s, of this program's own, has no builder", name))
		}
	}
	return errors.Join(errs...)
}

// Mean returns a metric of that name that is the mean over all rows, weighted by their sample weights, of a figure of each: row returns
// that of row i, given its labels and the Outputs.Width scores of the row alone. It suits a [Builder]: most metrics are such means.
func Mean(name string, o trivium.Outputs, higherIsBetter bool, row func(l *trivium.Labels, i int, scores []float32) (float64, error)) trivium.Metric {
	return &mean{name: name, outputs: o, higher: higherIsBetter, row: func(_ trivium.Outputs, l *trivium.Labels, i int, scores []float32) (float64, error) {
		return row(l, i, scores)
	}}
}

// loss is what every evaluation has, with or without metrics.
const loss = "loss"

// ships reports whether New knows the name.
func ships(name string) bool {
	_, ok := kinds[name]
	_, top := topK(name)
	return ok || top
}

func unknown(name string, names []string) error {
	return fmt.Errorf("metric: no metric is called %q; %s", name, nearest.Sentence(name, names))
}
