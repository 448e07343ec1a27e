package data

import (
	"context"
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium"
)

// A Dataset is a finite sequence of rows that can be read in any order. It is safe for concurrent use.
type Dataset interface {
	Schema() trivium.Schema
	Rows() int64
	// Read makes dst the rows [from, to) in index order. dst is a zero Batch or one that an earlier Read of this data set filled: its
	// memory may be reused, or dst may become a read-only view of the data set's own. The caller keeps the range within [0, Rows).
	Read(ctx context.Context, dst *trivium.Batch, from, to int64) error
}

// memory is a data set that is one resident batch. Reading it makes views, but for pixels, of which it makes numbers.
type memory struct {
	schema  trivium.Schema
	all     trivium.Batch // without inputs, where there are pixels
	pixels  *pixels       // nil: there are none
	firstID int64
	late    *late // nil: all rows are there
}

func newMemory(schema trivium.Schema, b trivium.Batch) *memory {
	return &memory{schema: schema, all: b}
}

// Memory returns the rows of b as a data set. It keeps b, which nobody may change from then on. Where b has no IDs, a row's id is its
// index.
func Memory(schema trivium.Schema, b trivium.Batch) Dataset { return newMemory(schema, b) }

// validate reports how rows that a program made contradict themselves, or lack what their schema says. Those of this package, pixels and
// rows that are made when they are wanted, do not.
func (m *memory) validate() error {
	if m.pixels != nil || m.late != nil {
		return nil
	}
	if err := m.all.Validate(); err != nil {
		return err
	}
	for _, want := range m.schema.Inputs {
		in := m.all.Input(want.Name)
		if in == nil {
			return fmt.Errorf("they have no input %q, which the schema has", want.Name)
		}
		if in.Form != want.Form || !slices.Equal(in.Shape, want.Shape) {
			return fmt.Errorf("input %q is %v of shape %v, the schema says %v of shape %v", in.Name, in.Form, in.Shape, want.Form, want.Shape)
		}
	}
	if l, want := &m.all.Labels, &m.schema.Labels; want.Kind != trivium.NoLabel && (l.Kind != want.Kind || l.Width != want.Width) {
		return fmt.Errorf("the labels are %v of width %d, the schema says %v of width %d", l.Kind, l.Width, want.Kind, want.Width)
	}
	return nil
}

func (m *memory) Schema() trivium.Schema { return m.schema }
func (m *memory) Rows() int64            { return int64(m.all.Rows) }

func (m *memory) Read(ctx context.Context, dst *trivium.Batch, from, to int64) error {
	if m.late != nil {
		if err := m.want(ctx, oneRange(from, to)); err != nil {
			return err
		}
	}
	m.rows(dst, int(from), int(to), nil)
	return nil
}

// rows makes dst the rows [from, to), which are there. What is large to convert is shared out by team, if it is not nil.
func (m *memory) rows(dst *trivium.Batch, from, to int, team *copyTeam) {
	if m.pixels == nil {
		m.all.SliceInto(dst, from, to)
		return
	}
	in := m.pixels.input
	if len(dst.Inputs) > 0 {
		in.Values = dst.Inputs[0].Values
	}
	in.Values = extend(in.Values[:0], (to-from)*m.pixels.n)
	inputs := append(dst.Inputs[:0], in)
	m.all.SliceInto(dst, from, to)
	dst.Inputs = inputs
	team.copy(copying{dst: in.Values, n: m.pixels.n, pixels: m.pixels, from: from})
}

func (m *memory) first() int64 { return m.firstID }

// A numbered data set says what id its row 0 has in the file or generator that it comes from.
type numbered interface{ first() int64 }

// Slice returns the rows [from, to) of ds as a data set that shares its memory. Rows keep their ids.
func Slice(ds Dataset, from, to int64) (Dataset, error) {
	if from < 0 || to < from || to > ds.Rows() {
		return nil, fault("", "rows %d:%d are not within the %d rows there are", from, to, ds.Rows())
	}
	switch d := ds.(type) {
	case *memory:
		m := newMemory(d.schema, d.all.Slice(int(from), int(to)))
		m.firstID, m.late = d.firstID+from, d.late
		if d.pixels != nil {
			m.pixels = d.pixels.slice(int(from), int(to))
		}
		return m, nil
	case *slice:
		return &slice{d.whole, d.from + from, d.from + to}, nil
	}
	return &slice{ds, from, to}, nil
}

// A slice is a range of rows of a data set that is not in memory.
type slice struct {
	whole    Dataset
	from, to int64
}

func (s *slice) Schema() trivium.Schema { return s.whole.Schema() }
func (s *slice) Rows() int64            { return s.to - s.from }

func (s *slice) Read(ctx context.Context, dst *trivium.Batch, from, to int64) error {
	return s.whole.Read(ctx, dst, s.from+from, s.from+to)
}

func (s *slice) first() int64 { return s.from + firstID(s.whole) }

func (s *slice) checkBatch(rows int64) error { return checkBatch(s.whole, rows) }

// checkBatch asks a data set whose batches are no views of it whether one of that many rows is too large to make.
func checkBatch(ds Dataset, rows int64) error {
	if b, ok := ds.(interface{ checkBatch(rows int64) error }); ok {
		return b.checkBatch(rows)
	}
	return nil
}

func firstID(ds Dataset) int64 {
	if n, ok := ds.(numbered); ok {
		return n.first()
	}
	return 0
}

// checkRange is what a Read's bounds must hold.
func checkRange(from, to, rows int64) error {
	if from < 0 || to < from || to > rows {
		return fmt.Errorf("data: rows %d:%d were asked of %d", from, to, rows)
	}
	return nil
}
