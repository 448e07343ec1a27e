package optim_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
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

func ExampleLBFGS() {
	l, err := trivium.NewLayout(trivium.Spec{Name: "w", Shape: []int{2}})
	if err != nil {
		fmt.Println(err)
		return
	}
	o, err := optim.NewLBFGS(trivium.OptimizerSpec{Name: "lbfgs"}, l, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := trivium.NewParams(l)
	for {
		_, _, err = o.Step(p, func(p trivium.Params, g trivium.Gradient) (lossSum, weightSum float64, err error) {
			x, y := p.Flat[0]-3, p.Flat[1]+1
			g.Flat[0], g.Flat[1] = 2*x, 20*y
			return float64(x*x) + 10*float64(y*y), 1, nil
		})
		if err != nil {
			break
		}
	}
	fmt.Printf("%.3f %v\n", p.Flat, err)
	// Output: [3.000 -1.000] optim: lbfgs: converged
}

// rosenbrock is the sum over pairs of 100·(y-x²)² + (1-x)², whose minimum is 0 at all ones, behind a bent valley.
func rosenbrock(p trivium.Params, g trivium.Gradient) (float64, float64, error) {
	var loss float64
	for i := 0; i < len(p.Flat); i += 2 {
		x, y := float64(p.Flat[i]), float64(p.Flat[i+1])
		a, b := y-x*x, 1-x
		loss += 100*a*a + b*b
		g.Flat[i], g.Flat[i+1] = float32(-400*a*x-2*b), float32(200*a)
	}
	return loss, 1, nil
}

func TestLBFGSRosenbrock(t *testing.T) {
	for _, n := range []int{2, 10, 20000} {
		pool := tensor.NewPool(2)
		l := layout(t, trivium.Spec{Name: "w", Shape: []int{n}})
		o, err := optim.NewLBFGS(trivium.OptimizerSpec{Name: "lbfgs"}, l, &tensor.CPU{ISA: kernel.Best(), Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		p := trivium.NewParams(l)
		for i := range p.Flat {
			p.Flat[i] = []float32{-1.2, 1}[i%2]
		}
		last, evaluations, steps := math.Inf(1), 0, 0
		for ; steps < 200; steps++ {
			loss, k, err := o.Step(p, rosenbrock)
			evaluations += k
			if loss > last {
				t.Errorf("%d cells: update %d: the loss rose from %v to %v", n, steps, last, loss)
			}
			last = loss
			if errors.Is(err, optim.ErrConverged) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for i, x := range p.Flat {
			if !(math.Abs(float64(x)-1) <= 2e-3) {
				t.Fatalf("%d cells: after %d updates cell %d is %v, want 1", n, steps, i, x)
			}
		}
		if steps > 100 || evaluations > 250 {
			t.Errorf("%d cells: %d updates and %d evaluations", n, steps, evaluations)
		}
		pool.Close()
	}
}

// leastSquares is a random problem with a known answer: the mean over rows of (x·w - y)²/2, with an L2 term of half that.
type leastSquares struct {
	rows, cols int
	x, y       []float64
}

func newLeastSquares(r *rand.Rand, rows, cols int) *leastSquares {
	q := &leastSquares{rows: rows, cols: cols}
	for range rows * cols {
		q.x = append(q.x, r.NormFloat64()*float64(1+len(q.x)%cols)) // badly scaled columns
	}
	for range rows {
		q.y = append(q.y, r.NormFloat64())
	}
	return q
}

func (q *leastSquares) objective(p trivium.Params, g trivium.Gradient) (lossSum, weightSum float64, err error) {
	grad := make([]float64, q.cols)
	for i := range q.rows {
		x := q.x[i*q.cols : (i+1)*q.cols]
		d := -q.y[i]
		for j := range x {
			d += x[j] * float64(p.Flat[j])
		}
		lossSum += d * d / 2
		for j := range x {
			grad[j] += d * x[j]
		}
	}
	for j := range grad {
		g.Flat[j] = float32(grad[j])
	}
	return lossSum, float64(q.rows), nil
}

// TestLBFGSL2 wants the gradient of loss plus penalty to vanish where it ends.
func TestLBFGSL2(t *testing.T) {
	seed := rand.Uint64()
	q := newLeastSquares(rand.New(rand.NewPCG(seed, 1)), 200, 30)
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{30}, Decay: 1})
	o, err := optim.NewLBFGS(trivium.OptimizerSpec{Name: "lbfgs", L2: 0.5, Params: map[string]float64{"history": 5}}, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, g := trivium.NewParams(l), trivium.NewGradient(l)
	for range 300 {
		if _, _, err = o.Step(p, q.objective); err != nil {
			break
		}
	}
	if _, _, err := q.objective(p, g); err != nil {
		t.Fatal(err)
	}
	for i := range g.Flat {
		if full := float64(g.Flat[i])/200 + 0.5*float64(p.Flat[i]); !(math.Abs(full) <= 1e-3) {
			t.Errorf("seed %d: %v: the gradient of cell %d is %v", seed, err, i, full)
		}
	}
	if s, _ := o.Pairs(); len(s) > 5 {
		t.Errorf("%d pairs in a history of 5", len(s))
	}
}

// TestLBFGSRestore continues from saved pairs, with the bits of the run that was never interrupted.
func TestLBFGSRestore(t *testing.T) {
	seed := rand.Uint64()
	q := newLeastSquares(rand.New(rand.NewPCG(seed, 2)), 50, 12)
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{12}, Decay: 1})
	spec := trivium.OptimizerSpec{Name: "lbfgs", L2: 0.01, Params: map[string]float64{"history": 3}}
	make := func() *optim.LBFGS {
		o, err := optim.NewLBFGS(spec, l, nil)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	a, p := make(), trivium.NewParams(l)
	for range 5 {
		if _, _, err := a.Step(p, q.objective); err != nil {
			t.Fatal(err)
		}
	}
	b, r := make(), trivium.Params{Layout: l, Flat: slices.Clone(p.Flat)}
	if err := b.Restore(a.Pairs()); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		_, _, errA := a.Step(p, q.objective)
		_, _, errB := b.Step(r, q.objective)
		if !slices.Equal(p.Flat, r.Flat) || !errors.Is(errA, errB) {
			t.Fatalf("seed %d: restored: %v, %v; want %v, %v", seed, r.Flat, errB, p.Flat, errA)
		}
	}
	if err := b.Restore(make().Pairs()); err != nil { // none, at another point
		t.Error(err)
	}
	c, from := make(), trivium.NewParams(l)
	copy(r.Flat, from.Flat)
	_, n, _ := b.Step(r, q.objective)
	if _, want, _ := c.Step(from, q.objective); n != want || !slices.Equal(r.Flat, from.Flat) {
		t.Errorf("seed %d: after a restore to the start %v, by %d evaluations; a new one %v, by %d", seed, r.Flat, n, from.Flat, want)
	}
	long := [][]float32{nil, nil, nil, nil}
	if err := b.Restore(long, long); err == nil {
		t.Error("four pairs fit a history of three")
	}
}

func TestLBFGSRowSparse(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "e", Shape: []int{4, 1}, RowSparse: true}, trivium.Spec{Name: "m", Shape: []int{1}, Buffer: true})
	o, err := optim.NewLBFGS(trivium.OptimizerSpec{Name: "lbfgs"}, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := trivium.NewParams(l)
	for range 10 {
		_, _, err = o.Step(p, func(p trivium.Params, g trivium.Gradient) (float64, float64, error) {
			for i := range g.Flat {
				g.Flat[i] = float32(math.NaN()) // nobody looks at rows 0 and 3, nor at the buffer
			}
			g.Touch(0, []int32{1, 2})
			a, b := p.Flat[1]-1, p.Flat[2]-2
			g.Flat[1], g.Flat[2] = 2*a, 2*b
			return float64(a*a + b*b), 1, nil
		})
		if err != nil {
			break
		}
	}
	if want := []float32{0, 1, 2, 0, 0}; !near(p.Flat, want, 1e-5) {
		t.Errorf("%v, want %v; %v", p.Flat, want, err)
	}
}

