package optim

import (
	"slices"

	"github.com/trivium-ml/trivium/tensor/kernel"
)

const (
	// chunkRows is the number of touched rows that one thread takes at a time.
	chunkRows = 256

	// gatherShort is the number of cells that neighbours of a run have together, at most, where a Rule steps copies of them among those of other
	// runs: it takes longer to begin with a run than to copy it.
	gatherShort = 64
)

// A gather is copies of rows that lie far apart, which are stepped as one run.
type gather struct {
	rows  []uint64 // those that are to be stepped: the number of the step and, below it, the row
	cells []int    // at which they begin
	p     []float32
	slots [][]float32
}

func newGather(slots int) gather {
	g := gather{rows: make([]uint64, 0, chunkRows), cells: make([]int, chunkRows), p: make([]float32, blockCells)}
	for range slots {
		g.slots = append(g.slots, make([]float32, blockCells))
	}
	return g
}

// stepRows steps some touched rows of the row-sparse tensor at hand: runs of neighbours with as many updates behind them together, and short ones
// with others.
func (s *State) stepRows(chunk, worker int) {
	rows := s.g.Rows[s.tensor]
	rows = rows[chunk*chunkRows : min((chunk+1)*chunkRows, len(rows))]
	first, _ := s.layout.Range(s.tensor)
	cols, steps, spec := s.layout.Cols(s.tensor), s.rowSteps[s.tensor], s.layout.Spec(s.tensor)
	for i := 0; i < len(rows); {
		row, n := int(rows[i]), 1
		for i+n < len(rows) && int(rows[i+n]) == row+n && (n+1)*cols <= blockCells && (steps == nil || steps[row+n] == steps[row]) {
			n++
		}
		i += n
		step := s.step
		if steps != nil {
			step = int64(steps[row]) + 1
			for k := range n {
				steps[row+k]++
			}
		}
		if s.rule != nil && n*cols <= gatherShort {
			s.gather(worker, uint32(step), row, n)
			continue
		}
		var at at
		if s.rule != nil {
			at = s.rule.at(step, &spec)
		}
		for from, to := first+row*cols, first+(row+n)*cols; from < to; from += blockCells {
			s.stepCells(at, step, worker, from, min(from+blockCells, to))
		}
	}
	if s.rule != nil {
		s.stepGathered(worker)
	}
}

// gather notes n rows, of which this is the number of the next step.
func (s *State) gather(worker int, step uint32, row, n int) {
	g := &s.gathers[worker]
	if (len(g.rows)+n)*s.layout.Cols(s.tensor) > blockCells {
		s.stepGathered(worker)
	}
	for k := range n {
		g.rows = append(g.rows, uint64(step)<<32|uint64(row+k))
	}
}

// stepGathered steps the rows that were noted.
func (s *State) stepGathered(worker int) {
	g := &s.gathers[worker]
	if len(g.rows) == 0 {
		return
	}
	first, _ := s.layout.Range(s.tensor)
	cols, spec := s.layout.Cols(s.tensor), s.layout.Spec(s.tensor)
	if s.rowSteps[s.tensor] != nil {
		slices.Sort(g.rows) // those with as many updates behind them together
	}
	n := len(g.rows) * cols
	for i, key := range g.rows {
		g.cells[i] = first + int(uint32(key))*cols
	}
	cells, u, p, slots := g.cells[:len(g.rows)], s.scratch[worker][:n], g.p[:n], s.views[worker]
	collect(u, s.g.Flat, cells, cols)
	collect(p, s.p.Flat, cells, cols)
	for k, v := range s.slots {
		collect(g.slots[k][:n], v, cells, cols)
	}
	kernel.ScaleInto(s.isa, u, u, s.mean)
	s.rule.clip(u, s.scale)
	for i := 0; i < len(g.rows); {
		step, j := g.rows[i]>>32, i+1
		for j < len(g.rows) && g.rows[j]>>32 == step {
			j++
		}
		a, b := i*cols, j*cols
		for k, v := range g.slots {
			slots[k] = v[a:b]
		}
		s.rule.apply(s.rule, s.rule.at(int64(step), &spec), p[a:b], u[a:b], u[a:b], slots)
		i = j
	}
	kernel.AddInto(s.isa, p, u)
	spread(s.p.Flat, p, cells, cols)
	for k, v := range s.slots {
		spread(v, g.slots[k][:n], cells, cols)
	}
	g.rows = g.rows[:0]
}

// collect copies rows of so many cells, of which these are the first ones, to dst, end to end. Rows of one cell, and of eight, are in most models.
func collect(dst, src []float32, cells []int, cols int) {
	switch cols {
	case 1:
		for i, at := range cells {
			dst[i] = src[at]
		}
	case 8:
		for i, at := range cells {
			row := [8]float32(src[at:]) // for itself: else the compiler, who thinks that the two might overlap, calls a function
			*(*[8]float32)(dst[8*i:]) = row
		}
	default:
		for i, at := range cells {
			copy(dst[i*cols:(i+1)*cols], src[at:])
		}
	}
}

// spread copies rows back from where collect has put them.
func spread(dst, src []float32, cells []int, cols int) {
	switch cols {
	case 1:
		for i, at := range cells {
			dst[at] = src[i]
		}
	case 8:
		for i, at := range cells {
			row := [8]float32(src[8*i:])
			*(*[8]float32)(dst[at:]) = row
		}
	default:
		for i, at := range cells {
			copy(dst[at:], src[i*cols:(i+1)*cols])
		}
	}
}
