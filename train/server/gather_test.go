package server

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// TestRowsStepTogether: rows that a server steps at once, in the order of how often each was, have the bits of rows that it steps one by one: under
// rules that count steps and such that do not, each worker's round a step of its own or not, in a run that begins and in one that goes on.
func TestRowsStepTogether(t *testing.T) {
	const rows, cols, workers = 60, 3, 3
	one, err := trivium.NewLayout(trivium.Spec{Name: rowPrefix + "x", Shape: []int{cols}, Rate: 1, Decay: 1})
	if err != nil {
		t.Fatal(err)
	}
	all, err := trivium.NewLayout(trivium.Spec{Name: rowPrefix + "x", Shape: []int{rows * cols}, Rate: 1, Decay: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []trivium.OptimizerSpec{
		{Name: "sgd"},
		{Name: "sgd", Schedule: "linear:40"},
		{Name: "momentum"},
		{Name: "adagrad", L2: 0.1},
		{Name: "rmsprop"},
		{Name: "adam"},
		{Name: "ftrl", L1: 0.01},
	} {
		o.Rate = 0.05
		job := &trivium.Job{Optimizer: o, Batch: 100}
		for _, apart := range []bool{false, true} {
			for _, going := range []bool{false, true} {
				open := func() *updater {
					k, err := newKeeper(job, nil, apart, workers)
					if err != nil {
						t.Fatal(err)
					}
					if going {
						return k.updaters()[resumed].(*updater)
					}
					return k.updaters()[fresh].(*updater)
				}
				a, b := open(), open()
				var each []*row // stepped one by one
				cells := make([]float32, rows*cols)
				slots := make([][]float32, b.Slots())
				for s := range slots {
					slots[s] = make([]float32, rows*cols)
				}
				steps := make([]uint32, rows)
				u := make([]float32, rows*cols)
				for range rows {
					x := &row{updater: a, l: one, p: make([]float32, cols)}
					for range slots {
						x.slots = append(x.slots, make([]float32, cols))
					}
					each = append(each, x)
				}
				round := func(n uint64, which []int, value func(row, col int) float32) {
					p, g := make([]float32, len(which)*cols), make([]float32, len(which)*cols)
					views, numbers := make([][]float32, len(slots)), []uint32(nil)
					for s := range slots {
						views[s] = make([]float32, len(g))
					}
					list := make([]int32, len(which))
					for i, r := range which {
						list[i] = int32(r)
						steps[r]++
						numbers = append(numbers, steps[r])
						for c := range cols {
							g[i*cols+c] = value(r, c)
						}
					}
					for i, r := range slices.Backward(which) { // the most frequent first: how often the others are follows from it
						x := each[r]
						x.step(slices.Clone(g[i*cols:(i+1)*cols]), u[:cols])
						kernel.AddInto(kernel.Best(), x.p, u[:cols])
					}
					kernel.GatherRows(p, cells, list, cols)
					for s := range slots {
						kernel.GatherRows(views[s], slots[s], list, cols)
					}
					b.ApplyRows(numbers, all, p, g, g, views)
					kernel.AddInto(kernel.Best(), p, g)
					kernel.ScatterRows(cells, p, list, cols)
					for s := range slots {
						kernel.ScatterRows(slots[s], views[s], list, cols)
					}
					for i, r := range which {
						same := func(x, y []float32) bool {
							return slices.EqualFunc(x, y, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
						}
						ok := same(each[r].p, p[i*cols:(i+1)*cols])
						for s := range slots {
							ok = ok && same(each[r].slots[s], views[s][i*cols:(i+1)*cols])
						}
						if !ok {
							t.Fatalf("%+v, apart %v, going %v: round %d: row %d, step %d: %v and %v", o, apart, going, n, r, steps[r], each[r].p, p[i*cols:(i+1)*cols])
						}
					}
				}
				every := make([]int, rows)
				for r := range every {
					every[r] = r
				}
				for n := range b.loads {
					round(uint64(n), every, func(r, c int) float32 {
						switch n + 1 {
						case roundValue:
							return 0
						case roundSteps:
							return math.Float32frombits(uint32(r % 4))
						}
						x := 0.01 * draw.Unit(1, uint64(n), uint64(r*cols+c))
						return max(x, -x)
					})
				}
				for n := range uint64(260) {
					var which []int
					for r := range rows { // row r is there in every (r/2+1)th, about; half of them so late that a first step is about as frequent as a second
						if draw.Below(n, 7, uint64(r), uint64(r%30)/2+1) == 0 && (r < rows/2 || n > 210) {
							which = append(which, r)
						}
					}
					slices.SortStableFunc(which, func(x, y int) int { return cmp.Compare(steps[x], steps[y]) })
					round(n, which, func(r, c int) float32 { return float32(draw.Normal(3, n, uint64(r*cols+c))) })
				}
			}
		}
	}
}
