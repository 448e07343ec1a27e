package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/shards"
)

// factsTable has what workers tell each other of an update: the sums of loss and weight, and whether one wants to stop. Its cells are the
// bits of these numbers, since a sum of them has another order: each part of the update has cells of its own, and everybody adds them up.
const factsTable = "updates"

// Under SSP it has one row, of a cell a worker: the update after which this one wants all to stop, 0 if it does not. A worker that says so
// in update k says k + s: by then all know, since a read at the end of update k + s holds all of update k, and nobody is further yet. And the
// read is what waits for those behind.
const (
	factsRows  = 4 // an update's row is read, then cleared, then used again
	factsCells = 3 // of a part: loss, weight, flags
)

const flagStop = 1

// A total is an update's facts.
type total struct {
	loss, weight float64
	stop         bool
}

// facts are a worker's access to that table.
type facts struct {
	table ps.Table[int64]
	parts []shards.Subtree // of all ranks, in their order; of one that has no tree, node 0
	first []int            // of each rank's among these
	idle  int              // ranks that have none
	from  int              // this worker's first cell
	rank  int
	loose bool               // not BSP
	own   [factsRows][]int64 // what this worker added
	row   []int64
	sums  []partSum
}

type partSum struct {
	id           int
	loss, weight float64
}

// newFacts returns the facts of so many workers; job's shards matter in exact mode.
func newFacts(job *trivium.Job, rank, workers int, loose bool) *facts {
	if loose {
		return &facts{rank: rank, loose: true, row: make([]int64, workers)}
	}
	f := &facts{rank: rank}
	v := job.VirtualShards()
	for r := range workers {
		f.first = append(f.first, len(f.parts))
		if job.Exact {
			f.parts = append(f.parts, shards.Owned(r, workers, v)...)
		} else {
			f.parts = append(f.parts, shards.Subtree{})
		}
	}
	f.first = append(f.first, len(f.parts))
	f.from = factsCells * f.first[rank]
	cells := factsCells * len(f.mine())
	for r := range workers {
		if f.first[r] < f.first[r+1] {
			continue
		}
		if r == rank {
			f.from, cells = f.cols(), 1
		}
		f.idle++
	}
	f.row = make([]int64, f.cols())
	for i := range f.own {
		f.own[i] = make([]int64, cells)
	}
	return f
}

// cols are the cells of all parts, and behind them one of each worker that has none, for its flags.
func (f *facts) cols() int { return factsCells*len(f.parts) + f.idle }

// mine are this worker's parts.
func (f *facts) mine() []shards.Subtree { return f.parts[f.first[f.rank]:f.first[f.rank+1]] }

func (f *facts) spec(o Options) ps.Spec {
	if f.loose {
		return ps.Spec{Name: factsTable, Rows: 1, Cols: int64(len(f.row)), Cell: ps.Int64, Mode: o.Mode, Staleness: o.Staleness}
	}
	return ps.Spec{Name: factsTable, Rows: factsRows, Cols: int64(f.cols()), Cell: ps.Int64, Mode: o.Mode, Staleness: o.Staleness}
}

// rowOf is the row of update step.
func (f *facts) rowOf(step int64) int64 {
	if f.loose {
		return 0
	}
	return step % factsRows
}

// stopAfter tells all to stop after that update.
func (f *facts) stopAfter(step int64) error { return f.table.Inc(0, int64(f.rank), step) }

// add tells this worker's facts of update step.
func (f *facts) add(step int64, sums []partSum, stop bool) error {
	from := int64(f.from)
	old := f.own[(step+factsRows-1)%factsRows]
	clearing := false
	for i, x := range old {
		old[i] = -x
		clearing = clearing || x != 0
	}
	if clearing {
		if err := f.table.DenseInc((step+factsRows-1)%factsRows, from, old); err != nil {
			return err
		}
	}
	clear(old)
	now := f.own[step%factsRows]
	for i, s := range sums {
		now[factsCells*i] = int64(math.Float64bits(s.loss))
		now[factsCells*i+1] = int64(math.Float64bits(s.weight))
		now[factsCells*i+2] = 0
		if stop {
			now[factsCells*i+2] = flagStop
		}
	}
	if len(f.mine()) == 0 && stop {
		now[0] = flagStop
	}
	return f.table.DenseInc(step%factsRows, from, now)
}

