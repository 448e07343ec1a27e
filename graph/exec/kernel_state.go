package exec

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A declaration is a Variable as the graph has it.
type declaration struct {
	*graph.Resource
	dt    graph.DType
	sizes []int
}

func (x *instance) declared(id int) declaration {
	r := x.p.g.Resources()[id]
	sizes, _ := r.Types[0].Shape.Fixed()
	return declaration{r, r.Types[0].DType, sizes}
}

// bindRead makes the node's result the Variable's memory itself, held until a write that all readers come before, or the end of the step.
func bindRead(b *bound) {
	b.decl = b.x.declared(b.n.src.Resources[0])
	b.attach = func(s *State) error {
		b.variable = s.variable(b.decl.Resource)
		return nil
	}
	b.x.reads = append(b.x.reads, b)
	b.size = func() { b.whole(1) }
	views := b.x.later[b.n]
	b.run = func(int, *worker) {
		b.held, _ = b.variable.hold()
		b.out[0].p = pointer(b.held.t)
		b.x.follow(views)
	}
}

// bindWrite is Assign and AssignAdd.
func bindWrite(b *bound) {
	b.decl = b.x.declared(b.n.src.Resources[0])
	b.attach = func(s *State) error {
		b.variable = s.variable(b.decl.Resource)
		return nil
	}
	if b.n.op == "AssignAdd" {
		b.x.reads = append(b.x.reads, b) // it needs a value as a Read does
	}
	b.size = func() { b.whole(float64(b.in[0].n*b.in[0].dt.Size()) * 2) }
	add := addBytes(b)
	b.run = func(int, *worker) {
		b.once(func() error {
			v := b.variable
			v.mu.Lock()
			defer v.mu.Unlock()
			b.letGo(v)
			to, err := v.target(b.in[0].dt, b.in[0].dims, 0)
			if err != nil {
				return err
			}
			if b.n.op == "Assign" {
				copy(to.t.Bytes(), b.in[0].bytes())
			} else {
				add(to.t, v.cur.t)
			}
			v.publish(to)
			b.result(v.version)
			return nil
		})
	}
}

// addBytes adds the node's operand to a Variable's value.
func addBytes(b *bound) func(dst, src *tensor.Tensor) {
	switch b.in[0].dt {
	case graph.F32:
		return func(dst, src *tensor.Tensor) {
			kernel.Add(b.isa, tensor.Flat[float32](dst), tensor.Flat[float32](src), flat[float32](b.in[0]))
		}
	case graph.F64:
		return func(dst, src *tensor.Tensor) {
			kernel.Add(b.isa, tensor.Flat[float64](dst), tensor.Flat[float64](src), flat[float64](b.in[0]))
		}
	case graph.I32:
		return func(dst, src *tensor.Tensor) {
			addInts(tensor.Flat[int32](dst), tensor.Flat[int32](src), flat[int32](b.in[0]))
		}
	}
	return func(dst, src *tensor.Tensor) { // I64: there is no other
		addInts(tensor.Flat[int64](dst), tensor.Flat[int64](src), flat[int64](b.in[0]))
	}
}

func addInts[T int32 | int64](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// letGo drops the holds on v of this step's Reads whose readers have all run. The caller has v's lock.
func (b *bound) letGo(v *variable) {
	for _, n := range b.n.own {
		if r := b.x.bound[n.seq]; r.held != nil && r.variable == v {
			r.held.held--
			r.held = nil
		}
	}
}

// A Rule updates a Variable and its slots in place from a gradient; params are the scalars that the Apply node was given. Of a row-sparse
// gradient, rows holds row numbers, which may repeat, and g their rows. All slices are of one element type: exactly one of U.F32 and
// U.F64 is set.
type Rule func(u *Update) error

// An Update is what a Rule works on.
type Update struct {
	Name   string  // of the Variable
	Step   int64   // version that the Variable gets, counted from 1: the number of this update
	Shape  []int   // of the Variable
	Rows   []int32 // nil: the gradient is dense
	Params []float64
	F32    Cells[float32]
	F64    Cells[float64]
}

// Cells are the elements of an Update in one element type.
type Cells[T float] struct {
	P, G  []T
	Slots [][]T
}

// bindApply lets a rule update a Variable and its slots. The rule works in place: where others read the old version, on a copy.
func bindApply(b *bound) {
	rule := b.x.p.o.Rules[b.n.attr("rule").S]
	sparse := b.n.attr("sparse").I != 0
	all := make([]declaration, len(b.n.src.Resources))
	for i, id := range b.n.src.Resources {
		all[i] = b.x.declared(id)
	}
	vars := make([]*variable, len(all))
	var locks []*variable
	to := make([]*buffer, len(vars))
	b.attach = func(s *State) error {
		for i := range all {
			vars[i] = s.variable(all[i].Resource)
			vars[i].mu.Lock()
			has := vars[i].cur != nil
			vars[i].mu.Unlock()
			if !has {
				return fmt.Errorf("Variable %q: %w", all[i].Name, ErrUninitialised)
			}
		}
		b.variable = vars[0]
		locks = append(locks[:0], vars...)
		sortVariables(locks)
		locks = slices.Compact(locks)
		return nil
	}
	u := &Update{Name: all[0].Name}
	u.F32.Slots, u.F64.Slots = make([][]float32, len(vars)-1), make([][]float64, len(vars)-1)
	b.size = func() { b.whole(float64(b.in[len(b.in)-1].n) * 40) }
	b.run = func(_ int, w *worker) {
		b.once(func() error {
			for _, v := range locks { // in one order everywhere, so that rules with slots in common cannot deadlock
				v.mu.Lock()
				defer v.mu.Unlock()
			}
			for i, v := range vars {
				b.letGo(v)
				t, err := v.target(all[i].dt, all[i].sizes, 0)
				if err != nil {
					return err
				}
				if t != v.cur {
					copy(t.t.Bytes(), v.cur.t.Bytes())
				}
				to[i] = t
			}
			grad := 0
			u.Rows = nil
			if sparse {
				u.Rows, grad = indices32(b.in[0], &w.ints), 1
				if u.Rows == nil { // which would say that the gradient is dense
					u.Rows = []int32{}
				}
				rows := to[0].t.Dim(0)
				for i, r := range u.Rows {
					if r < 0 || int(r) >= rows {
						badIndex("row", i, b.in[0].whole(i), rows)
					}
				}
			}
			u.Step, u.Shape, u.Params = vars[0].version, to[0].t.Shape(), u.Params[:0]
			for _, s := range b.in[grad+1:] {
				u.Params = append(u.Params, scalarOf(s))
			}
			if to[0].t.DType() == graph.F64 {
				fill(&u.F64, to, b.in[grad])
			} else {
				fill(&u.F32, to, b.in[grad])
			}
			if err := rule(u); err != nil {
				return err
			}
			for i, v := range vars {
				v.publish(to[i])
			}
			b.result(vars[0].version)
			return nil
		})
	}
}

func fill[T float](c *Cells[T], to []*buffer, g *slot) {
	c.P, c.G = tensor.Flat[T](to[0].t), flat[T](g)
	for i, s := range to[1:] {
		c.Slots[i] = tensor.Flat[T](s.t)
	}
}

// scalarOf is a scalar as a float64.
func scalarOf(s *slot) float64 {
	var v float64
	to := slot{p: unsafe.Pointer(&v), n: 1, dt: graph.F64}
	castRange(&to, s, 0, 1)
	return v
}
