package data

import (
	"context"
	"fmt"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor"
)

// A generated data set has rows that are functions of their ids.
type generated struct {
	schema   trivium.Schema
	values   int   // of a row
	rowBytes int64 // of a row, all in all
	// fill makes the rows of ids [from, to) the rows of b. Their values lie in place already.
	fill func(ctx context.Context, b *trivium.Batch, from, to int64) error
	late bool // rows that are resident are made when they are first wanted
}

// A generator is a Source that has its rows made late if it is asked to, and can.
type generator func(ctx context.Context, d trivium.Data, late bool) (*Splits, error)

// source is the generator as a Source: it makes all rows at once.
func (g generator) source(ctx context.Context, d trivium.Data) (*Splits, error) {
	return g(ctx, d, false)
}

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
	if g.late {
		b.Inputs[0].Values = make([]float32, int(n)*g.values) // huge pages are asked for where rows are wanted
	} else {
		b.Inputs[0].Values = tensor.Aligned[float32](int(n) * g.values)
	}
	m := newMemory(g.schema, b)
	m.firstID = from
	if g.late {
		m.all.Labels.Class = make([]int32, n)
		m.late = newLate(g, m.all, from)
		return m, nil
	}
	return m, g.fill(ctx, &m.all, from, from+n)
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
			size(train*g.rowBytes), size(defaultBudget)))
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
