// Package optim holds rules that turn a gradient into an update: SGD, momentum, Nesterov, AdaGrad, RMSProp, Adam, AdamW and
// FTRL-proximal, with learning-rate schedules, L1, L2, decoupled decay and clipping.
//
// A [Rule] is a trivium.Optimizer: pure, so any party may apply it to any range of cells, and every cut gives the same bits. A [State]
// keeps the slots of a whole model and steps it, block by block while the cells are in the cache, on all threads where it is large.
// [LBFGS] is no Optimizer: it needs the whole gradient, at points of its own choosing. [Optimizers] are those that a program brings.
//
//	rule, err := optim.New(job.Optimizer, cpu.ISA)
//	state, err := optim.NewState(model.Layout(), rule, cpu)
//	for step := int64(1); ; step++ {
//		_, weightSum, err := model.Grad(ctx, params, batch, gradient, nil)
//		state.Step(step, params, gradient, weightSum)
//	}
//
// In the order of their application: the mean gradient is clipped, L2·decay·p and L1·decay·sign(p) are added (decay being the
// tensor's multiplier), the rule makes an update of it with rate·schedule(step)·multiplier, and decoupled decay takes its share of p.
// Plain L1 is this subgradient, which shrinks weights but rarely makes one exactly 0; under FTRL it is the proximal one, which does. FTRL's L1
// and L2 are terms of the sum of all updates' losses, and not of each one's.
//
// Next in the life of a gradient: train/server, the same loop over a table.
package optim

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/nearest"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A Rule is an Optimizer of this package. It is immutable and may be used by several goroutines at once.
type Rule struct {
	name     string
	isa      kernel.ISA
	rate     float64
	schedule schedule
	params   map[string]float64

	l1, l2, decay       float32
	clipValue, clipNorm float32
	a, b, epsilon       float32 // what momentum, rho, beta1 and beta2 are to the kernel

	slots []string // their names
	apply func(r *Rule, at at, p, g, u []float32, slots [][]float32)
	steps bool // does the update depend on the number of the step?
}

// at is where a run of cells stands: the number of its update, its rate, and its tensor's decay multiplier.
type at struct {
	step        int64
	rate, decay float32
	fresh       bool // the cells may have had no update yet
}

// A family is what there is to know of one name.
type family struct {
	rate     float64            // default
	params   map[string]float64 // defaults
	slots    []string           // their names
	steps    bool
	adaptive bool // sets its own rates: takes neither schedule, clipping of the update, nor decoupled decay
	apply    func(r *Rule, at at, p, g, u []float32, slots [][]float32)
}

// families are the optimizers by name. Defaults are PyTorch's, but for the rates of SGD and its kin, and McMahan's for FTRL.
func families() map[string]family {
	return map[string]family{
		"sgd": {rate: 0.1, apply: func(r *Rule, at at, p, g, u []float32, _ [][]float32) {
			kernel.SGD(r.isa, u, p, g, kernel.SGDParams{Regular: r.regular(at)})
		}},
		"momentum": {
			rate: 0.01, params: map[string]float64{"momentum": 0.9}, slots: []string{"velocity"},
			apply: func(r *Rule, at at, p, g, u []float32, s [][]float32) {
				kernel.Momentum(r.isa, u, p, g, s[0], kernel.MomentumParams{Regular: r.regular(at), Momentum: r.a})
			},
		},
		"nesterov": {
			rate: 0.01, params: map[string]float64{"momentum": 0.9}, slots: []string{"velocity"},
			apply: func(r *Rule, at at, p, g, u []float32, s [][]float32) {
				kernel.Nesterov(r.isa, u, p, g, s[0], kernel.MomentumParams{Regular: r.regular(at), Momentum: r.a})
			},
		},
		"adagrad": {
			rate: 0.01, params: map[string]float64{"epsilon": 1e-10}, slots: []string{"squares"},
			apply: func(r *Rule, at at, p, g, u []float32, s [][]float32) {
				kernel.AdaGrad(r.isa, u, p, g, s[0], kernel.AdaGradParams{Regular: r.regular(at), Epsilon: r.epsilon})
			},
		},
		"rmsprop": {
			rate: 0.01, params: map[string]float64{"rho": 0.99, "epsilon": 1e-8}, slots: []string{"squares"},
			apply: func(r *Rule, at at, p, g, u []float32, s [][]float32) {
				kernel.RMSProp(r.isa, u, p, g, s[0], kernel.RMSPropParams{Regular: r.regular(at), Rho: r.a, Epsilon: r.epsilon})
			},
		},
		"adam":  adam(),
		"adamw": adam(),
		"ftrl": {
			rate: 0.1, params: map[string]float64{"beta": 1}, slots: []string{"z", "n"}, adaptive: true,
			apply: func(r *Rule, at at, p, g, u []float32, s [][]float32) {
				h := kernel.FTRLParams{Alpha: at.rate, Beta: r.a, L1: r.l1 * at.decay, L2: r.l2 * at.decay}
				if at.fresh {
					beginFTRL(p, s[0], s[1], h)
				}
				kernel.FTRL(r.isa, u, p, g, s[0], s[1], h)
			},
		},
	}
}

