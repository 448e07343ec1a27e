package server

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A kept is what a checkpoint has of a row, or of all dense tensors: its cells, the optimizer's state, and its updates.
type kept struct {
	p       []float32
	slots   [][]float32
	updates int
}

func (k kept) clone() kept {
	c := kept{p: slices.Clone(k.p), updates: k.updates}
	for _, v := range k.slots {
		c.slots = append(c.slots, slices.Clone(v))
	}
	return c
}

// A touch is a worker's gradient of a row in an update; nil: it has no row there.
type touch []float32

// rowsOf are the rows of TestStateIsNeutral: how probably a worker's gradient has them. The first is of dense tensors.
var rowsOf = []float64{1, 1, 0.5, 0.03}

// drawn draws updates of n workers, by update, worker and row: noisy gradients, each about as large as its noise.
func drawn(seed uint64, updates, n, cells int) (all [][][]touch) {
	random := rand.New(rand.NewPCG(seed, 7))
	for range updates {
		var update [][]touch
		for range n {
			var own []touch
			for _, p := range rowsOf {
				var g touch
				for i := range cells {
					g = append(g, 0.3*float32(i%2*2-1)+0.3*float32(random.NormFloat64()))
				}
				if random.Float64() >= p {
					g = nil
				}
				own = append(own, g)
			}
			update = append(update, own)
		}
		all = append(all, update)
	}
	return all
}

// mean is the gradient of a row over all workers, of whom some have it; nil: none has.
func mean(update [][]touch, row int) (sum touch) {
	for _, own := range update {
		for i, x := range own[row] {
			if sum == nil {
				sum = make(touch, len(own[row]))
			}
			sum[i] += x / float32(len(update))
		}
	}
	return sum
}

// owned makes updates from there with n workers that each have an optimizer of their own, under BSP, and returns what a checkpoint has.
func owned(t *testing.T, job *trivium.Job, from []kept, n int, all [][][]touch) (to []kept) {
	cells := len(from[0].p)
	specs := []trivium.Spec{{Name: "x", Shape: []int{cells}, Rate: 1, Decay: 1}}
	for i := range from[1:] {
		specs = append(specs, trivium.Spec{Name: fmt.Sprint("rows ", i), Shape: []int{1, cells}, Rate: 1, Decay: 1, RowSparse: true})
	}
	l, err := trivium.NewLayout(specs...)
	if err != nil {
		t.Fatal(err)
	}
	p, moved, u := make([]float32, l.Len()), make([]float32, l.Len()), make([]float32, cells)
	table := newTables(l, Options{}, "")
	var rules []*ownRule
	for range n {
		rule, err := optim.New(job.Optimizer, kernel.Best())
		if err != nil {
			t.Fatal(err)
		}
		state, err := optim.NewState(l, rule, nil)
		if err != nil {
			t.Fatal(err)
		}
		were := make([][]uint32, len(from))
		for r, k := range from {
			at, _ := l.Range(r)
			copy(p[at:], k.p)
			for i, v := range k.slots {
				copy(state.Slots()[i][at:], v)
			}
			if c := state.RowSteps()[r]; c != nil {
				c[0], were[r] = uint32(k.updates), []uint32{uint32(k.updates)}
			}
		}
		own, err := newOwnRule(job, rule, kernel.Best(), l, state, were, n)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, own)
	}
	for _, k := range from {
		to = append(to, k.clone())
	}
	for step, update := range all {
		clear(moved)
		for w, own := range update {
			rules[w].rounds++
			for r, g := range own {
				if g == nil {
					continue
				}
				at, _ := l.Range(r)
				copy(u, g)
				if r == 0 {
					rules[w].dense(int64(from[0].updates+step+1), at, p[at:at+cells], u)
				} else {
					rules[w].row(int64(step), r, 0, at, p[at:at+cells], u)
				}
				kernel.AddInto(kernel.Best(), moved[at:at+cells], u)
			}
		}
		kernel.AddInto(kernel.Best(), p, moved)
		for r := range to {
			if mean(update, r) != nil {
				to[r].updates++
			}
		}
	}
	var sums [][]float32
	for w, own := range rules {
		for i, v := range own.slots {
			if i == own.squares {
				own.meanSquares(v, table)
			}
			if w == 0 {
				sums = append(sums, make([]float32, l.Len()))
			}
			for c, x := range v {
				sums[i][c] += x / float32(n)
			}
		}
	}
	if part := rules[0].part; part.ftrl != nil {
		part.settle(l, p, sums[0], sums[part.squares])
	}
	for r := range to {
		at, _ := l.Range(r)
		copy(to[r].p, p[at:])
		for i := range to[r].slots {
			copy(to[r].slots[i], sums[i][at:])
		}
		if rules[0].counts[r] != nil {
			var steps float64
			for _, own := range rules {
				steps += float64(own.counts[r][0]) / float64(n)
			}
			to[r].updates = int(rowUpdates(steps, uint32(from[r].updates), int64(len(all)), n))
		}
	}
	return to
}

