package trivium

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
)

// Params are the parameters of a model: named tensors over one flat vector.
type Params struct {
	Layout *Layout
	Flat   []float32 // length Layout.Len()
}

// NewParams returns zero parameters.
func NewParams(l *Layout) Params { return Params{l, make([]float32, l.Len())} }

// Tensor returns the cells of tensor i, row-major, a view.
func (p Params) Tensor(i int) []float32 { from, to := p.Layout.Range(i); return p.Flat[from:to:to] }

// A Gradient is a sum over rows of weight × gradient, of the same Layout as the parameters.
//
// Of a row-sparse tensor (Spec.RowSparse) only the rows in Rows count; what the cells of other rows hold is undefined and nobody
// looks. The storage is dense all the same: a row is found by its number, in constant time, and an optimizer reads it in place.
type Gradient struct {
	Layout *Layout
	Flat   []float32 // length Layout.Len()
	Rows   [][]int32 // per tensor: touched rows, ascending; nil for a tensor that is not row-sparse
}

// An Update is what an optimizer makes of a gradient, to be added to the parameters. Rows has the same meaning.
type Update = Gradient

// NewGradient returns a zero gradient that touches no row of the row-sparse tensors.
func NewGradient(l *Layout) Gradient {
	g := Gradient{Layout: l, Flat: make([]float32, l.Len()), Rows: make([][]int32, l.Tensors())}
	for i := range g.Rows {
		if l.Spec(i).RowSparse {
			g.Rows[i] = []int32{}
		}
	}
	return g
}

// Tensor returns the cells of tensor i, row-major, a view.
func (g Gradient) Tensor(i int) []float32 { from, to := g.Layout.Range(i); return g.Flat[from:to:to] }

// Touch makes rows, ascending and without repeats, the touched rows of row-sparse tensor i, and zeroes their cells. It copies rows
// into the gradient's own memory.
func (g Gradient) Touch(i int, rows []int32) {
	g.Rows[i] = append(g.Rows[i][:0], rows...)
	g.ZeroRows(i, rows)
}

// ZeroRows zeroes the cells of these rows of tensor i.
func (g Gradient) ZeroRows(i int, rows []int32) {
	cells, cols := g.Tensor(i), g.Layout.Cols(i)
	switch cols { // of the widths that most sparse models have: a call for each row would take longer than the rest
	case 1:
		for _, r := range rows {
			cells[r] = 0
		}
	case 4:
		for _, r := range rows {
			*(*[4]float32)(cells[int(r)*4:]) = [4]float32{}
		}
	case 8:
		for _, r := range rows {
			*(*[8]float32)(cells[int(r)*8:]) = [8]float32{}
		}
	case 16:
		for _, r := range rows {
			*(*[16]float32)(cells[int(r)*16:]) = [16]float32{}
		}
	default:
		for _, r := range rows {
			clear(cells[int(r)*cols : (int(r)+1)*cols])
		}
	}
}

// Zero makes g the empty sum.
func (g Gradient) Zero() {
	for i := range g.Layout.owners() {
		if g.Layout.Spec(i).RowSparse {
			g.Rows[i] = g.Rows[i][:0]
		} else {
			clear(g.Tensor(i))
		}
	}
}

// Add adds h to g, cell by cell: one float32 addition each, the step of every reduction tree.
func (g Gradient) Add(h Gradient) {
	for i := range g.Layout.owners() {
		a, b := g.Tensor(i), h.Tensor(i)
		if !g.Layout.Spec(i).RowSparse {
			for k, x := range b {
				a[k] += x
			}
			continue
		}
		g.Rows[i] = addRows(g.Rows[i], h.Rows[i], a, b, g.Layout.Cols(i))
	}
}

// addRows adds the rows hs of b to a, whose rows are gs, and returns the union: a row that only b has is copied, since a + 0 would
// read cells that nobody wrote.
func addRows(gs, hs []int32, a, b []float32, cols int) []int32 {
	union := len(gs)
	for _, r := range hs {
		from, to := int(r)*cols, (int(r)+1)*cols
		if _, both := slices.BinarySearch(gs[:union], r); both {
			for k := from; k < to; k++ {
				a[k] += b[k]
			}
			continue
		}
		copy(a[from:to], b[from:to])
		gs = append(gs, r)
	}
	slices.Sort(gs)
	return gs
}

// A Spec describes one tensor of a Layout.
type Spec struct {
	Name      string
	Shape     []int   // empty: a scalar
	Buffer    bool    // state that is saved but not trained, such as running means
	Decay     float32 // multiplies weight decay: 1 for weights, 0 (the zero value) for biases
	Rate      float32 // multiplies the learning rate; 0 means 1
	Tie       string  // name of an earlier tensor of the same shape whose cells this one shares; empty: its own cells
	RowSparse bool    // its gradient names the rows of axis 0 that it touches
	Columns   string  // row-sparse: the CSR input whose columns number the rows, and no others are read; empty: the model alone knows which are
}