// beginFTRL gives parameters that do not begin at 0, as McMahan's do, the z of which FTRL makes them: those of a net would else be 0, all alike,
// after the first update.
func beginFTRL(p, z, n []float32, h kernel.FTRLParams) {
	k := h.Beta/h.Alpha + h.L2
	for i, v := range p {
		if v != 0 && z[i] == 0 && n[i] == 0 {
			z[i] = -float32(v*k) - float32(math.Copysign(float64(h.L1), float64(v)))
		}
	}
}

func adam() family {
	return family{
		rate: 0.001, params: map[string]float64{"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}, slots: []string{"mean", "squares"},
		steps: true,
		apply: func(r *Rule, at at, p, g, u []float32, s [][]float32) {
			kernel.Adam(r.isa, u, p, g, s[0], s[1], kernel.AdamParams{Regular: r.regular(at), Beta1: r.a, Beta2: r.b, Epsilon: r.epsilon, Step: at.step})
		},
	}
}

// defaultDecay is the decoupled decay of AdamW where the job names none, or 0: without, it is Adam.
const defaultDecay = 0.01

// Names returns the names that a job may call its optimizer, sorted. All but "lbfgs" are for New.
func Names() []string { return slices.Sorted(maps.Keys(withLBFGS())) }

func withLBFGS() map[string]family {
	f := families()
	f["lbfgs"] = family{params: lbfgsDefaults()}
	return f
}

// New returns the optimizer that spec describes, or every mistake in it. An empty name is sgd, a rate of 0 the optimizer's own default.
func New(spec trivium.OptimizerSpec, isa kernel.ISA) (trivium.Optimizer, error) {
	r, err := newRule(spec, isa)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func newRule(spec trivium.OptimizerSpec, isa kernel.ISA) (*Rule, error) {
	if spec.Name == "" {
		spec.Name = "sgd"
	}
	if spec.Name == "lbfgs" {
		return nil, errors.New("optim: lbfgs works on the whole gradient at points of its own choosing, so it runs under strategies that drive it, such as local, with batch full")
	}
	f, ok := families()[spec.Name]
	if !ok {
		return nil, unknown(spec, Names())
	}
	r := &Rule{
		name: spec.Name, isa: isa, rate: spec.Rate, slots: f.slots, apply: f.apply,
		l1: float32(spec.L1), l2: float32(spec.L2), decay: float32(spec.Decay), clipValue: float32(spec.ClipValue), clipNorm: float32(spec.ClipNorm),
	}
	if r.rate == 0 {
		r.rate = f.rate
	}
	if spec.Name == "adamw" && r.decay == 0 {
		r.decay = defaultDecay
	}
	var errs []error
	var err error
	if r.schedule, err = parseSchedule(spec.Schedule); err != nil {
		errs = append(errs, err)
	}
	if r.params, err = merge(spec.Name, f.params, spec.Params); err != nil {
		errs = append(errs, err)
	}
	if f.adaptive && spec.Schedule != "" {
		errs = append(errs, mistaken("schedule", "%s lowers the rate of each cell by itself and takes no schedule, found %q", spec.Name, spec.Schedule))
	}
	if f.adaptive && spec.Decay != 0 {
		errs = append(errs, mistaken("decay", "%s solves for the parameter itself and takes l2, not decay", spec.Name))
	}
	for _, v := range []struct {
		name  string
		value float64
	}{{"rate", spec.Rate}, {"l1", spec.L1}, {"l2", spec.L2}, {"decay", spec.Decay}, {"clip_value", spec.ClipValue}, {"clip_norm", spec.ClipNorm}} {
		if !(v.value >= 0 && v.value <= math.MaxFloat32) {
			errs = append(errs, mistaken(v.name, "%s: %s: want a number from 0 to %.2g, found %v", spec.Name, v.name, math.MaxFloat32, v.value))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	r.a = float32(r.params["momentum"] + r.params["rho"] + r.params["beta1"] + r.params["beta"]) // at most one is there
	r.b, r.epsilon = float32(r.params["beta2"]), float32(r.params["epsilon"])
	r.steps = f.steps || r.schedule != nil
	return r, nil
}

// unknown says that spec's optimizer is none of names, and what is wrong with its schedule, which those that ship read alike; parameters are each
// one's own.
func unknown(spec trivium.OptimizerSpec, names []string) error {
	_, err := parseSchedule(spec.Schedule)
	return errors.Join(mistaken("name", "no optimizer is called %q; %s", spec.Name, nearest.Sentence(spec.Name, names)), err)
}

// merge returns the defaults with what is given in their place.
func merge(name string, defaults, given map[string]float64) (map[string]float64, error) {
	params := maps.Clone(defaults)
	var errs []error
	for _, k := range slices.Sorted(maps.Keys(given)) {
		v := given[k]
		if _, ok := defaults[k]; !ok {
			known := slices.Sorted(maps.Keys(defaults))
			if len(known) == 0 {
				errs = append(errs, mistaken("params."+k, "%s has no parameter %q, nor any other", name, k))
			} else {
				errs = append(errs, mistaken("params."+k, "%s has no parameter %q; %s", name, k, nearest.Sentence(k, known)))
			}
			continue
		}
		limit := ranges[k]
		single := float64(float32(v)) // what the kernels have of it
		if !(v >= limit.least && v < limit.below && single < limit.below) || limit.whole && v != math.Trunc(v) {
			what, rounded := "a number", ""
			if limit.whole {
				what = "a whole number"
			}
			if v < limit.below && single >= limit.below {
				rounded = fmt.Sprintf(", which in 32 bits is %g", single)
			}
			errs = append(errs, mistaken("params."+k, "%s: %s: want %s from %g to below %g, found %v%s", name, k, what, limit.least, limit.below, v, rounded))
			continue
		}
		params[k] = v
	}
	return params, errors.Join(errs...)
}

// ranges are the values that make sense.
var ranges = map[string]struct {
	least, below float64
	whole        bool
}{
	"momentum": {0, 1, false}, "rho": {0, 1, false}, "beta1": {0, 1, false}, "beta2": {0, 1, false},
	"epsilon": {1e-30, 1e6, false}, // float32's smallest normal number is about 1e-38
	"beta":    {0, 1e6, false},
	"history": {1, 1001, true}, "evaluations": {2, 1001, true}, "c1": {1e-12, 0.5, false}, "c2": {1e-12, 1, false},
}

// Slots returns the number of state vectors per parameter.
func (r *Rule) Slots() int { return len(r.slots) }

// SlotNames returns what a checkpoint calls them, such as "velocity".
func (r *Rule) SlotNames() []string { return slices.Clone(r.slots) }

// Elementwise is false under clipping by global norm.
func (r *Rule) Elementwise() bool { return r.clipNorm == 0 }

// Rate returns the learning rate of update step, before a tensor's multiplier.
func (r *Rule) Rate(step int64) float64 {
	if r.schedule == nil {
		return r.rate
	}
	return r.rate * r.schedule(step)
}

// String describes the rule, such as "adam rate 0.001 beta1 0.9 beta2 0.999 epsilon 1e-08".
func (r *Rule) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s rate %g", r.name, r.rate)
	for _, k := range slices.Sorted(maps.Keys(r.params)) {
		fmt.Fprintf(&s, " %s %g", k, r.params[k])
	}
	return s.String()
}

func (r *Rule) regular(at at) kernel.Regular {
	return kernel.Regular{LR: at.rate, L2: r.l2 * at.decay, L1: r.l1 * at.decay, Decay: r.decay * at.decay}
}

// at returns where the cells of a tensor with these multipliers stand at update step.
func (r *Rule) at(step int64, spec *trivium.Spec) at {
	return at{step, float32(r.Rate(step) * float64(spec.Rate)), spec.Decay, step == 1 || spec.RowSparse}
}

// Apply writes the update u of the cells from `from` on of l: see trivium.Optimizer. Cells of a buffer get none. Under clipping by
// global norm, the norm is that of g: all cells have to be there.
func (r *Rule) Apply(step int64, l *trivium.Layout, from int, p, g, u []float32, slots [][]float32) {
	scale := float32(1)
	if r.clipNorm > 0 {
		scale = r.normScale(normOf(r.isa, l, from, g))
	}
	to := from + len(p)
	var sub [8][]float32
	for i := range l.Tensors() {
		spec := l.Spec(i)
		a, b := l.Range(i)
		if a, b = max(a, from), min(b, to); spec.Tie != "" || a >= b {
			continue
		}
		a, b = a-from, b-from
		if spec.Buffer {
			clear(u[a:b])
			continue
		}
		s := sub[:0]
		for _, v := range slots {
			s = append(s, v[a:b])
		}
		r.run(r.at(step, &spec), scale, p[a:b], g[a:b], u[a:b], s)
	}
}

// Gathers implements ps.Gatherer.
func (r *Rule) Gathers() bool { return true }

// Counting reports whether an update depends on the number of its step.
func (r *Rule) Counting() bool { return r.steps }

// ApplyRows is Apply of rows end to end, the i-th with number steps[i]: see ps.Gatherer. Neighbours that are stepped alike are stepped together.
func (r *Rule) ApplyRows(steps []uint32, l *trivium.Layout, p, g, u []float32, slots [][]float32) {
	cols := len(p) / len(steps)
	var sub [8][]float32
	for i := 0; i < len(steps); {
		j := i + 1
		for j < len(steps) && (steps[j] == steps[i] || !r.steps && min(steps[i], steps[j]) > 1) {
			j++
		}
		a, b, s := i*cols, j*cols, sub[:0]
		for _, v := range slots {
			s = append(s, v[a:b])
		}
		r.Apply(int64(steps[i]), l, 0, p[a:b], g[a:b], u[a:b], s)
		i = j
	}
}

// run writes the update of cells of one tensor. A gradient that is clipped is so in u.
func (r *Rule) run(at at, scale float32, p, g, u []float32, slots [][]float32) {
	if r.clipValue > 0 || scale != 1 {
		copy(u, g)
		r.clip(u, scale)
		g = u
	}
	r.apply(r, at, p, g, u, slots)
}

// clip clips the mean gradient g in place: first by norm (scale), then by value. NaN stays NaN.
func (r *Rule) clip(g []float32, scale float32) {
	if scale != 1 {
		kernel.Scale(r.isa, g, g, scale)
	}
	if r.clipValue > 0 {
		kernel.Clip(r.isa, g, g, r.clipValue)
	}
}

// normScale returns what the mean gradient is multiplied by so that its norm is at most clipNorm.
func (r *Rule) normScale(sumSquares float64) float32 {
	if norm := math.Sqrt(sumSquares); norm > float64(r.clipNorm) {
		return float32(float64(r.clipNorm) / norm)
	}
	return 1
}

// normOf returns the sum of squares of g, the cells of l from `from` on, less those of buffers: block by block of each tensor, in
// float32 within a block and float64 above, so that it is the one that State computes with many threads.
func normOf(isa kernel.ISA, l *trivium.Layout, from int, g []float32) float64 {
	var sum float64
	for i := range l.Tensors() {
		spec := l.Spec(i)
		a, b := l.Range(i)
		if a, b = max(a, from), min(b, from+len(g)); spec.Tie != "" || spec.Buffer {
			continue
		}
		for ; a < b; a += blockCells {
			sum += SumSquares(isa, g[a-from:min(a+blockCells, b)-from])
		}
	}
	return sum
}

// SumSquares is what the norm of a gradient is made of: the sum of squares of some thousand cells, added in float32, and in float64 where
// float32 does not hold it, since clipping is for gradients that explode.
func SumSquares(isa kernel.ISA, g []float32) float64 {
	if sum := float64(kernel.SumSquares(isa, g)); !math.IsInf(sum, 1) {
		return sum
	}
	var sum float64
	for _, x := range g {
		sum += float64(x) * float64(x) // exact, so that no machine's fused multiply-add gives other bits
	}
	return sum
}