// TestStateIsNeutral: where a server steps with each of three workers' gradients, or each worker has an optimizer of its own, what a checkpoint has of every rule's state is what one
// optimizer has that steps with their mean: of dense tensors, and of rows that all workers touch, half of them, or seldom one. Whoever goes on
// from it, whoever made it, moves as far as one optimizer all the way.
func TestStateIsNeutral(t *testing.T) {
	const cells, n, updates, more = 32, 3, 1000, 100
	spec := func(name string) *trivium.Layout {
		l, err := trivium.NewLayout(trivium.Spec{Name: name, Shape: []int{cells}, Rate: 1, Decay: 1})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	layouts := []*trivium.Layout{spec("x")}
	for range rowsOf[1:] {
		layouts = append(layouts, spec(rowPrefix+"x"))
	}
	before, after := drawn(1, updates, n, cells), drawn(2, more, n, cells)
	for _, o := range []trivium.OptimizerSpec{
		{Name: "momentum", Rate: 1e-4, L2: 0.1},
		{Name: "nesterov", Rate: 1e-4},
		{Name: "rmsprop", Rate: 1e-3},
		{Name: "adam", Rate: 1e-3},
		{Name: "adamw", Rate: 1e-3, Decay: 0.1},
		{Name: "adagrad", Rate: 1e-2},
		{Name: "ftrl", Rate: 0.02, L1: 0.2, L2: 0.1},
	} {
		job := &trivium.Job{Optimizer: o, Batch: trivium.FullBatch}
		rule, err := optim.New(o, kernel.Best())
		if err != nil {
			t.Fatal(err)
		}
		begin := func() (all []kept) {
			for range rowsOf {
				k := kept{p: make([]float32, cells)}
				for i := range k.p {
					k.p[i] = float32(i%5-2) / 8
				}
				for range rule.Slots() {
					k.slots = append(k.slots, make([]float32, cells))
				}
				all = append(all, k)
			}
			return all
		}
		u := make([]float32, cells)
		one := func(from []kept, all [][][]touch) (to []kept) {
			for _, k := range from {
				to = append(to, k.clone())
			}
			for _, update := range all {
				for r := range to {
					if g := mean(update, r); g != nil {
						to[r].updates++
						rule.Apply(int64(to[r].updates), layouts[r], 0, to[r].p, g, u, to[r].slots)
						kernel.AddInto(kernel.Best(), to[r].p, u)
					}
				}
			}
			return to
		}
		at := func(workers int) func(from []kept, all [][][]touch) []kept {
			return func(from []kept, all [][][]touch) (to []kept) {
				k, err := newKeeper(job, nil, true, workers)
				if err != nil {
					t.Fatal(err)
				}
				var rows []*row
				for r, x := range from {
					x := x.clone()
					said, had := &told{slots: x.slots}, x.updates
					if had == 0 {
						said = nil
					}
					to, rows = append(to, x), append(rows, filled(k, layouts[r], x.p, said, had))
				}
				push := func(r int, g touch) {
					if g != nil {
						rows[r].step(g, u)
						kernel.AddInto(kernel.Best(), to[r].p, u)
					}
				}
				for _, update := range all {
					if workers == 1 {
						for r := range to {
							push(r, mean(update, r))
						}
						continue
					}
					for _, own := range update {
						for r, g := range own {
							push(r, g)
						}
					}
				}
				for r, own := range rows {
					x := own.tell(t)
					to[r].updates = int(x.steps[0])
					for i, v := range x.slots {
						copy(to[r].slots[i], v)
					}
					if k.part.ftrl != nil && workers > 1 { // as rank 0 does, which has the parameters
						k.part.settle(layouts[r], to[r].p, to[r].slots[0], to[r].slots[1])
					}
				}
				to[0].updates = from[0].updates + len(all)
				return to
			}
		}
		size := func(v, less []float32) (sum float64) {
			for i, x := range v {
				if less != nil {
					x -= less[i]
				}
				sum += math.Abs(float64(x))
			}
			return sum
		}
		near := func(what string, row int, got, want, within float64) {
			t.Helper()
			if r := got / want; !(want > 0) || !(r < within) || !(r > 1/within) {
				t.Errorf("%s: %s, row of %v: %.4g, of one optimizer %.4g: %.2f times as much", o.Name, what, rowsOf[row], got, want, r)
			}
		}
		stays := func(what string, all []kept) {
			t.Helper()
			for r, k := range all {
				if o.Name == "ftrl" { // it says where the parameters are
					k = k.clone()
					rule.Apply(2, layouts[r], 0, k.p, make([]float32, cells), u, k.slots)
					for i, x := range u {
						if !(math.Abs(float64(x)) <= 1e-6*math.Abs(float64(k.p[i]))) {
							t.Errorf("%s, row of %v: z and n put cell %d at %v, and it is at %v", what, rowsOf[r], i, k.p[i]+x, k.p[i])
						}
					}
				}
			}
		}
		ways := map[string]func(from []kept, all [][][]touch) []kept{"one optimizer": one, "three workers": at(n), "one worker": at(1)}
		ways["three workers of their own"] = func(from []kept, all [][][]touch) []kept { return owned(t, job, from, n, all) }
		begun := one(begin(), before)
		want := one(begun, after)
		for first, make1 := range ways {
			mid := make1(begin(), before)
			stays(first, mid)
			for r := range mid {
				for i, v := range mid[r].slots {
					near(fmt.Sprintf("%s, state %d", first, i), r, size(v, nil), size(begun[r].slots[i], nil), 1.25)
				}
			}
			for second, goOn := range ways {
				end := goOn(mid, after)
				stays(first+", then "+second, end)
				for r := range end {
					near(fmt.Sprintf("%s, then %s: way", first, second), r, size(end[r].p, mid[r].p), size(want[r].p, begun[r].p), 1.3)
					for i, v := range end[r].slots {
						near(fmt.Sprintf("%s, then %s: state %d", first, second, i), r, size(v, nil), size(want[r].slots[i], nil), 1.25)
					}
				}
				nothing := goOn(mid, nil)
				for r := range nothing {
					if !slices.Equal(nothing[r].p, mid[r].p) {
						t.Errorf("%s: %s, then nothing at %s, row of %v: the parameters are others", o.Name, first, second, rowsOf[r])
					}
					for i, v := range nothing[r].slots {
						for c, x := range v {
							if was := mid[r].slots[i][c]; !(math.Abs(float64(x-was)) <= 1e-6*math.Abs(float64(was))) {
								t.Errorf("%s: %s, then nothing at %s: state %d of cell %d, row of %v: %v, was %v", o.Name, first, second, i, c, rowsOf[r], x, was)
							}
						}
					}
				}
			}
		}
	}
}

// TestFirstTouch: a row that the first gradient of a run has, and then none, is not taken for one that all have: of it momentum keeps about as much
// as one optimizer does, and not as many times as much as there are workers.
func TestFirstTouch(t *testing.T) {
	const n = 16
	job := &trivium.Job{Optimizer: trivium.OptimizerSpec{Name: "momentum", Rate: 0.01}, Batch: trivium.FullBatch}
	k, err := newKeeper(job, nil, true, n)
	if err != nil {
		t.Fatal(err)
	}
	var rows []*row
	for _, name := range []string{"x", rowPrefix + "x"} {
		l, err := trivium.NewLayout(trivium.Spec{Name: name, Shape: []int{1}, Rate: 1, Decay: 1})
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, filled(k, l, []float32{0}, nil, 0))
	}
	g, u := []float32{1}, make([]float32, 1)
	rows[1].step(g, u)
	for range 10 * n {
		rows[0].step(g, u)
	}
	const want = 1.0 / n // the mean gradient
	if got := rows[1].slots[0][0]; !(got > want/4) || !(got < 4*want) {
		t.Errorf("the velocity of the row is %v, of one optimizer %v", got, want)
	}
}