func TestLBFGSErrors(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{1}})
	_, err := optim.NewLBFGS(trivium.OptimizerSpec{Name: "lbfgs", Rate: 1e7, L1: 1, L2: 1e39, ClipNorm: 1, Params: map[string]float64{"histroy": 5}}, l, nil)
	for _, want := range []string{"rate: want a number from 0 to 1e+06, found 1e+07", "l2: want a number from 0 to 3.4e+38, found 1e+39", "takes no l1", "takes no clip_norm", `did you mean "history"?`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for c1, ok := range map[float64]bool{0.1: true, 0.2: false, 0.3: false} {
		err := optim.CheckLBFGS(trivium.OptimizerSpec{Name: "lbfgs", Params: map[string]float64{"c1": c1, "c2": 0.2}})
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "must be below c2 0.2") {
			t.Errorf("c1 %v under c2 0.2: %v", c1, err)
		}
	}
	o, err := optim.NewLBFGS(trivium.OptimizerSpec{Name: "lbfgs"}, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := trivium.NewParams(l)
	p.Flat[0] = 5
	n, broken := 0, errors.New("pulled")
	_, _, err = o.Step(p, func(p trivium.Params, g trivium.Gradient) (float64, float64, error) {
		if n++; n == 3 {
			return 0, 0, broken
		}
		g.Flat[0] = p.Flat[0] * 1000
		return float64(p.Flat[0]) * float64(p.Flat[0]) * 500, 1, nil
	})
	if errors.Is(err, broken) && p.Flat[0] != 5 {
		t.Errorf("after %v the cell is %v", err, p.Flat[0])
	}
	if !errors.Is(err, broken) && err != nil {
		t.Error(err)
	}
}

