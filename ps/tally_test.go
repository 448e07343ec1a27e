package ps

import (
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium"
)

// tally is an updater whose cells and whose state both sum up what it is given: in whatever order rounds come, a snapshot has of both what the
// rounds below its clock come to.
type tally struct{}

func (tally) Slots() int        { return 1 }
func (tally) Elementwise() bool { return true }

func (tally) Apply(_ int64, _ *trivium.Layout, _ int, _, g, u []float32, slots [][]float32) {
	for i, x := range g {
		slots[0][i] += x
		u[i] = x
	}
}

// gatheredTally is one that steps rows together.
type gatheredTally struct{ tally }

func (gatheredTally) Gathers() bool  { return true }
func (gatheredTally) Counting() bool { return true }

func (t gatheredTally) ApplyRows(steps []uint32, l *trivium.Layout, p, g, u []float32, slots [][]float32) {
	if !slices.IsSorted(steps) || steps[0] < 1 || l.Len() < len(p) {
		panic(fmt.Sprint("steps ", steps, " of ", len(p), " cells, of ", l.Len()))
	}
	t.Apply(int64(steps[0]), l, 0, p, g, u, slots)
}

func tallies() map[string]trivium.Optimizer {
	return map[string]trivium.Optimizer{"tally": tally{}, "gathered": gatheredTally{}}
}

// tallied checks what a snapshot has of an updater's tables, of which rounds from clock c on are no part: cells, state, and the steps of each row; of
// a sparse one that is split, of each block, if the placement cuts it as the one under which it was stepped.
func (m *mixture) tallied(store *memory, man *Manifest, c Clock, same bool) error {
	p := m.j.p.withDefaults()
	for i := range m.specs {
		s := &m.specs[i]
		there := false
		for k := range man.Tables {
			there = there || man.Tables[k].Name == s.Name
		}
		if s.Optimizer == "" || !there {
			continue
		}
		cut := newCut(s, &p)
		err := ReadTable(bg, store, man, s.Name, func(x Saved[float32]) error {
			for k, cell := range x.Cells {
				row, col := x.Row, x.From+int64(k)
				switch {
				case s.Sparse:
					col = x.Cols[k]
				case x.Rows > 1:
					row, col = x.Row+int64(k)/s.Cols, int64(k)%s.Cols
				}
				want := m.workers[int(col)%len(m.workers)].below(mixedCell{i, row, col}, c)
				if float64(cell) != s.Init.A+want || float64(x.Slots[0][k]) != want {
					return fmt.Errorf("row %d, column %d is %v with state %v, want %v more than %v", row, col, cell, x.Slots[0][k], want, s.Init.A)
				}
			}
			from, to := int64(0), s.Cols
			if s.Sparse && !cut.wholeRows() {
				if !same || len(x.Cells) == 0 {
					return nil
				}
				_, from, to = cut.segment(x.Row, x.Cols[0])
			}
			if len(x.Steps) != x.Rows {
				return fmt.Errorf("%d rows from %d on have %d numbers of steps", x.Rows, x.Row, len(x.Steps))
			}
			for k, steps := range x.Steps {
				if row := x.Row + int64(k); steps != m.stepsOf(i, row, from, to, c) {
					return fmt.Errorf("row %d, columns %d to %d, was stepped %d times, want %d", row, from, to, steps, m.stepsOf(i, row, from, to, c))
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s, %d × %d, sparse %v, %s, snapshot at %d: %w", modeName(*s), s.Rows, s.Cols, s.Sparse, s.partition(), c, err)
		}
	}
	return nil
}

// stepsOf is how often columns of a row are stepped in rounds below c: once for each that a client adds to any of them, under BSP for all clients
// together.
func (m *mixture) stepsOf(table int, row, from, to int64, c Clock) uint32 {
	type round struct {
		client int
		stamp  Clock
	}
	rounds := map[round]bool{}
	for _, w := range m.workers {
		for cell, sums := range w.sums {
			if cell.table != table || cell.row != row || cell.col < from || cell.col >= to {
				continue
			}
			for _, x := range sums {
				if x.stamp < c {
					r := round{w.client, x.stamp}
					if m.specs[table].Mode == BSP {
						r.client = 0
					}
					rounds[r] = true
				}
			}
		}
	}
	return uint32(len(rounds))
}