// A Layout says where each named tensor lies in a flat vector: in the order given, without gaps. It is immutable.
type Layout struct {
	specs  []Spec
	from   []int // per tensor; a tied tensor has its owner's
	length int
	byName map[string]int
	hash   string
}

// NewLayout returns the layout of these tensors, or every mistake in them.
func NewLayout(specs ...Spec) (*Layout, error) {
	l := &Layout{byName: make(map[string]int, len(specs))}
	var errs []error
	for i, s := range specs {
		s.Shape = slices.Clone(s.Shape)
		if s.Rate == 0 {
			s.Rate = 1
		}
		from, err := l.place(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("layout: tensor %d, %q: %w", i, s.Name, err))
			continue
		}
		l.byName[s.Name] = len(l.specs)
		l.specs = append(l.specs, s)
		l.from = append(l.from, from)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	l.hash = l.fingerprint()
	return l, nil
}

func (l *Layout) place(s Spec) (from int, err error) {
	if s.Name == "" {
		return 0, errors.New("has no name")
	}
	if _, ok := l.byName[s.Name]; ok {
		return 0, errors.New("the name is taken")
	}
	size := 1
	for _, d := range s.Shape {
		if d < 1 || size > math.MaxInt/4/d {
			return 0, fmt.Errorf("shape %v: every length is at least 1 and the bytes fit an int", s.Shape)
		}
		size *= d
	}
	if s.RowSparse && (len(s.Shape) == 0 || s.Shape[0] > math.MaxInt32) {
		return 0, fmt.Errorf("row-sparse wants 1 to %d rows, shape is %v", math.MaxInt32, s.Shape)
	}
	if s.Tie == "" {
		if size > math.MaxInt/4-l.length {
			return 0, fmt.Errorf("shape %v, after %d cells of others: the bytes of all do not fit an int", s.Shape, l.length)
		}
		from = l.length
		l.length += size
		return from, nil
	}
	owner, ok := l.byName[s.Tie]
	if !ok {
		return 0, fmt.Errorf("is tied to %q, which is not an earlier tensor", s.Tie)
	}
	if !slices.Equal(l.specs[owner].Shape, s.Shape) {
		return 0, fmt.Errorf("shape %v is tied to %q of shape %v", s.Shape, s.Tie, l.specs[owner].Shape)
	}
	return l.from[owner], nil
}

// Len returns the number of cells of the flat vector.
func (l *Layout) Len() int { return l.length }

// Tensors returns the number of tensors.
func (l *Layout) Tensors() int { return len(l.specs) }

// Spec returns the description of tensor i. Its Shape is only to be read.
func (l *Layout) Spec(i int) Spec { return l.specs[i] }

// Range returns the cells of tensor i in the flat vector.
func (l *Layout) Range(i int) (from, to int) { return l.from[i], l.from[i] + product(l.specs[i].Shape) }

// Rows returns the length of axis 0 of tensor i, and 1 for a scalar.
func (l *Layout) Rows(i int) int {
	if len(l.specs[i].Shape) == 0 {
		return 1
	}
	return l.specs[i].Shape[0]
}

// Cols returns the number of cells in one row of tensor i.
func (l *Layout) Cols(i int) int {
	if len(l.specs[i].Shape) == 0 {
		return 1
	}
	return product(l.specs[i].Shape[1:])
}

// owners walks the tensors that have cells of their own: a tied one shares its owner's, which must not be added twice.
func (l *Layout) owners() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range l.specs {
			if l.specs[i].Tie == "" && !yield(i) {
				return
			}
		}
	}
}

// Index returns the tensor of that name, or -1.
func (l *Layout) Index(name string) int {
	if i, ok := l.byName[name]; ok {
		return i
	}
	return -1
}

// At returns the tensor that owns cell i of the flat vector: never a tied one.
func (l *Layout) At(cell int) int {
	for i := range l.specs {
		if l.specs[i].Tie == "" {
			if from, to := l.Range(i); from <= cell && cell < to {
				return i
			}
		}
	}
	return -1
}

// Hash returns a fingerprint in hexadecimal: equal layouts, and only these, have equal ones. Processes compare it when they join,
// and a checkpoint carries it. By what input rows are read (Spec.Columns) is the model's, and not in it.
func (l *Layout) Hash() string { return l.hash }

func (l *Layout) fingerprint() string {
	h := sha256.New()
	for _, s := range l.specs {
		fmt.Fprintf(h, "%q %v %t %g %g %q %t\n", s.Name, s.Shape, s.Buffer, s.Decay, s.Rate, s.Tie, s.RowSparse)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
