package optim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

func Example() {
	l, err := trivium.NewLayout(trivium.Spec{Name: "weight", Shape: []int{2}, Decay: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	rule, err := optim.New(trivium.OptimizerSpec{Name: "momentum", Rate: 0.5, Schedule: "step:1,0.5"}, kernel.Best())
	if err != nil {
		fmt.Println(err)
		return
	}
	state, err := optim.NewState(l, rule, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	p, g := trivium.NewParams(l), trivium.NewGradient(l)
	copy(g.Flat, []float32{4, -8})
	for step := int64(1); step <= 2; step++ {
		state.Step(step, p, g, 4) // the sum over rows of weight 4: the mean gradient is 1, -2
		fmt.Println(p.Flat)
	}
	_, err = optim.New(trivium.OptimizerSpec{Name: "adma"}, kernel.Best())
	fmt.Println(err)
	// Output:
	// [-0.5 1]
	// [-0.975 1.95]
	// optim: no optimizer is called "adma"; did you mean "adam"?
}

// rules are all the optimizers, with all that may be asked of each.
func rules() map[string]trivium.OptimizerSpec {
	return map[string]trivium.OptimizerSpec{
		"sgd":               {Name: "sgd", Rate: 0.3},
		"sgd regularised":   {Name: "sgd", Rate: 0.3, L1: 0.01, L2: 0.1, Decay: 0.05, Schedule: "inverse:0.1"},
		"momentum":          {Name: "momentum", Rate: 0.1, L2: 0.1},
		"nesterov":          {Name: "nesterov", Rate: 0.1, L2: 0.1, Params: map[string]float64{"momentum": 0.8}},
		"adagrad":           {Name: "adagrad", Rate: 0.1, L1: 0.01},
		"rmsprop":           {Name: "rmsprop", Rate: 0.01, Decay: 0.1},
		"adam":              {Name: "adam", Rate: 0.01, L2: 0.1},
		"adam scheduled":    {Name: "adam", Rate: 0.01, Schedule: "warmup:3+cosine:10"},
		"adamw":             {Name: "adamw", Rate: 0.01, Decay: 0.1},
		"ftrl":              {Name: "ftrl", Rate: 0.1, L1: 0.1, L2: 0.2},
		"ftrl through 0":    {Name: "ftrl", Rate: 5, L1: 0.5, L2: 0.2},
		"sgd clipped":       {Name: "sgd", Rate: 0.3, ClipValue: 0.2},
		"adam norm-clipped": {Name: "adam", Rate: 0.3, ClipNorm: 0.5},
	}
}

func rule(t testing.TB, spec trivium.OptimizerSpec, isa kernel.ISA) trivium.Optimizer {
	t.Helper()
	o, err := optim.New(spec, isa)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func layout(t testing.TB, specs ...trivium.Spec) *trivium.Layout {
	t.Helper()
	l, err := trivium.NewLayout(specs...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mixed(t testing.TB) *trivium.Layout {
	return layout(t,
		trivium.Spec{Name: "w", Shape: []int{13, 401}, Decay: 1},
		trivium.Spec{Name: "b", Shape: []int{7}, Rate: 2},
		trivium.Spec{Name: "mean", Shape: []int{5}, Buffer: true},
		trivium.Spec{Name: "scalar", Decay: 0.5},
		trivium.Spec{Name: "tied", Shape: []int{7}, Tie: "b"})
}

func fill(r *rand.Rand, v []float32) []float32 {
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// TestAnyCutGivesTheSameBits applies each rule to a whole model at once, in random cuts, and through a State on two threads.
func TestAnyCutGivesTheSameBits(t *testing.T) {
	seed := rand.Uint64()
	l := mixed(t)
	pool := tensor.NewPool(2)
	defer pool.Close()
	for name, spec := range rules() {
		r := rand.New(rand.NewPCG(seed, 1))
		opt := rule(t, spec, kernel.Best())
		state, err := optim.NewState(l, opt, &tensor.CPU{ISA: kernel.Best(), Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		optim.ForkFrom(state, 0)
		start := fill(r, make([]float32, l.Len()))
		whole, cut, stepped := slices.Clone(start), slices.Clone(start), trivium.Params{Layout: l, Flat: slices.Clone(start)}
		wholeSlots, cutSlots := slots(opt, l), slots(opt, l)
		g := trivium.NewGradient(l)
		mean, u := make([]float32, l.Len()), make([]float32, l.Len())
		for step := int64(1); step <= 4; step++ {
			fill(r, g.Flat)
			for i := range mean {
				mean[i] = g.Flat[i] / 7
			}
			opt.Apply(step, l, 0, whole, mean, u, wholeSlots)
			for i := range u {
				whole[i] += u[i]
			}
			state.Step(step, stepped, g, 7)
			if !opt.Elementwise() {
				continue
			}
			for from := 0; from < l.Len(); {
				to := min(from+1+r.IntN(700), l.Len())
				sub := make([][]float32, len(cutSlots))
				for k, s := range cutSlots {
					sub[k] = s[from:to]
				}
				u := slices.Clone(mean[from:to]) // u may be g
				opt.Apply(step, l, from, cut[from:to], u, u, sub)
				for i := range u {
					cut[from+i] += u[i]
				}
				from = to
			}
		}
		for i := range whole {
			if opt.Elementwise() && math.Float32bits(whole[i]) != math.Float32bits(cut[i]) {
				t.Fatalf("seed %d: %s: cell %d is %v at once, %v in cuts", seed, name, i, whole[i], cut[i])
			}
			if math.Float32bits(whole[i]) != math.Float32bits(stepped.Flat[i]) {
				t.Fatalf("seed %d: %s: cell %d is %v at once, %v through a State", seed, name, i, whole[i], stepped.Flat[i])
			}
		}
		from, to := l.Range(l.Index("mean"))
		if !slices.Equal(whole[from:to], start[from:to]) {
			t.Errorf("%s: a buffer was updated", name)
		}
		for k, s := range state.Slots() {
			for i := range s {
				if math.Float32bits(s[i]) != math.Float32bits(wholeSlots[k][i]) {
					t.Fatalf("seed %d: %s: slot %d, cell %d: %v, want %v", seed, name, k, i, s[i], wholeSlots[k][i])
				}
			}
		}
	}
}

func slots(o trivium.Optimizer, l *trivium.Layout) [][]float32 {
	s := make([][]float32, o.Slots())
	for k := range s {
		s[k] = make([]float32, l.Len())
	}
	return s
}

func TestMultipliers(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{1}, Decay: 1}, trivium.Spec{Name: "b", Shape: []int{1}, Rate: 3})
	state, err := optim.NewState(l, rule(t, trivium.OptimizerSpec{Name: "sgd", Rate: 0.5, L2: 0.25}, kernel.Best()), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, g := trivium.NewParams(l), trivium.NewGradient(l)
	p.Flat[0], p.Flat[1], g.Flat[0], g.Flat[1] = 1, 1, 1, 1
	state.Step(1, p, g, 1)
	// The weight: 1 - 0.5·(1 + 0.25·1). The bias: no decay, three times the rate: 1 - 1.5·1.
	if want := []float32{0.375, -0.5}; !slices.Equal(p.Flat, want) {
		t.Errorf("%v, want %v", p.Flat, want)
	}
	state.Step(2, p, g, 0)
	if want := []float32{0.375, -0.5}; !slices.Equal(p.Flat, want) {
		t.Errorf("an update from rows of no weight made it %v", p.Flat)
	}
}

// TestClipByGlobalNorm has gradient (3, 4) of norm 5, clipped to 1.
func TestClipByGlobalNorm(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{1}}, trivium.Spec{Name: "m", Shape: []int{1}, Buffer: true}, trivium.Spec{Name: "b", Shape: []int{1}})
	o := rule(t, trivium.OptimizerSpec{Name: "sgd", Rate: 1, ClipNorm: 1}, kernel.Best())
	if o.Elementwise() {
		t.Error("clipping by global norm is not elementwise")
	}
	state, err := optim.NewState(l, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, g := trivium.NewParams(l), trivium.NewGradient(l)
	copy(g.Flat, []float32{6, 1000, 8})
	state.Step(1, p, g, 2)
	if want := []float32{-0.6, 0, -0.8}; !near(p.Flat, want, 1e-7) {
		t.Errorf("%v, want %v", p.Flat, want)
	}
	copy(g.Flat, []float32{0.6, 0, 0.8})
	state.Step(2, p, g, 2) // of norm 0.5: not clipped
	if want := []float32{-0.9, 0, -1.2}; !near(p.Flat, want, 1e-6) {
		t.Errorf("%v, want %v", p.Flat, want)
	}
}

func near(a, b []float32, within float64) bool {
	for i := range a {
		if !(math.Abs(float64(a[i])-float64(b[i])) <= within) {
			return false
		}
	}
	return true
}

func TestRowSparseNorm(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{3, 1}, RowSparse: true}, trivium.Spec{Name: "b", Shape: []int{1}})
	state, err := optim.NewState(l, rule(t, trivium.OptimizerSpec{Name: "sgd", Rate: 1, ClipNorm: 1}, kernel.Best()), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, g := trivium.NewParams(l), trivium.NewGradient(l)
	g.Rows[0] = []int32{1}
	copy(g.Flat, []float32{float32(math.NaN()), 3, 77, 4}) // rows 0 and 2 are not there
	state.Step(1, p, g, 1)
	if want := []float32{0, -0.6, 0, -0.8}; !near(p.Flat, want, 1e-7) {
		t.Errorf("%v, want %v", p.Flat, want)
	}
}

func TestRestore(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 3))
	l := layout(t, trivium.Spec{Name: "e", Shape: []int{4, 2}, RowSparse: true}, trivium.Spec{Name: "w", Shape: []int{3}})
	opt := rule(t, rules()["adam"], kernel.Best())
	a, err := optim.NewState(l, opt, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, g := trivium.NewParams(l), trivium.NewGradient(l)
	step := func(s *optim.State, n int64, p trivium.Params) {
		g.Rows[0] = []int32{int32(n) % 4}
		s.Step(n, p, g, 2)
	}
	fill(r, g.Flat)
	step(a, 1, p)
	step(a, 2, p)
	b, err := optim.NewState(l, opt, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Restore(a.Slots(), a.RowSteps()); err != nil {
		t.Fatal(err)
	}
	q := trivium.Params{Layout: l, Flat: slices.Clone(p.Flat)}
	step(a, 5, p)
	step(b, 5, q)
	if !slices.Equal(p.Flat, q.Flat) {
		t.Errorf("seed %d: restored: %v, want %v", seed, q.Flat, p.Flat)
	}
	for want, err := range map[string]error{
		"has 2 state vectors, found 1":          b.Restore(a.Slots()[:1], a.RowSteps()),
		"want 11 cells, found 3":                b.Restore([][]float32{make([]float32, 3), make([]float32, 11)}, nil),
		`"e": want the number of updates of ea`: b.Restore(a.Slots(), nil),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// A sum is a foreign optimizer that needs all cells: its update is minus the mean of all.
type sum struct{}

func (sum) Slots() int        { return 0 }
func (sum) Elementwise() bool { return false }
func (sum) Apply(_ int64, _ *trivium.Layout, _ int, _, g, u []float32, _ [][]float32) {
	var s float32
	for _, x := range g {
		s += x
	}
	for i := range u {
		u[i] = -s
	}
}

func TestForeignOptimizer(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{9000}})
	state, err := optim.NewState(l, sum{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, g := trivium.NewParams(l), trivium.NewGradient(l)
	g.Flat[0], g.Flat[8999] = 2, 4
	state.Step(1, p, g, 2)
	if p.Flat[0] != -3 || p.Flat[4500] != -3 {
		t.Errorf("%v and %v, want -3", p.Flat[0], p.Flat[4500])
	}
	if _, err := optim.NewState(layout(t, trivium.Spec{Name: "e", Shape: []int{2}, RowSparse: true}), sum{}, nil); err == nil {
		t.Error("a row-sparse tensor was accepted")
	}
}

func TestNewReportsEveryMistake(t *testing.T) {
	_, err := optim.New(trivium.OptimizerSpec{
		Name: "adam", Rate: -1, L1: math.NaN(), Schedule: "cosin:10",
		Params: map[string]float64{"beta3": 1, "beta1": 1.5, "epsilon": 0},
	}, kernel.Best())
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"rate: want a number from 0 to 3.4e+38, found -1", "l1:", `did you mean "cosine"?`, `no parameter "beta3"; did you mean "beta1"?`,
		"beta1: want a number from 0 to below 1, found 1.5", "epsilon: want",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %s", err, want)
		}
	}
	for _, c := range []struct {
		spec trivium.OptimizerSpec
		want string
	}{
		{trivium.OptimizerSpec{Name: "lbfgs"}, "strategies that drive it"},
		{trivium.OptimizerSpec{Name: "adam", Rate: 0.1, Params: map[string]float64{"beta2": 0.99999999}}, "below 1, found 0.99999999, which in 32 bits is 1"},
		{trivium.OptimizerSpec{Name: "ftrl", Schedule: "cosine:5"}, "takes no schedule"},
		{trivium.OptimizerSpec{Name: "ftrl", Decay: 1}, "takes l2, not decay"},
		{trivium.OptimizerSpec{Name: "sgd", Params: map[string]float64{"momentum": 0.9}}, "sgd has no parameter"},
	} {
		if _, err := optim.New(c.spec, kernel.Best()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c.spec, err, c.want)
		}
	}
}

func TestStepAllocatesNothing(t *testing.T) {
	pool := tensor.NewPool(2)
	defer pool.Close()
	l := layout(t, trivium.Spec{Name: "e", Shape: []int{5000, 2}, RowSparse: true}, trivium.Spec{Name: "w", Shape: []int{70000}, Decay: 1})
	for name, spec := range rules() {
		state, err := optim.NewState(l, rule(t, spec, kernel.Best()), &tensor.CPU{ISA: kernel.Best(), Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		p, g := trivium.NewParams(l), trivium.NewGradient(l)
		for i := range 1000 {
			g.Rows[0] = append(g.Rows[0], int32(i*4))
		}
		step := int64(0)
		if n := testing.AllocsPerRun(20, func() { step++; state.Step(step, p, g, 10) }); n != 0 {
			t.Errorf("%s: %v allocations a step", name, n)
		}
	}
}

func BenchmarkStep(b *testing.B) {
	for _, size := range []int{7850, 1 << 22} {
		l := layout(b, trivium.Spec{Name: "w", Shape: []int{size}, Decay: 1})
		for _, name := range []string{"sgd", "momentum", "adam"} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				cpu := tensor.NewCPU(0, false)
				defer cpu.Close()
				state, err := optim.NewState(l, rule(b, trivium.OptimizerSpec{Name: name, Rate: 1e-6}, cpu.ISA), cpu)
				if err != nil {
					b.Fatal(err)
				}
				p, g := trivium.NewParams(l), trivium.NewGradient(l)
				fill(rand.New(rand.NewPCG(1, 1)), g.Flat)
				b.SetBytes(int64(4 * size * (3 + 2*state.NumSlots())))
				var step int64
				for b.Loop() {
					step++
					state.Step(step, p, g, 100)
				}
			})
		}
	}
}

// TestClipNormOfWhatExploded: a gradient whose square float32 does not hold is clipped, in its direction; it became zero.
func TestClipNormOfWhatExploded(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{2}}, trivium.Spec{Name: "rows", Shape: []int{3, 1}, RowSparse: true})
	for _, isa := range kernel.Available() {
		opt := rule(t, trivium.OptimizerSpec{Name: "sgd", Rate: 1, ClipNorm: 13}, isa)
		state, err := optim.NewState(l, opt, &tensor.CPU{ISA: isa})
		if err != nil {
			t.Fatal(err)
		}
		p, g, u := trivium.NewParams(l), trivium.NewGradient(l), make([]float32, l.Len())
		copy(g.Flat, []float32{3e20, -4e20, 0, 0, 12e20})
		opt.Apply(1, l, 0, p.Flat, slices.Clone(g.Flat), u, nil)
		g.Touch(1, []int32{2})
		g.Flat[4] = 12e20
		state.Step(1, p, g, 1)
		for i, want := range []float32{-3, 4, 0, 0, -12} {
			if !(math.Abs(float64(u[i]-want)) <= 1e-5 && math.Abs(float64(p.Flat[i]-want)) <= 1e-5) {
				t.Errorf("%v: cell %d: %v, by a State %v; want %v", isa, i, u[i], p.Flat[i], want)
			}
		}
	}
}
