package optim_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// TestRowSparse steps random rows of a row-sparse tensor, and wants the bits of a dense model per row that is stepped as often.
func TestRowSparse(t *testing.T) {
	seed := rand.Uint64()
	for _, cols := range []int{1, 3, 8, 40} {
		t.Run(fmt.Sprintf("cols=%d", cols), func(t *testing.T) { testRowSparse(t, seed, cols) })
	}
}

func testRowSparse(t *testing.T, seed uint64, cols int) {
	t.Helper()
	pool := tensor.NewPool(2)
	defer pool.Close()
	const rows = 2000
	sparse := layout(t, trivium.Spec{Name: "b", Shape: []int{4}}, trivium.Spec{Name: "w", Shape: []int{rows, cols}, Decay: 1, RowSparse: true})
	oneRow := layout(t, trivium.Spec{Name: "w", Shape: []int{1, cols}, Decay: 1})
	for name, spec := range rules() {
		if spec.ClipNorm > 0 {
			continue // has one norm for all rows: below
		}
		r := rand.New(rand.NewPCG(seed, 2))
		opt := rule(t, spec, kernel.Best())
		state, err := optim.NewState(sparse, opt, &tensor.CPU{ISA: kernel.Best(), Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		optim.ForkFrom(state, 0)
		p, g := trivium.NewParams(sparse), trivium.NewGradient(sparse)
		fill(r, p.Flat)
		want := slices.Clone(p.Flat)
		states, times := make([]*optim.State, rows), make([]int64, rows)
		for step := int64(1); step <= 3; step++ {
			var touched []int32
			for i := range rows {
				if r.IntN(3) == 0 || i > 300 && i < 900 {
					touched = append(touched, int32(i))
				}
			}
			fill(r, g.Flat) // rows that are not touched hold anything
			g.Rows[1] = touched
			state.Step(step, p, g, 3)
			for _, i := range touched {
				if states[i] == nil {
					if states[i], err = optim.NewState(oneRow, opt, nil); err != nil {
						t.Fatal(err)
					}
				}
				from := 4 + int(i)*cols
				times[i]++
				states[i].Step(times[i], trivium.Params{Layout: oneRow, Flat: want[from : from+cols]}, trivium.Gradient{Layout: oneRow, Flat: g.Flat[from : from+cols], Rows: make([][]int32, 1)}, 3)
			}
		}
		for i := 4; i < len(want); i++ {
			if math.Float32bits(want[i]) != math.Float32bits(p.Flat[i]) {
				t.Fatalf("seed %d: %s: row %d: %v, want %v", seed, name, (i-4)/cols, p.Flat[i], want[i])
			}
		}
		if counted := state.RowSteps()[1] != nil; counted != (spec.Name == "adam" || spec.Name == "adamw" || spec.Schedule != "") {
			t.Errorf("%s: rows are counted: %v", name, counted)
		}
	}
}

// TestManyRows: more touched rows than one thread takes at once are stepped as parts of them are.
func TestManyRows(t *testing.T) {
	const rows = 10_000
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{rows, 1}, Decay: 1, RowSparse: true})
	for _, name := range []string{"sgd", "adagrad", "adam"} {
		var states [2]*optim.State
		var params [2]trivium.Params
		for i := range states {
			var err error
			if states[i], err = optim.NewState(l, rule(t, trivium.OptimizerSpec{Name: name}, kernel.Best()), nil); err != nil {
				t.Fatal(err)
			}
			params[i] = trivium.NewParams(l)
		}
		g, r := trivium.NewGradient(l), rand.New(rand.NewPCG(1, 4))
		for step := int64(1); step <= 4; step++ {
			fill(r, g.Flat)
			var touched []int32
			for i := range rows {
				if r.IntN(8) > 0 {
					touched = append(touched, int32(i))
				}
			}
			g.Rows[0] = touched
			states[0].Step(step, params[0], g, 3)
			for _, part := range [][]int32{touched[:4000], touched[4000:8000], touched[8000:]} {
				g.Rows[0] = part
				states[1].Step(step, params[1], g, 3)
			}
		}
		if !slices.Equal(params[0].Flat, params[1].Flat) {
			t.Errorf("%s: %d rows at once give other bits than parts of them", name, rows)
		}
	}
}

// BenchmarkStepRows steps 4,000 rows of a million, by a power law in their numbers, as of words or of ids.
func BenchmarkStepRows(b *testing.B) {
	const rows, touched = 1 << 20, 4000
	for _, cols := range []int{1, 8, 32} {
		l := layout(b, trivium.Spec{Name: "w", Shape: []int{rows, cols}, Decay: 1, RowSparse: true})
		for _, name := range []string{"sgd", "adagrad", "adam"} {
			b.Run(fmt.Sprintf("%s/cols=%d", name, cols), func(b *testing.B) {
				cpu := tensor.NewCPU(1, false)
				defer cpu.Close()
				state, err := optim.NewState(l, rule(b, trivium.OptimizerSpec{Name: name, Rate: 1e-6}, cpu.ISA), cpu)
				if err != nil {
					b.Fatal(err)
				}
				p, g := trivium.NewParams(l), trivium.NewGradient(l)
				r := rand.New(rand.NewPCG(1, 1))
				fill(r, p.Flat) // all of it is there
				fill(r, g.Flat)
				for _, v := range state.Slots() {
					fill(r, v)
					for i := range v {
						v[i] *= v[i]
					}
				}
				lists := make([][]int32, 16)
				for i := range lists {
					set := map[int32]bool{}
					for len(set) < touched {
						set[int32(math.Pow(rows, r.Float64()))-1] = true
					}
					lists[i] = slices.Sorted(maps.Keys(set))
				}
				step := int64(0)
				for b.Loop() {
					step++
					g.Rows[0] = lists[step%16]
					state.Step(step, p, g, 100)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/touched, "ns/row")
			})
		}
	}
}
