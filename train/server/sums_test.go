package server

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/ps"
)

// A row is one at a server, whose cells are p.
type row struct {
	*updater
	l     *trivium.Layout
	p     []float32
	slots [][]float32
	n     uint32 // steps
}

// filled returns a row as rank 0 fills it: of a run that begins, or, from what was told after so many updates, of one that goes on.
func filled(k *keeper, l *trivium.Layout, p []float32, from *told, updates int) *row {
	name := fresh
	if from != nil {
		name = resumed
	}
	r := &row{updater: k.updaters()[name].(*updater), l: l, p: p}
	for range r.Slots() {
		r.slots = append(r.slots, make([]float32, len(p)))
	}
	rounds := [][]float32{p}
	if from != nil {
		number := slices.Repeat([]float32{math.Float32frombits(uint32(updates))}, len(p))
		rounds = append(append(rounds, number), from.slots...)
	}
	for _, g := range rounds {
		r.step(g, make([]float32, len(p)))
	}
	return r
}

func (r *row) step(g, u []float32) {
	r.n++
	r.Apply(int64(r.n), r.l, 0, r.p, g, u, r.slots)
}

// tell returns what the server tells of the row.
func (r *row) tell(t *testing.T) told {
	t.Helper()
	var all []told
	x := ps.Kept{Table: r.l.Spec(0).Name, Optimizer: r, Rows: 1, Cols: len(r.p), Steps: []uint32{r.n}, Slots: r.slots}
	err := eachState(bytes.NewReader(r.appendState(nil, x)), func(x *told) error {
		y := *x
		y.steps, y.slots = slices.Clone(x.steps), slices.Clone(x.slots)
		for i, v := range x.slots {
			y.slots[i] = slices.Clone(v)
		}
		all = append(all, y)
		return nil
	})
	if err != nil || len(all) != 1 || all[0].rows != 1 || all[0].cols != len(r.p) {
		t.Fatalf("%+v: %v", all, err)
	}
	return all[0]
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
	dense, sparse := layout("x"), layout(rowPrefix+"x")
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
		if at < 0 {
			t.Fatalf("%s keeps no squares", name)
		}
		// trained has made so many steps; it returns the row, and what the server tells.
		trained := func(k *keeper, l *trivium.Layout, steps int) (*row, told) {
			r := filled(k, l, p, nil, 0)
			for range steps {
				r.step(g, u)
			}
			return r, r.tell(t)
		}
		same := func(what string, got, want []float32, within float64) {
			t.Helper()
			for i, x := range want {
				if !(x > 0) || !(math.Abs(float64(got[i]/x)-1) <= within) {
					t.Errorf("%s: %s: the squares of cell %d are %v, want %v", name, what, i, got[i], x)
				}
			}
		}
		alone, one := trained(open(true, 1), dense, updates)
		before, many := trained(open(true, n), dense, n*updates)
		same("saved", many.slots[at], one.slots[at], 0.01)

		summed := float32(1)
		if name == "adagrad" { // and no products: it is that of the mean, however many workers touch the row
			summed = n * n
		}
		going := filled(open(true, n), dense, p, &one, updates)
		had := slices.Clone(one.slots[at])
		for i := range had {
			had[i] *= summed
		}
		same("of one optimizer, at a server", going.slots[at], had, 1e-6)
		same("of one optimizer, at a server and saved again", going.tell(t).slots[at], one.slots[at], 1e-6)
		if name != "adagrad" {
			continue
		}

		again := filled(open(true, n), dense, p, &many, updates)
		summedUp := slices.Clone(before.slots[at])
		for i := range summedUp { // a gradient's square and its product with the next are the same here
			summedUp[i] *= n
		}
		same("of a server, at a server", again.slots[at], summedUp, 1e-6)
		same("of a server, at a server and saved again", again.tell(t).slots[at], many.slots[at], 1e-6)
		_, saved := trained(open(true, n), sparse, n*updates)
		same("saved of a row-sparse tensor", saved.slots[at], one.slots[at], 0.01)
		again = filled(open(true, n), sparse, p, &saved, updates)
		same("of a server's row-sparse tensor, at a server and saved again", again.tell(t).slots[at], saved.slots[at], 1e-6)

		own, exact := trained(open(false, n), dense, updates)
		after := filled(open(false, n), dense, p, &exact, updates)
		if !slices.Equal(exact.slots[at], own.slots[at]) || !slices.Equal(after.slots[at], own.slots[at]) {
			t.Errorf("bsp: the server has squares of %v, tells %v, and goes on with %v", own.slots[at], exact.slots[at], after.slots[at])
		}

		bsp := filled(open(false, n), dense, p, &many, updates)
		length := func(steps int, r *row) (sum float64) {
			for range steps {
				r.step(g, u)
				for _, x := range u {
					sum += float64(x)
				}
			}
			return sum
		}
		want := length(1, alone)
		moves := map[string]float64{"from one optimizer to a server": length(n, going), "from a server to bsp": length(1, bsp)}
		for what, got := range moves {
			if !(math.Abs(got/want-1) < 0.05) {
				t.Errorf("%s: the first update moves %v, one optimizer's next %v", what, got, want)
			}
		}
	}
}
