package optim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A Builder makes an optimizer of a program's own, as spec describes it; a Rate of 0 means the optimizer's own. All of spec is the
// builder's to heed or to refuse, with an error that says everything that is wrong. isa are the kernels of who is going to apply it.
//
// What it returns is used by several goroutines at once, on any run of cells of any layout, that of a part of the model too: see
// [trivium.Optimizer]. What it makes of the cells of buffers counts for nothing. It may have two methods more:
// SlotNames() []string, which is what checkpoints call its state vectors, else "slot0" and so on; and Rate(step int64) float64, its learning
// rate in update step, which runs report and compression goes by. An optimizer that embeds a *[Rule] has those of the rule.
type Builder func(spec trivium.OptimizerSpec, isa kernel.ISA) (trivium.Optimizer, error)

// Optimizers are a program's own by name, beside those that ship. None has the name of one that ships: a job would mean either.
type Optimizers map[string]Builder

// Names returns what a job may call its optimizer, those that ship and those of m, sorted.
func (m Optimizers) Names() []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(Names(), maps.Keys(m)))))
}

// CheckSpec returns every mistake in spec: what New refuses, or, of L-BFGS, CheckLBFGS.
func (m Optimizers) CheckSpec(spec trivium.OptimizerSpec) error {
	if spec.Name == "lbfgs" {
		return CheckLBFGS(spec)
	}
	_, err := m.New(spec, kernel.Go)
	return err
}

// New returns the optimizer that spec describes, of m or as the function New does, or every mistake in it.
func (m Optimizers) New(spec trivium.OptimizerSpec, isa kernel.ISA) (trivium.Optimizer, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	build, own := m[spec.Name]
	if !own {
		if spec.Name != "" && !slices.Contains(Names(), spec.Name) {
			return nil, unknown(spec, m.Names())
		}
		return New(spec, isa)
	}
	o, err := build(spec, isa)
	if err == nil {
		err = checkOwn(o)
	}
	if err != nil {
		return nil, fmt.Errorf("optim: optimizer %q: %w", spec.Name, err)
	}
	if _, rule := o.(*Rule); rule {
		return o, nil
	}
	return &foreign{o}, nil
}

// A foreign optimizer is of a program's own, and leaves buffers alone, as a Rule does.
type foreign struct{ trivium.Optimizer }

// Apply implements trivium.Optimizer.
func (o *foreign) Apply(step int64, l *trivium.Layout, from int, p, g, u []float32, slots [][]float32) {
	o.Optimizer.Apply(step, l, from, p, g, u, slots)
	for i := range l.Tensors() {
		if spec := l.Spec(i); spec.Buffer && spec.Tie == "" {
			a, b := l.Range(i)
			if a, b = max(a, from), min(b, from+len(u)); a < b {
				clear(u[a-from : b-from])
			}
		}
	}
}

// SlotNames returns what a checkpoint calls the state vectors.
func (o *foreign) SlotNames() []string { return NamesOf(o.Optimizer) }

// Check returns what is wrong with the names, which is the program's to mend.
func (m Optimizers) Check() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(m)) {
		switch {
		case name == "":
			errs = append(errs, errors.New("optim: an optimizer of this program's own has no name"))
		case slices.Contains(Names(), name):
			errs = append(errs, fmt.Errorf("optim: an optimizer of this program's own has the name of one that ships, %q: a job would mean either", name))
		case m[name] == nil:
			errs = append(errs, fmt.Errorf("optim: optimizer %q of this program's own has no builder", name))
		}
	}
	return errors.Join(errs...)
}

// checkOwn refuses an optimizer whose state cannot be kept.
func checkOwn(o trivium.Optimizer) error {
	if o == nil {
		return errors.New("its builder returned none")
	}
	if n := o.Slots(); n < 0 {
		return fmt.Errorf("it has %d state vectors: want 0 or more", n)
	}
	names := NamesOf(o)
	if len(names) != o.Slots() {
		return fmt.Errorf("it has %d state vectors and calls them %q: want a name for each", o.Slots(), names)
	}
	for i, name := range names {
		if name == "" || strings.Contains(name, "/") || slices.Contains(names[:i], name) || slices.Contains(reserved, name) {
			return fmt.Errorf("it calls its state vectors %q: want names that differ, without a slash, and none of %q", names, reserved)
		}
	}
	return nil
}

// reserved are what checkpoints call other state of training.
var reserved = []string{"steps", "residual"}

// NamesOf returns what a checkpoint calls o's state vectors: what SlotNames says, if o has that, else "slot0", "slot1" and so on.
func NamesOf(o trivium.Optimizer) []string {
	if named, ok := o.(interface{ SlotNames() []string }); ok {
		return slices.Clone(named.SlotNames())
	}
	var names []string
	for i := range o.Slots() {
		names = append(names, fmt.Sprintf("slot%d", i))
	}
	return names
}

// RateOf returns o's learning rate by the number of the update, before a tensor's multiplier; nil: it tells none.
func RateOf(o trivium.Optimizer) func(step int64) float64 {
	if x, ok := o.(*foreign); ok {
		o = x.Optimizer
	}
	if rated, ok := o.(interface{ Rate(step int64) float64 }); ok {
		return rated.Rate
	}
	return nil
}
