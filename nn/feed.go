package nn

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// A feed is an input of the graph and what of a batch goes there.
type feed struct {
	kind feedKind
	name string // of the batch's input
	axis graph.Dim
	t    *tensor.Tensor
	ptr  []int64 // of feedIndptr: the batch's offsets from its own first one
}

type feedKind uint8

const (
	feedDense feedKind = iota
	feedIndptr
	feedIndices
	feedValues
	feedClass
	feedReal
	feedWeight
	feedScores
)

// What a sparse input feeds: NAME.indptr and so on.
const (
	partIndptr  = "indptr"
	partIndices = "indices"
	partValues  = "values"
)

// feedName cuts what an input of the graph is called into the name of the batch's input and the part of it.
func feedName(name string) (base, part string) {
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 { // the last: an input's own name may have dots
		return name[:dot], name[dot+1:]
	}
	return name, ""
}

func newFeed(g *graph.Graph, v, scores graph.Value) (feed, error) {
	typ := v.Type()
	f := feed{name: g.Node(v.Node()).Name}
	dims := make([]int, len(typ.Shape))
	for i, d := range typ.Shape {
		if i > 0 && !d.Fixed() {
			return f, fmt.Errorf("nn: input %q is %v; only its first axis may be dynamic", f.name, typ)
		}
		dims[i] = d.N
	}
	if len(dims) == 0 {
		return f, fmt.Errorf("nn: input %q is a scalar; a batch has rows", f.name)
	}
	dims[0], f.axis = 0, typ.Shape[0]
	base, part := feedName(f.name)
	want := graph.F32
	switch {
	case v == scores:
		f.kind = feedScores
	case f.name == "weight":
		f.kind = feedWeight
	case f.name == "label" && typ.DType == graph.I32:
		f.kind, want = feedClass, graph.I32
	case f.name == "label" && typ.DType != graph.F32:
		return f, fmt.Errorf("nn: input %q is %v, want %v for classes or %v for real labels", f.name, typ, graph.I32, graph.F32)
	case f.name == "label":
		f.kind = feedReal
	case part == partIndptr:
		f.kind, f.name, want = feedIndptr, base, graph.I64
	case part == partIndices:
		f.kind, f.name, want = feedIndices, base, graph.I32
	case part == partValues:
		f.kind, f.name = feedValues, base
	}
	if typ.DType != want {
		return f, fmt.Errorf("nn: input %q is %v, want %v", f.name, typ, want)
	}
	f.t = tensor.New(want, dims...)
	return f, nil
}

// Fits says why rows of schema s cannot be fed to the net: the first batch of them would fail. Of labels it says so only where s has some,
// as predictions want none.
func (n *Net) Fits(s trivium.Schema) error {
	var errs []error
	for i := range n.train.feeds {
		errs = append(errs, n.train.feeds[i].fits(s))
	}
	classes := n.out.Width
	if n.out.Task == trivium.Binary {
		classes = 2
	}
	if l := s.Labels; l.Kind == trivium.Class && n.out.Task != trivium.Regression && l.Width > classes {
		errs = append(errs, fmt.Errorf("nn: the data has %d classes, and the net tells %d apart", l.Width, classes))
	}
	return errors.Join(errs...)
}

func (f *feed) fits(s trivium.Schema) error {
	width := 1 // of a row
	for _, n := range f.t.Shape()[1:] {
		width *= n
	}
	switch l := s.Labels; f.kind {
	case feedWeight, feedScores:
		return nil
	case feedClass:
		if l.Kind != trivium.NoLabel && l.Kind != trivium.Class {
			return fmt.Errorf("nn: the net wants class labels, and the data has %v labels", l.Kind)
		}
		return nil
	case feedReal:
		if l.Kind != trivium.NoLabel && l.Kind != trivium.Real {
			return fmt.Errorf("nn: the net wants real labels, and the data has %v labels", l.Kind)
		}
		if l.Kind == trivium.Real && l.Width != width {
			return fmt.Errorf("nn: the net wants %d real labels a row, and the data has %d", width, l.Width)
		}
		return nil
	}
	i := slices.IndexFunc(s.Inputs, func(in trivium.InputSpec) bool { return in.Name == f.name })
	if i < 0 {
		return fmt.Errorf("nn: the net wants an input %q, which the data does not have", f.name)
	}
	in := &s.Inputs[i]
	if dense := f.kind == feedDense; dense != (in.Form == trivium.Dense) || in.Form == trivium.Ragged {
		return fmt.Errorf("nn: input %q: the data has %v rows, which the net does not take there", f.name, in.Form)
	}
	if f.kind == feedDense && in.Columns() != width {
		return fmt.Errorf("nn: input %q: the net wants %d values a row, and the data has %d", f.name, width, in.Columns())
	}
	return nil
}

// fill makes f lie in b, or in scores.
func (n *Net) fill(f *feed, b *trivium.Batch, scores []float32) error {
	switch f.kind {
	case feedScores:
		return tensor.Attach(f.t, scores, b.Rows)
	case feedWeight:
		if b.Weights != nil {
			return tensor.Attach(f.t, b.Weights, b.Rows)
		}
		for len(n.ones) < b.Rows {
			n.ones = append(n.ones, 1)
		}
		return tensor.Attach(f.t, n.ones[:b.Rows], b.Rows)
	case feedClass:
		if b.Labels.Kind != trivium.Class {
			return fmt.Errorf("nn: want class labels, the batch has %v labels", b.Labels.Kind)
		}
		return tensor.Attach(f.t, b.Labels.Class, b.Rows)
	case feedReal:
		if b.Labels.Kind != trivium.Real {
			return fmt.Errorf("nn: want real labels, the batch has %v labels", b.Labels.Kind)
		}
		return tensor.Attach(f.t, b.Labels.Real, b.Rows)
	}
	x := b.Input(f.name)
	if x == nil {
		return fmt.Errorf("nn: the batch has no input %q", f.name)
	}
	if dense := f.kind == feedDense; dense != (x.Form == trivium.Dense) || x.Form == trivium.Ragged {
		return fmt.Errorf("nn: input %q: the batch has %v rows, which the net does not take there", f.name, x.Form)
	}
	if x.Rows != nil {
		return errApart(f.name)
	}
	var err error
	from, to := int64(0), int64(0) // a batch may be a view of the whole data set: its own entries are these
	if f.kind != feedDense {
		if len(x.Ptr) <= b.Rows {
			return fmt.Errorf("nn: input %q: %d offsets of %d rows", f.name, len(x.Ptr), b.Rows)
		}
		if from, to = x.Ptr[0], x.Ptr[b.Rows]; from < 0 || from > to || to > int64(min(len(x.Index), len(x.Values))) {
			return fmt.Errorf("nn: input %q: the rows lie at %d to %d of %d columns and %d values", f.name, from, to, len(x.Index), len(x.Values))
		}
	}
	switch f.kind {
	case feedDense:
		err = tensor.Attach(f.t, x.Values, b.Rows)
	case feedIndptr:
		ptr := x.Ptr[:b.Rows+1]
		if from > 0 {
			f.ptr = f.ptr[:0]
			for _, at := range ptr {
				f.ptr = append(f.ptr, at-from)
			}
			ptr = f.ptr
		}
		err = tensor.Attach(f.t, ptr, b.Rows+1)
	case feedIndices:
		err = tensor.Attach(f.t, x.Index[from:to], int(to-from))
	case feedValues:
		err = tensor.Attach(f.t, x.Values[from:to], int(to-from))
	}
	if err != nil {
		return fmt.Errorf("nn: input %q: %w", f.name, err)
	}
	return nil
}
