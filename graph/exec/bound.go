package exec

import (
	"fmt"
	"sync/atomic"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A bound is a node with its operands and tiles in one instance. run computes a tile; tiles of one node touch disjoint parts of the
// result and may run at the same time. finish, where it is set, runs once after the last tile.
type bound struct {
	n       *node
	x       *instance
	isa     kernel.ISA
	in, out []*slot

	size    func() // from the slots' sizes: work and tiles; nil: elements of the first result
	run     func(tile int, w *worker)
	finish  func()
	sizeErr error // sizes of now that the node cannot work on
	err     error // of this step: a run that cannot panic for a user's mistake leaves it here; guarded by instance.fail

	total, per, tiles int     // units of work, units a tile, tiles
	cost              float64 // of the whole node, in scalar operations or bytes, as Options.Grain
	at                int32   // in its segment
	rank              float64 // see prioritise
	task              *task
	attach            func(s *State) error // looks its resource up when the instance meets another State
	variable          *variable
	decl              declaration // of what it reads or writes
	last              int64       // what a write gave
	wrote             atomic.Bool // in this step
	held              *buffer     // of a Read, while the step needs it
}

// A worker is the scratch memory of one thread in one instance.
type worker struct {
	w32    kernel.Workspace[float32]
	w64    kernel.Workspace[float64]
	regs   []byte // registers of Fused nodes
	ints   []int32
	sparse csr
	node   *bound // being run, for panics
}

func workspace[T float](w *worker) *kernel.Workspace[T] {
	var x T
	if _, ok := any(x).(float32); ok {
		return any(&w.w32).(*kernel.Workspace[T])
	}
	return any(&w.w64).(*kernel.Workspace[T])
}

// A kernelRow is how operations of one name run. bind sets the functions of a bound node; it is nil for what is no kernel: operations
// that the instance itself does.
type kernelRow struct {
	bind    func(b *bound)
	accepts func(n *node) error
	alias   bool // result 0 may lie where an operand of its size lies, if that is not needed any more
}

func (k kernelRow) check(n *node) error {
	if k.accepts != nil {
		return k.accepts(n)
	}
	return nil
}

// resize computes work and tiles anew after sizes have changed.
func (b *bound) resize() {
	b.err = nil
	if b.size != nil {
		b.size()
		return
	}
	b.cut(b.out[0].n, 64, float64(4*b.out[0].dt.Size()))
}

// cut divides total units, each of a cost, into tiles of a multiple of unit.
func (b *bound) cut(total, unit int, cost float64) {
	b.total, b.cost = total, float64(total)*cost
	tiles := 1
	if b.x.threads > 1 {
		tiles = int(b.cost / float64(b.x.p.o.Grain))
		tiles = max(1, min(tiles, 2*b.x.threads))
	}
	b.per = max(alignUp((total+tiles-1)/tiles, unit), unit)
	b.tiles = max(1, (total+b.per-1)/b.per)
}

// cutForThreads is cut into at most one tile a thread: for nodes whose tiles repeat work.
func (b *bound) cutForThreads(total, unit int, cost float64) {
	b.cut(total, unit, cost)
	if b.tiles > b.x.threads {
		b.per = max(alignUp((total+b.x.threads-1)/b.x.threads, unit), unit)
		b.tiles = max(1, (total+b.per-1)/b.per)
	}
}

// span is the units of a tile.
func (b *bound) span(tile int) (from, to int) {
	return tile * b.per, min((tile+1)*b.per, b.total)
}

func (b *bound) whole(cost float64) { b.total, b.per, b.tiles, b.cost = 1, 1, 1, cost }

// dtype is the element type that decides between instantiations: that of the first floating operand, else of the result.
func (b *bound) dtype() graph.DType {
	for _, s := range b.in {
		if s.dt.Float() {
			return s.dt
		}
	}
	return b.out[0].dt
}

// byFloat binds one of two instantiations.
func byFloat(f32, f64 func(b *bound)) func(b *bound) {
	return func(b *bound) {
		if b.dtype() == graph.F64 {
			f64(b)
			return
		}
		f32(b)
	}
}

// floats accepts F32 and F64 operands.
func floats(n *node) error {
	for _, r := range n.in {
		if dt := r.typ().DType; dt.Float() {
			return nil
		}
	}
	for _, t := range n.list.types {
		if t.DType.Float() {
			return nil
		}
	}
	return fmt.Errorf("no kernel for %v", n.list.types)
}
