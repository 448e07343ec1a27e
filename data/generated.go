package data

import (
	"context"
	"fmt"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/tensor"
)

// A generated data set has rows that are functions of their ids.
type generated struct {
	schema   trivium.Schema
	values   int   // of a row
	rowBytes int64 // of a row, all in all
	// fill makes the rows of ids [from, to) the rows of b. Their values lie in place already.
	fill func(ctx context.Context, b *trivium.Batch, from, to int64) error
	// draw makes them pixels, in place, and returns their labels; nil: they are none.
	draw func(ctx context.Context, labels []int32, of []byte, from, to int64) error
	late bool // rows that are resident are made when they are first wanted
}

// A generator is a Source that has its rows made late if it is asked to, and can.
type generator func(ctx context.Context, d trivium.Data, late bool) (*Splits, error)

// source is the generator as a Source: it makes all rows at once.
func (g generator) source(ctx context.Context, d trivium.Data) (*Splits, error) {
	return g(ctx, d, false)
}

// generatorSeed is the seed of every generated data set, so that all systems and machines see the same one.
const generatorSeed = 42

func generators() map[string]generator {
	return map[string]generator{"digits": digits, "logistic": logistic, "adult": adult}
}

// rows returns the rows of ids [from, from+n): resident where they fit into the default budget, else made again whenever they are read.
func (g *generated) rows(ctx context.Context, from, n int64) (Dataset, error) {
	if n > defaultBudget/g.rowBytes {
		return &stream{
			schema: g.schema, rows: n, rowBytes: g.rowBytes, budget: defaultBudget, firstID: from, generated: true,
			read: func(ctx context.Context, dst *trivium.Batch, lo, hi int64) error {
				return g.read(ctx, dst, from+lo, from+hi)
			},
		}, nil
	}
	var b trivium.Batch
	shapeOf(&b, &g.schema)
	b.Rows = int(n)
	b.Labels.Class = make([]int32, n)
	m := newMemory(g.schema, b)
	m.firstID = from
	if g.draw != nil {
		m.all.Inputs, m.pixels = nil, newPixels(&g.schema, places[byte](g, n), defaultBudget)
	} else {
		m.all.Inputs[0].Values = places[float32](g, n)
	}
	if g.late {
		m.late = newLate(g, m)
		return m, nil
	}
	return m, g.makeRows(ctx, &m.all, m.pixels, from)
}

// places is the memory for the values of n rows. Of rows that come late huge pages are asked for where they are wanted.
func places[T float32 | byte](g *generated, n int64) []T {
	if g.late {
		return make([]T, int(n)*g.values)
	}
	return tensor.Aligned[T](int(n) * g.values)
}

// makeRows makes the rows from id from on: those of b, whose values are x, if that is not nil.
func (g *generated) makeRows(ctx context.Context, b *trivium.Batch, x *pixels, from int64) error {
	if x != nil {
		return g.draw(ctx, b.Labels.Class, x.of, from, from+int64(b.Rows))
	}
	return g.fill(ctx, b, from, from+int64(b.Rows))
}

// read makes dst, an empty batch or an earlier one, the rows of ids [from, to).
func (g *generated) read(ctx context.Context, dst *trivium.Batch, from, to int64) error {
	if dst.Inputs == nil {
		shapeOf(dst, &g.schema)
	}
	dst.Inputs[0].Values = extend(dst.Inputs[0].Values[:0], int(to-from)*g.values)
	dst.Rows = int(to - from)
	return g.fill(ctx, dst, from, to)
}

// dense is a generator of one dense input and a class: row writes the values of the row of that id, and returns its class.
func dense(schema trivium.Schema, row func(x []float32, id int64) int32) *generated {
	n := 1
	for _, d := range schema.Inputs[0].Shape {
		n *= d
	}
	fill := func(ctx context.Context, b *trivium.Batch, from, to int64) error {
		x, y := b.Inputs[0].Values, extend(b.Labels.Class[:0], b.Rows)
		b.Labels.Class = y
		return parallel(ctx, to-from, 64, func(lo, hi int64) error {
			for r := lo; r < hi; r++ {
				y[r] = row(x[r*int64(n):(r+1)*int64(n)], from+r)
			}
			return nil
		})
	}
	return &generated{schema: schema, values: n, rowBytes: int64(n)*4 + 4, fill: fill}
}

// images is a generator of one input of pixels and a class: row draws those of the row of that id, and returns its class.
func images(schema trivium.Schema, row func(of []byte, id int64) int32) *generated {
	g := dense(schema, nil)
	g.draw = func(ctx context.Context, labels []int32, of []byte, from, to int64) error {
		n := int64(g.values)
		return parallel(ctx, to-from, 64, func(lo, hi int64) error {
			for r := lo; r < hi; r++ {
				labels[r] = row(of[r*n:(r+1)*n], from+r)
			}
			return nil
		})
	}
	g.fill = func(ctx context.Context, b *trivium.Batch, from, to int64) error {
		x := newPixels(&schema, make([]byte, int(to-from)*g.values), defaultBudget)
		b.Labels.Class = extend(b.Labels.Class[:0], b.Rows)
		if err := g.draw(ctx, b.Labels.Class, x.of, from, to); err != nil {
			return err
		}
		x.into(b.Inputs[0].Values, 0)
		return nil
	}
	return g
}

// grouped is a number of rows as a note has it.
func grouped(n int64) string { return quantity.Grouped(float64(n), 0) }

// splits makes rows [0, train) those for training, and test rows from testFrom on those for testing.
func (g *generated) splits(ctx context.Context, note string, train, testFrom, test int64) (*Splits, error) {
	s := &Splits{Notes: []string{"data is generated: " + note}}
	var err error
	if s.Train, err = g.rows(ctx, 0, train); err != nil {
		return nil, err
	}
	if s.Test, err = g.rows(ctx, testFrom, test); err != nil {
		return nil, err
	}
	if _, ok := s.Train.(*stream); ok {
		s.Notes = append(s.Notes, fmt.Sprintf("rows are generated when they are read: all would take %s, the memory for data is %s",
			quantity.Bytes(train*g.rowBytes), quantity.Bytes(defaultBudget)))
	}
	return s, nil
}

// isGenerated reports whether the rows of ds are generated when they are read.
func isGenerated(ds Dataset) bool {
	if part, ok := ds.(*slice); ok {
		return isGenerated(part.whole)
	}
	s, ok := ds.(*stream)
	return ok && s.generated
}
