package train_test

import (
	"context"
	"math"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/traintest"
)

// oneNaN are the bits of exact mode's NaN, oddNaN those of another.
const oneNaN, oddNaN = 0x7fc00000, 0xffc12345

// A payloads model is the toy, but the first cell of each gradient is a NaN, another one each time, and the second infinite, of changing sign.
type payloads struct {
	*traintest.Toy
	calls uint32
}

// Grad implements trivium.Model.
func (m *payloads) Grad(ctx context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	lossSum, weightSum, err = m.Toy.Grad(ctx, p, b, g, nil)
	m.calls++
	g.Flat[0], g.Flat[1] = math.Float32frombits(oddNaN+m.calls), float32(math.Inf(int(m.calls%2)-1))
	if ready != nil {
		ready(0)
		ready(1)
	}
	return lossSum, weightSum, err
}

// TestExactNaN: in exact mode the NaNs of one process are the one that any number of workers has.
func TestExactNaN(t *testing.T) {
	for _, shards := range []int{1, 2, 5, 16} {
		job := traintest.Job()
		job.Exact, job.Shards, job.Steps = true, shards, 2
		env := traintest.Env(t, 1, true)
		toy := env.Models["toy"]
		env.Models = nn.Models{"toy": func(args string, s trivium.Schema, cpu *tensor.CPU) (trivium.Model, error) {
			m, err := toy(args, s, cpu)
			if err != nil {
				return nil, err
			}
			return &payloads{Toy: m.(*traintest.Toy)}, nil
		}}
		r, err := train.Open(t.Context(), env, job, "test")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		g := train.NewGradient(r.Layout())
		updates := 0
		for _, b := range r.Updates(t.Context()) {
			lossSum, weightSum, err := r.Grad(b, g)
			if err != nil {
				t.Fatal(err)
			}
			updates++
			if bits := math.Float32bits(g.Flat[0]); bits != oneNaN {
				t.Errorf("%d shards, update %d: NaNs add up to %x", shards, updates, bits)
			}
			if bits := math.Float32bits(g.Flat[1]); shards > 1 && bits != oneNaN {
				t.Errorf("%d shards, update %d: infinities add up to %x", shards, updates, bits)
			}
			r.Finish(b.Rows, lossSum, weightSum)
		}
		if updates != 2 {
			t.Errorf("%d shards: %d updates", shards, updates)
		}
	}
}

// TestTreeFinish: every NaN becomes the one, in long tensors by several threads, and of row-sparse ones in the touched rows.
func TestTreeFinish(t *testing.T) {
	pool := tensor.NewPool(2)
	defer pool.Close()
	l := layout(t,
		trivium.Spec{Name: "a", Shape: []int{70, 1001}},
		trivium.Spec{Name: "e", Shape: []int{20, 2}, RowSparse: true},
		trivium.Spec{Name: "b", Shape: []int{3}})
	first, after := l.Range(1)
	for _, cpu := range []*tensor.CPU{nil, {ISA: kernel.Best(), Pool: pool}} {
		g := trivium.NewGradient(l)
		g.Touch(1, []int32{3, 7})
		for i := range g.Flat {
			if g.Flat[i] = float32(i); i%3 == 0 {
				g.Flat[i] = math.Float32frombits(oddNaN)
			}
		}
		train.NewTree(l, cpu).Finish(g)
		for i, x := range g.Flat {
			row := (i - first) / 2
			untouched := i >= first && i < after && row != 3 && row != 7
			want := math.Float32bits(float32(i))
			switch {
			case i%3 == 0 && untouched:
				want = oddNaN
			case i%3 == 0:
				want = oneNaN
			}
			if bits := math.Float32bits(x); bits != want {
				t.Fatalf("cell %d has the bits %x, want %x", i, bits, want)
			}
		}
	}
}
