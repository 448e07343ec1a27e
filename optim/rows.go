package optim

import (
	"slices"

	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

const (
	// chunkRows is the number of touched rows that one thread takes at a time, at least.
	chunkRows = 256

	// gatherShort is the number of cells that neighbours of a run have together, at most, where a Rule steps copies of them among those of other
	// runs: it takes longer to begin with a run than to copy it.
	gatherShort = 64
)

// A gather is copies of rows that lie far apart, which are stepped as one run.
type gather struct {
	counts []uint32 // of the rows of a chunk: how often they were updated
	most   int      // rows of the tensor at hand
	keys   []uint64 // of those that are to be stepped: the number of the step and, below it, the row
	rows   []int32
	p      []float32
	slots  [][]float32
}

func newGather(slots int) gather {
	g := gather{counts: make([]uint32, blockCells), keys: make([]uint64, 0, blockCells), rows: make([]int32, blockCells), p: make([]float32, blockCells)}
	for range slots {
		g.slots = append(g.slots, make([]float32, blockCells))
	}
	return g
}

// chunks cuts the touched rows of the row-sparse tensor at hand: the more of them a thread has at once, the more of those have had as many updates.
func (s *State) chunks(rows int, pool *tensor.Pool) (n int) {
	parts := pool.Width()
	if parts > 1 {
		parts *= 2 // who is done sooner takes more
	}
	s.chunk = min(max((rows+parts-1)/parts, chunkRows), blockCells)
	return (rows + s.chunk - 1) / s.chunk
}

// stepRows steps some touched rows of the row-sparse tensor at hand: runs of neighbours with as many updates behind them together, and short ones
// with others.
func (s *State) stepRows(chunk, worker int) {
	rows := s.g.Rows[s.tensor]
	rows = rows[chunk*s.chunk : min((chunk+1)*s.chunk, len(rows))]
	first, _ := s.layout.Range(s.tensor)
	cols, steps, spec := s.layout.Cols(s.tensor), s.rowSteps[s.tensor], s.layout.Spec(s.tensor)
	g := &s.gathers[worker]
	g.most = blockCells / cols
	counts := g.counts[:len(rows)]
	if steps != nil {
		kernel.GatherRows(counts, steps, rows, 1)
	} else {
		clear(counts)
	}
	for i := 0; i < len(rows); {
		row, count, n := int(rows[i]), counts[i], 1
		for i+n < len(rows) && int(rows[i+n]) == row+n && (n+1)*cols <= blockCells && counts[i+n] == count {
			n++
		}
		i += n
		step := s.step
		if steps != nil {
			step = int64(count) + 1
			for k := range n {
				steps[row+k] = uint32(step)
			}
		}
		if s.rule != nil && n*cols <= gatherShort {
			if len(g.keys)+n > g.most {
				s.stepGathered(worker)
			}
			for k := range n {
				g.keys = append(g.keys, uint64(step)<<32|uint64(row+k))
			}
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

// stepGathered steps the rows that were noted.
func (s *State) stepGathered(worker int) {
	g := &s.gathers[worker]
	if len(g.keys) == 0 {
		return
	}
	from, to := s.layout.Range(s.tensor)
	cols, spec := s.layout.Cols(s.tensor), s.layout.Spec(s.tensor)
	if s.rowSteps[s.tensor] != nil {
		slices.Sort(g.keys) // those with as many updates behind them together
	}
	n := len(g.keys) * cols
	for i, key := range g.keys {
		g.rows[i] = int32(uint32(key))
	}
	rows, u, p, slots := g.rows[:len(g.keys)], s.scratch[worker][:n], g.p[:n], s.views[worker]
	if cols > 1 { // single cells are copied as fast as they come
		kernel.FetchRows(s.g.Flat[from:to], rows, cols)
		kernel.FetchRows(s.p.Flat[from:to], rows, cols)
		for _, v := range s.slots {
			kernel.FetchRows(v[from:to], rows, cols)
		}
	}
	kernel.GatherRows(u, s.g.Flat[from:to], rows, cols)
	kernel.GatherRows(p, s.p.Flat[from:to], rows, cols)
	for k, v := range s.slots {
		kernel.GatherRows(g.slots[k], v[from:to], rows, cols)
	}
	kernel.ScaleInto(s.isa, u, u, s.mean)
	s.rule.clip(u, s.scale)
	for i := 0; i < len(g.keys); {
		step, j := g.keys[i]>>32, i+1
		for j < len(g.keys) && g.keys[j]>>32 == step {
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
	kernel.ScatterRows(s.p.Flat[from:to], p, rows, cols)
	for k, v := range s.slots {
		kernel.ScatterRows(v[from:to], g.slots[k], rows, cols)
	}
	g.keys = g.keys[:0]
}
