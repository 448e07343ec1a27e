package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/ps"
)

// loads is the number of rounds that filled the tables: the steps that a server's optimizer counts before the first.
func (w *worker) loads() int { return loads(w.env.Resume != nil, w.rule.Slots()) }

// restore reads a snapshot into flat and, where the servers have the optimizer, its state into to, so many updates after this run began.
func (w *worker) restore(ctx context.Context, m *ps.Manifest, flat []float32, to *filling, updates int64) error {
	state, workers := w.o.OptimizerAt == AtServer, busy(w.job.Batch, w.env.Workers()) // as the servers count them
	part, products := newPart(w.job, w.rule), w.products()
	err := w.tables.restore(ctx, w.cluster, m, flat, to, w.rowsWere, state, w.loads(), func(row bool, steps int64, x ps.Saved[float32]) int64 {
		most, by := max(1, updates)*int64(workers), float64(workers)
		if row {
			by = together(float64(steps)/float64(most), workers)
		}
		if n := w.rule.Slots(); products && len(x.Slots) >= n+2 { // as updater.kept has them
			part.neutral(x.Slots[part.squares], x.Slots[n+1], workers, by)
		}
		if w.o.Mode == ps.BSP {
			return steps
		}
		return updatesOf(steps, most, workers)
	})
	if err == nil {
		w.settleState(flat, to)
	}
	return err
}

// products reports whether the servers keep products of gradients, as their keepers do.
func (w *worker) products() bool {
	part := newPart(w.job, w.rule)
	return w.o.OptimizerAt == AtServer && w.o.Mode != ps.BSP && busy(w.job.Batch, w.env.Workers()) > 1 && part.squares >= 0
}

// settleState makes to, what servers keep for the parameters flat, say where they are, if it is FTRL's: see proximal.
func (w *worker) settleState(flat []float32, to *filling) {
	if part := newPart(w.job, w.rule); part.ftrl != nil && w.products() {
		part.settle(w.run.Layout(), flat, to.slots[0], to.slots[part.squares])
	}
}

// restore reads a snapshot into flat and, if state, its optimizer's into to. mean is given each segment before,
// with the steps that the servers made there, and returns how many updates these are; were are those of each row before this run. What to
// has does not matter, so that a read which a link broke off can be repeated.
func (t *tables) restore(
	ctx context.Context, s ps.Store, m *ps.Manifest, flat []float32, to *filling, were [][]uint32, state bool, loads int,
	mean func(row bool, steps int64, x ps.Saved[float32]) int64,
) error {
	put := func(base int, x ps.Saved[float32]) {
		copy(flat[base:], x.Cells)
		for k := range to.slots {
			if state && k < len(x.Slots) {
				copy(to.slots[k][base:base+len(x.Cells)], x.Slots[k])
			}
		}
	}
	for _, x := range t.sparse {
		err := ps.ReadTable(ctx, s, m, x.name, func(v ps.Saved[float32]) error {
			if v.Row < 0 || int(v.Row) >= x.rows || int(v.From)+len(v.Cells) > x.cols {
				return fmt.Errorf("server: the snapshot's table %q has a row %d", x.name, v.Row)
			}
			updates := mean(true, max(0, int64(v.Steps)-int64(loads)), v)
			put(x.from+int(v.Row)*x.cols+int(v.From), v)
			if counts := to.rowSteps; state && counts[x.tensor] != nil && v.From == 0 {
				counts[x.tensor][v.Row] = were[x.tensor][v.Row] + uint32(updates)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if t.cols == 0 {
		return nil
	}
	return ps.ReadTable(ctx, s, m, denseTable, func(v ps.Saved[float32]) error {
		at := int(v.From)
		if at+len(v.Cells) > t.cols {
			return errors.New("server: the snapshot's model is longer than the model")
		}
		mean(false, 0, v)
		for _, r := range t.runs { // cells of the row, run by run
			n := r[1] - r[0]
			if at >= n {
				at -= n
				continue
			}
			if len(v.Cells) == 0 {
				break
			}
			k := min(n-at, len(v.Cells))
			part := ps.Saved[float32]{Cells: v.Cells[:k]}
			for _, s := range v.Slots {
				part.Slots = append(part.Slots, s[:k])
			}
			put(r[0]+at, part)
			v.Cells, at = v.Cells[k:], 0
			for i := range v.Slots {
				v.Slots[i] = v.Slots[i][k:]
			}
		}
		return nil
	})
}

// restore reads a snapshot into the tensors that are tables.
func (p *modelProgram) restore(ctx context.Context, s ps.Store, m *ps.Manifest, params trivium.Params) error {
	for i := range p.tensors {
		x := &p.tensors[i]
		if err := x.cells.restore(ctx, s, m, x.spec.Name, params.Tensor(x.tensor)); err != nil {
			return err
		}
	}
	return nil
}

func (t *tableOf[T]) restore(ctx context.Context, s ps.Store, m *ps.Manifest, name string, cells []float32) error {
	clear(cells)
	return ps.ReadTable(ctx, s, m, name, func(v ps.Saved[T]) error {
		if v.Row < 0 || v.Row >= int64(len(cells)/t.cols) {
			return fmt.Errorf("server: the snapshot's table %q has a row %d", name, v.Row)
		}
		row := cells[int(v.Row)*t.cols : (int(v.Row)+1)*t.cols]
		for i, x := range v.Cells {
			c := int(v.From) + i
			if v.Cols != nil {
				c = int(v.Cols[i])
			}
			if c >= len(row) {
				return fmt.Errorf("server: the snapshot's table %q has a column %d", name, c)
			}
			row[c] = float32(x)
		}
		return nil
	})
}
