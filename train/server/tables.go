package server

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// denseTable is the one long row of all tensors that are not row-sparse.
const denseTable = "model"

// tables are a model's parameters as tables.
type tables struct {
	specs []ps.Spec

	runs    [][2]int // cells of the layout that the dense table has, from and to
	cols    int
	dense   ps.Table[float32]
	scratch []float32 // a row of the dense table, where it is of several runs

	sparse []*rowTensor
	worker *ps.Worker
	anew   bool // each round asks for the rows that it reads: servers send none unasked
}

// A rowTensor is a row-sparse tensor and its table.
type rowTensor struct {
	tensor, from, rows, cols int
	columns                  string // the input whose columns its rows are, as in trivium.Spec
	name                     string
	table                    ps.Table[float32]
	at                       []int32 // the rows that are wanted
	ids                      []int64 // the same
	cells                    []float32
}

// of is the tensor's part of flat.
func (x *rowTensor) of(flat []float32) []float32 { return flat[x.from : x.from+x.rows*x.cols] }

// newTables describes the tables of a layout.
func newTables(l *trivium.Layout, o Options, updater string) *tables {
	t := &tables{anew: o.Mode != ps.ESSP}
	var dense []trivium.Spec
	for i := range l.Tensors() {
		spec := l.Spec(i)
		if spec.Tie != "" {
			continue
		}
		from, to := l.Range(i)
		if from == to {
			continue
		}
		if spec.RowSparse {
			x := &rowTensor{tensor: i, from: from, rows: l.Rows(i), cols: l.Cols(i), columns: spec.Columns, name: rowPrefix + spec.Name}
			t.sparse = append(t.sparse, x)
			cells := trivium.Spec{Name: x.name, Shape: []int{x.cols}, Decay: spec.Decay, Rate: spec.Rate, Buffer: spec.Buffer}
			t.specs = append(t.specs, ps.Spec{
				Name: x.name, Rows: int64(x.rows), Cols: int64(x.cols), Mode: o.Mode, Staleness: o.Staleness, Optimizer: updater,
				Tensors: []trivium.Spec{cells},
			})
			continue
		}
		spec.RowSparse = false
		dense = append(dense, spec)
		t.cols += to - from
		if n := len(t.runs); n > 0 && t.runs[n-1][1] == from {
			t.runs[n-1][1] = to
		} else {
			t.runs = append(t.runs, [2]int{from, to})
		}
	}
	if t.cols > 0 {
		t.specs = append(t.specs, ps.Spec{
			Name: denseTable, Rows: 1, Cols: int64(t.cols), Mode: o.Mode, Staleness: o.Staleness, Optimizer: updater, Tensors: dense,
		})
	}
	if len(t.runs) > 1 {
		t.scratch = make([]float32, t.cols)
	}
	return t
}

// size is how many cells they have.
func (t *tables) size() int {
	n := t.cols
	for _, x := range t.sparse {
		n += x.rows * x.cols
	}
	return n
}

// open takes the tables of a worker.
func (t *tables) open(w *ps.Worker) (err error) {
	t.worker = w
	if t.cols > 0 {
		if t.dense, err = ps.TableOf[float32](w, denseTable); err != nil {
			return err
		}
	}
	for _, x := range t.sparse {
		if x.table, err = ps.TableOf[float32](w, x.name); err != nil {
			return err
		}
	}
	return nil
}

// getDense reads the dense tensors into flat.
func (t *tables) getDense(ctx context.Context, flat []float32) error {
	switch len(t.runs) {
	case 0:
		return nil
	case 1:
		_, err := t.dense.Get(ctx, 0, flat[t.runs[0][0]:t.runs[0][1]])
		return err
	}
	if _, err := t.dense.Get(ctx, 0, t.scratch); err != nil {
		return err
	}
	at := 0
	for _, r := range t.runs {
		at += copy(flat[r[0]:r[1]], t.scratch[at:])
	}
	return nil
}

// rowsAtOnce is how many rows of a table are asked for at a time where all are.
const rowsAtOnce = 1 << 14

// want names rows to be read, or added to. They stay the caller's, who does not change them before that.
func (x *rowTensor) want(rows []int32) {
	x.at = rows
	x.ids = slices.Grow(x.ids[:0], len(rows))[:len(rows)]
	for i, r := range rows {
		x.ids[i] = int64(r)
	}
	x.cells = slices.Grow(x.cells[:0], len(rows)*x.cols)[:len(rows)*x.cols]
}

// get reads the rows that tensors want into flat: past the cache, of which most batches have few rows, unless servers keep it up to date.
func (t *tables) get(ctx context.Context, of []*rowTensor, flat []float32) error {
	if len(of) == 0 {
		return nil
	}
	if t.anew {
		reads := make([]ps.Read, len(of))
		for i, x := range of {
			reads[i] = x.table.Into(x.ids, x.cells)
		}
		if _, err := t.worker.Pull(ctx, reads...); err != nil {
			return err
		}
	} else {
		for _, x := range of {
			if _, err := x.table.GetRows(ctx, x.ids, x.cells); err != nil {
				return err
			}
		}
	}
	for _, x := range of {
		kernel.ScatterRows(x.of(flat), x.cells, x.at, x.cols)
	}
	return nil
}