// TestLBFGSGradientTooLargeToSearch: a gradient whose square float32 does not hold was taken for that of a minimum, and training ended well
// before its first update.
func TestLBFGSGradientTooLargeToSearch(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{2}})
	for _, size := range []float64{1e20, math.Inf(1), math.NaN()} {
		o, err := optim.NewLBFGS(trivium.OptimizerSpec{Name: "lbfgs"}, l, nil)
		if err != nil {
			t.Fatal(err)
		}
		p := trivium.NewParams(l)
		_, _, err = o.Step(p, func(_ trivium.Params, g trivium.Gradient) (lossSum, weightSum float64, err error) {
			g.Flat[0], g.Flat[1] = float32(size), 0
			return 7, 1, nil
		})
		if err == nil || errors.Is(err, optim.ErrConverged) || !strings.Contains(err.Error(), "want scaling") {
			t.Errorf("a gradient of %g: %v", size, err)
		}
		if p.Flat[0] != 0 || p.Flat[1] != 0 {
			t.Errorf("a gradient of %g: the parameters are %v", size, p.Flat)
		}
	}
}

// TestLBFGSBuffersAndTies: the cells of buffers stay, whatever the gradient says there; tied ones are their owner's, and count once; what comes after
// either is trained as what comes before.
func TestLBFGSBuffersAndTies(t *testing.T) {
	l := layout(t,
		trivium.Spec{Name: "seen", Shape: []int{1}, Buffer: true}, trivium.Spec{Name: "w", Shape: []int{2}, Decay: 1},
		trivium.Spec{Name: "again", Shape: []int{2}, Decay: 1, Tie: "w"}, trivium.Spec{Name: "v", Shape: []int{1}, Decay: 2})
	const l2, weight = 0.5, 4
	o, err := optim.NewLBFGS(trivium.OptimizerSpec{Name: "lbfgs", L2: l2}, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := trivium.NewParams(l)
	to := []float64{7, 3, -2, 5} // the mean loss is half the sum of squares to there, but of the buffer
	p.Flat[0] = 7
	for i := 0; i < 20 && err == nil; i++ {
		_, _, err = o.Step(p, func(p trivium.Params, g trivium.Gradient) (lossSum, weightSum float64, err error) {
			g.Flat[0] = 1e6
			for i, x := range p.Flat[1:] {
				d := float64(x) - to[i+1]
				lossSum += weight * d * d / 2
				g.Flat[i+1] = float32(weight * d)
			}
			return lossSum, weight, nil
		})
	}
	if err != nil && !errors.Is(err, optim.ErrConverged) {
		t.Fatal(err)
	}
	for i, x := range p.Flat {
		want := to[i] / (1 + l2*[]float64{0, 1, 1, 2}[i])
		if !(math.Abs(float64(x)-want) <= 1e-5) {
			t.Errorf("cell %d is %v, want %v", i, x, want)
		}
	}
}

// TestLBFGSColumnsOfAnySize: the first step tried is of length 1, whatever the parameters' size. Where a column has times in seconds, 1.7e9, the
// lowest loss is 1e9 times nearer, which the search did not get to by halves: it said that it had converged, before the first update.
func TestLBFGSColumnsOfAnySize(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{1}})
	for size := 1.; size < 1e19; size *= 10 {
		o, err := optim.NewLBFGS(trivium.OptimizerSpec{Name: "lbfgs"}, l, nil)
		if err != nil {
			t.Fatal(err)
		}
		p := trivium.NewParams(l)
		line := func(p trivium.Params, g trivium.Gradient) (float64, float64, error) { // (size·w - 1)² / 2
			d := size*float64(p.Flat[0]) - 1
			g.Flat[0] = float32(d * size)
			return d * d / 2, 1, nil
		}
		evaluations := 0
		for range 4 {
			var n int
			_, n, err = o.Step(p, line)
			if evaluations += n; err != nil && !errors.Is(err, optim.ErrConverged) {
				t.Fatalf("size %g: %v", size, err)
			}
		}
		if got := size * float64(p.Flat[0]); !(math.Abs(got-1) <= 1e-5) {
			t.Errorf("size %g: %v of the way after %d evaluations, and %v", size, got, evaluations, err)
		}
	}
}