// total reads the facts of update step, once all have told theirs.
func (f *facts) total(ctx context.Context, step int64) (t total, err error) {
	if _, err := f.table.Get(ctx, f.rowOf(step), f.row); err != nil {
		return t, err
	}
	if f.loose {
		for _, at := range f.row {
			t.stop = t.stop || at != 0 && at <= step
		}
		return t, nil
	}
	f.sums = f.sums[:0]
	for i, p := range f.parts {
		c := f.row[factsCells*i:]
		f.sums = append(f.sums, partSum{p.Node, math.Float64frombits(uint64(c[0])), math.Float64frombits(uint64(c[1]))})
		t.stop = t.stop || c[2]&flagStop != 0
	}
	for _, c := range f.row[factsCells*len(f.parts):] {
		t.stop = t.stop || c&flagStop != 0
	}
	t.loss, t.weight = fold(f.sums)
	return t, nil
}

// fold adds parts along the tree of virtual shards, in which node k has the children 2k and 2k+1; those of no tree one after the other.
func fold(sums []partSum) (loss, weight float64) {
	if len(sums) == 0 {
		return 0, 0
	}
	if sums[0].id == 0 {
		for _, s := range sums {
			loss, weight = loss+s.loss, weight+s.weight
		}
		return loss, weight
	}
	s := slices.Clone(sums)
	deepest := slices.MaxFunc(s, func(a, b partSum) int { return cmp.Compare(a.id, b.id) }).id
	var at func(node int) (partSum, bool)
	at = func(node int) (partSum, bool) {
		if i := slices.IndexFunc(s, func(x partSum) bool { return x.id == node }); i >= 0 {
			return s[i], true
		}
		if 2*node > deepest {
			return partSum{}, false
		}
		a, left := at(2 * node)
		b, right := at(2*node + 1)
		switch {
		case left && right:
			return partSum{node, a.loss + b.loss, a.weight + b.weight}, true
		case left:
			return a, true
		}
		return b, right
	}
	all, _ := at(1)
	return all.loss, all.weight
}

// agreeTable carries rank 0's evaluations to the others, where one may stop training.
const agreeTable = "evaluations"

const agreeCells = 1024 // 8 KiB of JSON

// agreement is a worker's access to it: one row that only rank 0 changes.
type agreement struct {
	w     *ps.Worker
	table ps.Table[int64]
	rank  int
	n     int64 // evaluations
	old   []int64
	row   []int64
}

// A finding is an evaluation as it travels: the bits of each value, since JSON has no NaN.
type finding struct {
	N      int64             `json:"n"`
	Values map[string]uint64 `json:"values"`
	Error  string            `json:"error,omitempty"`
}

func agreeSpec() ps.Spec {
	return ps.Spec{Name: agreeTable, Rows: 1, Cols: agreeCells, Cell: ps.Int64, Mode: ps.BSP}
}

// agree returns at every rank what rank 0 found, in a round of its own: see train.Run.Agree.
func (a *agreement) agree(ctx context.Context, values map[string]float64, failure error) (map[string]float64, error) {
	a.n++
	f := finding{N: a.n, Values: map[string]uint64{}}
	if a.rank == 0 {
		for name, v := range values {
			f.Values[name] = math.Float64bits(v)
		}
		if failure != nil {
			f.Error = failure.Error()
		}
		p, err := json.Marshal(f)
		if err != nil {
			return nil, err
		}
		if len(p) > 8*agreeCells {
			return nil, fmt.Errorf("server: an evaluation of %d bytes does not fit in %d", len(p), 8*agreeCells)
		}
		now := make([]int64, agreeCells)
		for i, b := range p {
			now[i/8] |= int64(b) << (i % 8 * 8)
		}
		change := make([]int64, agreeCells)
		for i := range now {
			change[i] = now[i] - a.old[i]
		}
		a.old = now
		if err := a.table.DenseInc(0, 0, change); err != nil {
			return nil, err
		}
	}
	if _, err := a.w.Clock(ctx); err != nil {
		return nil, err
	}
	if a.rank == 0 {
		return values, failure
	}
	if _, err := a.table.Get(ctx, 0, a.row); err != nil {
		return nil, err
	}
	p := make([]byte, 0, 8*agreeCells)
	for _, x := range a.row {
		for i := range 8 {
			if b := byte(x >> (8 * i)); b != 0 {
				p = append(p, b)
			}
		}
	}
	f = finding{}
	if len(p) == 0 {
		return nil, errLeft
	}
	if err := json.Unmarshal(p, &f); err != nil {
		return nil, fmt.Errorf("server: the evaluation of rank 0: %w", err)
	}
	if f.N != a.n {
		return nil, errLeft
	}
	if f.Error != "" {
		return nil, fmt.Errorf("server: rank 0: %s", f.Error)
	}
	values = make(map[string]float64, len(f.Values))
	for name, v := range f.Values {
		values[name] = math.Float64frombits(v)
	}
	return values, nil
}

var errLeft = errors.New("server: rank 0 has ended its training, and evaluates nothing more")