// getRows reads all rows of a tensor into flat.
func (t *tables) getRows(ctx context.Context, x *rowTensor, flat []float32) error {
	for at := 0; at < x.rows; at += rowsAtOnce {
		x.want(x.run(at, rowsAtOnce))
		if err := t.get(ctx, []*rowTensor{x}, flat); err != nil {
			return err
		}
	}
	return nil
}

// getAll reads the whole model.
func (t *tables) getAll(ctx context.Context, flat []float32) error {
	for _, x := range t.sparse {
		if err := t.getRows(ctx, x, flat); err != nil {
			return err
		}
	}
	return t.getDense(ctx, flat)
}

// inc adds the cells of v, the tensors' layout, of row-sparse tensors those of rows (nil: all), as part number part of the round.
func (t *tables) inc(part int, v []float32, rows [][]int32) error {
	switch len(t.runs) {
	case 0:
	case 1:
		if err := t.dense.IncPart(part, 0, 0, v[t.runs[0][0]:t.runs[0][1]]); err != nil {
			return err
		}
	default:
		at := 0
		for _, r := range t.runs {
			at += copy(t.scratch[at:], v[r[0]:r[1]])
		}
		if err := t.dense.IncPart(part, 0, 0, t.scratch); err != nil {
			return err
		}
	}
	for _, x := range t.sparse {
		if rows == nil {
			for at := 0; at < x.rows; at += rowsAtOnce {
				if err := x.inc(part, v, x.run(at, rowsAtOnce)); err != nil {
					return err
				}
			}
		} else if err := x.inc(part, v, rows[x.tensor]); err != nil {
			return err
		}
	}
	return nil
}

// inc adds the cells of rows in v.
func (x *rowTensor) inc(part int, v []float32, rows []int32) error {
	x.want(rows)
	kernel.GatherRows(x.cells, x.of(v), rows, x.cols)
	return x.table.IncRows(part, x.ids, x.cells)
}

// run returns the rows from `at` on, at most so many.
func (x *rowTensor) run(at, most int) []int32 {
	rows := make([]int32, min(most, x.rows-at))
	for i := range rows {
		rows[i] = int32(at + i)
	}
	return rows
}

// fill is what rank 0 adds in the rounds that fill the tables, by round: see roundValue. state is of a run that goes on, else nil.
func (t *tables) fill(round int, params []float32, step int64, state *filling, v []float32) {
	switch round {
	case roundValue:
		copy(v, params)
	case roundSteps:
		for i := range v {
			v[i] = math.Float32frombits(uint32(step))
		}
		for _, x := range t.sparse {
			counts := state.rowSteps[x.tensor]
			for r := range x.rows {
				n := uint32(0)
				if counts != nil {
					n = counts[r]
				}
				row := v[x.from+r*x.cols : x.from+(r+1)*x.cols]
				for i := range row {
					row[i] = math.Float32frombits(n)
				}
			}
		}
	default:
		copy(v, state.slots[round-roundSlots])
	}
}

// A filling is an optimizer's state.
type filling struct {
	slots    [][]float32
	rowSteps [][]uint32
}

// newFilling returns room for that of an optimizer.
func newFilling(o *optim.State) *filling {
	f := &filling{}
	for _, v := range o.Slots() {
		f.slots = append(f.slots, make([]float32, len(v)))
	}
	for _, v := range o.RowSteps() {
		f.rowSteps = append(f.rowSteps, slices.Clone(v))
	}
	return f
}

// take puts what a server tells where it belongs.
func (t *tables) take(s *told, to *filling) error {
	for _, x := range t.sparse {
		if x.name != s.table {
			continue
		}
		whole := s.from == 0 && s.cols == x.cols
		if int(s.row) > x.rows-s.rows || s.from > x.cols-s.cols || s.rows > 1 && !whole || len(s.slots) != len(to.slots) {
			return s.alien()
		}
		if counts := to.rowSteps[x.tensor]; counts != nil {
			copy(counts[s.row:], s.steps)
		}
		for k, v := range s.slots {
			copy(to.slots[k][x.from+int(s.row)*x.cols+s.from:], v)
		}
		return nil
	}
	if s.rows != 1 || s.from > t.cols-s.cols || len(s.slots) != len(to.slots) {
		return s.alien()
	}
	for k, v := range s.slots {
		at := s.from
		for _, r := range t.runs {
			n := r[1] - r[0]
			if at < n && len(v) > 0 {
				m := copy(to.slots[k][r[0]+at:r[1]], v)
				v, at = v[m:], 0
				continue
			}
			at -= n
		}
	}
	return nil
}

func (s *told) alien() error {
	return fmt.Errorf("server: state of %q, %d rows from %d on, columns %d to %d, in %d vectors: this model has no such cells",
		s.table, s.rows, s.row, s.from, s.from+s.cols-1, len(s.slots))
}