// TestSameBitsLBFGS: no step of it depends on whether the processor rounds a product before it is added (arm64 does not, unless told to).
// The sums are those that amd64 made. CI runs it on both.
func TestSameBitsLBFGS(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{6}, Decay: 1})
	o, err := optim.NewLBFGS(trivium.OptimizerSpec{Name: "lbfgs", L2: 0.0137, Params: map[string]float64{"history": 4}}, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := trivium.NewParams(l)
	for i := range p.Flat {
		p.Flat[i] = -1.3 + 0.7*float32(i%2)
	}
	sum := crc32.NewIEEE()
	all := 0
	for err == nil {
		var loss float64
		var n int
		loss, n, err = o.Step(p, func(p trivium.Params, g trivium.Gradient) (float64, float64, error) {
			var loss float64
			for i := 0; i < len(p.Flat); i += 2 {
				x, y := float64(p.Flat[i]), float64(p.Flat[i+1])
				a, b := y-float64(x*x), 1-x
				loss += float64(100*float64(a*a)) + float64(b*b)
				g.Flat[i], g.Flat[i+1] = float32(float64(-400*a*x)-float64(2*b)), float32(200*a)
			}
			return loss, 1, nil
		})
		all += n
		for _, v := range []any{loss, int64(n), p.Flat} {
			if err := binary.Write(sum, binary.LittleEndian, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !errors.Is(err, optim.ErrConverged) || sum.Sum32() != 0xcb85d056 || all != 81 {
		t.Errorf("%v after %d evaluations, with the sum %#x; want 81 and 0xcb85d056", err, all, sum.Sum32())
	}
}

// TestLBFGSWolfe: a search along one cell ends where the strong Wolfe conditions hold, also where these leave little room, so that the bracket
// turns round on its way.
func TestLBFGSWolfe(t *testing.T) {
	const c1, c2, seed = 1e-4, 1e-3, 5
	r := rand.New(rand.NewPCG(seed, 1))
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{1}})
	spec := trivium.OptimizerSpec{Name: "lbfgs", Params: map[string]float64{"c1": c1, "c2": c2, "evaluations": 40}}
	for range 200 {
		at, left, right := 5+20*r.Float64(), 0.05+r.Float64(), 0.05+r.Float64()
		f := func(p trivium.Params, g trivium.Gradient) (lossSum, weightSum float64, err error) { // steeper on one side of its minimum
			x := float64(p.Flat[0]) - at
			g.Flat[0] = float32(left*math.Exp(left*x) - right*math.Exp(-right*x))
			return math.Exp(left*x) + math.Exp(-right*x), 1, nil
		}
		o, err := optim.NewLBFGS(spec, l, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, g := trivium.NewParams(l), trivium.NewGradient(l)
		before, _, _ := f(p, g)
		slope := float64(g.Flat[0])
		if _, n, err := o.Step(p, f); err != nil || n > 20 {
			t.Errorf("seed %d, minimum near %v: %d evaluations, %v", seed, at, n, err)
		}
		after, _, _ := f(p, g)
		if went := float64(p.Flat[0]) * slope; !(after <= before+c1*went) || !(math.Abs(float64(g.Flat[0])) <= c2*math.Abs(slope)) {
			t.Errorf("seed %d, minimum near %v: from loss %v, slope %v to %v at loss %v, slope %v", seed, at, before, slope, p.Flat[0], after, g.Flat[0])
		}
	}
}
