package server

import (
	"math"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/optim"
)

// filled returns the memory of a row at a server, whose cells are p, as rank 0 fills it: of a run that begins, or, from what was told after
// so many updates, of one that goes on. step makes a step of it.
func filled(k *keeper, l *trivium.Layout, p []float32, from *told, updates int) (slots [][]float32, step func(g, u []float32)) {
	x := k.updaters()[fresh]
	if from != nil {
		x = k.updaters()[resumed]
	}
	for range x.Slots() {
		slots = append(slots, make([]float32, len(p)))
	}
	n := int64(0)
	step = func(g, u []float32) {
		n++
		x.Apply(n, l, 0, p, g, u, slots)
	}
	number := func(v int) []float32 { return slices.Repeat([]float32{math.Float32frombits(uint32(v))}, len(p)) }
	rounds := [][]float32{number(0), p}
	if from != nil {
		rounds = append(append(rounds, number(updates)), from.slots...)
	}
	for _, g := range rounds {
		step(g, make([]float32, len(p)))
	}
	return slots, step
}

// TestSumsAreNeutral: a checkpoint has the squares that one optimizer has, also where a server steps with each of n workers' gradients and so
// sums up n times as many. Such a server goes on with n times those of a checkpoint: as many as it had, and steps as long as one optimizer's.
func TestSumsAreNeutral(t *testing.T) {
	const cells, n, updates = 8, 3, 40
	layout := func(name string) *trivium.Layout {
		l, err := trivium.NewLayout(trivium.Spec{Name: name, Shape: []int{cells}, Rate: 1, Decay: 1})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	dense, row := layout("x"), layout(rowPrefix+"x")
	p, g, u := make([]float32, cells), make([]float32, cells), make([]float32, cells)
	for i := range g { // the same from every worker, and few bits: sums of squares are exact
		g[i] = float32(i+1) / 8
	}
	for _, name := range []string{"adagrad", "rmsprop", "adam"} {
		job := &trivium.Job{Optimizer: trivium.OptimizerSpec{Name: name, Rate: 0.01}, Batch: trivium.FullBatch}
		open := func(apart bool, workers int) *keeper {
			k, err := newKeeper(job, nil, apart, workers)
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		at := slices.Index(optim.NamesOf(open(true, 1).rule), "squares")
		tell := func(k *keeper) (all told) {
			err := eachState(k.appendState(nil), func(x told) error {
				for i, v := range x.slots {
					x.slots[i] = slices.Clone(v)
				}
				all = x
				return nil
			})
			if err != nil || len(all.slots) <= at || at < 0 {
				t.Fatalf("%s: %d state vectors, squares at %d: %v", name, len(all.slots), at, err)
			}
			return all
		}
		// trained has made so many steps; it returns what the server has, and what it tells.
		trained := func(k *keeper, l *trivium.Layout, steps int) (own []float32, said told, step func(g, u []float32)) {
			slots, step := filled(k, l, p, nil, 0)
			for range steps {
				step(g, u)
			}
			return slots[1+at], tell(k), step
		}
		same := func(what string, got, want []float32, within float64) {
			t.Helper()
			for i, x := range want {
				if !(x > 0) || !(math.Abs(float64(got[i]/x)-1) <= within) {
					t.Errorf("%s: %s: the squares of cell %d are %v, want %v", name, what, i, got[i], x)
				}
			}
		}
		_, one, stepOne := trained(open(true, 1), dense, updates)
		before, many, _ := trained(open(true, n), dense, n*updates)
		same("saved", many.slots[at], one.slots[at], 0.01)

		summed, going := float32(1), open(true, n)
		if name == "adagrad" { // and no products: it is that of the mean, however many workers touch the row
			summed = n * n
		}
		after, stepMany := filled(going, dense, p, &one, updates)
		had := slices.Clone(one.slots[at])
		for i := range had {
			had[i] *= summed
		}
		same("of one optimizer, at a server", after[1+at], had, 1e-6)
		same("of one optimizer, at a server and saved again", tell(going).slots[at], one.slots[at], 1e-6)
		if name != "adagrad" {
			continue
		}

		again := open(true, n)
		after, _ = filled(again, dense, p, &many, updates)
		for i := range before { // a gradient's square and its product with the next are the same here
			before[i] *= n
		}
		same("of a server, at a server", after[1+at], before, 1e-6)
		same("of a server, at a server and saved again", tell(again).slots[at], many.slots[at], 1e-6)
		_, saved, _ := trained(open(true, n), row, n*updates)
		same("saved of a row-sparse tensor", saved.slots[at], one.slots[at], 0.01)
		again = open(true, n)
		filled(again, row, p, &saved, updates)
		same("of a server's row-sparse tensor, at a server and saved again", tell(again).slots[at], saved.slots[at], 1e-6)

		own, exact, _ := trained(open(false, n), dense, updates)
		after, _ = filled(open(false, n), dense, p, &exact, updates)
		if !slices.Equal(exact.slots[at], own) || !slices.Equal(after[1+at], own) {
			t.Errorf("bsp: the server has squares of %v, tells %v, and goes on with %v", own, exact.slots[at], after[1+at])
		}

		_, stepAlone := filled(open(false, n), dense, p, &many, updates)
		length := func(steps int, step func(g, u []float32)) (sum float64) {
			for range steps {
				step(g, u)
				for _, x := range u {
					sum += float64(x)
				}
			}
			return sum
		}
		want := length(1, stepOne)
		moves := map[string]float64{"from one optimizer to a server": length(n, stepMany), "from a server to bsp": length(1, stepAlone)}
		for what, got := range moves {
			if !(math.Abs(got/want-1) < 0.05) {
				t.Errorf("%s: the first update moves %v, one optimizer's next %v", what, got, want)
			}
		}
	}
}
