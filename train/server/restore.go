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
	part, products, n, loads := newPart(w.job, w.rule), w.products(), w.rule.Slots(), uint32(w.loads())
	one := merger{&part, w.o.Mode != ps.BSP, workers, max(1, updates) * int64(workers)}
	err := w.tables.restore(ctx, w.cluster, m, flat, to, w.rowsWere, state, func(row bool, x ps.Saved[float32]) {
		for i, k := range x.Steps {
			x.Steps[i] = k - min(k, loads)
		}
		var squares, product []float32
		if products && len(x.Slots) >= n+2 { // as updater.kept has them
			squares, product = x.Slots[part.squares], x.Slots[n+1]
		}
		one.merge(row, x.Steps, squares, product)
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

// restore reads a snapshot into flat and, if state, its optimizer's into to. one is given what is read of rows, or of the dense tensors, before, and
// makes its state that of one optimizer, and its steps the updates that they are; were are those of each row before this run. What to has does not
// matter, so that a read which a link broke off can be repeated.
func (t *tables) restore(
	ctx context.Context, s ps.Store, m *ps.Manifest, flat []float32, to *filling, were [][]uint32, state bool, one func(row bool, x ps.Saved[float32]),
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
			end := int(v.From) + len(v.Cells)
			if v.Row < 0 || v.Row > int64(x.rows-v.Rows) || end > v.Rows*x.cols || v.Rows > 1 && end < v.Rows*x.cols {
				return fmt.Errorf("server: the snapshot's table %q has %d cells of rows %d to %d", x.name, len(v.Cells), v.Row, v.Row+int64(v.Rows)-1)
			}
			one(true, v)
			put(x.from+int(v.Row)*x.cols+int(v.From), v)
			if counts := to.rowSteps[x.tensor]; state && counts != nil && v.From == 0 {
				for i, updates := range v.Steps {
					row := int(v.Row) + i
					counts[row] = were[x.tensor][row] + updates
				}
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
		one(false, v)
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
		if v.Row < 0 || v.Row > int64(len(cells)/t.cols-v.Rows) {
			return fmt.Errorf("server: the snapshot's table %q has rows %d to %d", name, v.Row, v.Row+int64(v.Rows)-1)
		}
		row := cells[int(v.Row)*t.cols : (int(v.Row)+v.Rows)*t.cols]
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
