package app

import (
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/graph"
)

// A prefix is the part of an exported graph between what a file holds and what the model takes: the fitted transform as nodes.
//
// A table's columns are inputs of their own, by name. A number enters as f32[batch,1], NaN where it is missing. A categorical column
// enters as the index of its category, i64[batch]: of a one-hot column in the order of the categories, one past the last for a value
// that training did not have; of a hashed one its bucket, the number of buckets where it is missing. A sparse row enters dense. An array
// enters as the file holds it.
type prefix struct {
	b      *graph.Builder
	inputs map[string]graph.Value // what the model takes, by name
	legend map[string]string      // what an input means, where its name does not say it
}

// newPrefix adds the nodes of t, nil for none, to b. Ready rows are the model's inputs as they are.
func newPrefix(b *graph.Builder, schema trivium.Schema, t *data.Transform) (*prefix, error) {
	p := &prefix{b: b, inputs: map[string]graph.Value{}, legend: map[string]string{}}
	if t == nil || t.Kind == data.KindReady {
		for _, in := range schema.Inputs {
			if in.Form == trivium.Ragged {
				return nil, fmt.Errorf("export: input %q is ragged, which ONNX has no tensor for", in.Name)
			}
			p.inputs[in.Name] = p.rows(in)
		}
		return p, nil
	}
	in := t.Schema.Inputs[0]
	switch t.Kind {
	case data.KindArray:
		x := p.rows(in)
		if t.Divisor != 1 {
			x = graph.Div(x, b.Scalar(graph.F32, float64(t.Divisor)))
			p.legend[in.Name] = fmt.Sprintf("as in the file; it is divided by %v inside", t.Divisor)
		}
		p.inputs[in.Name] = x
	case data.KindSparse:
		p.inputs[in.Name] = p.rows(in)
		p.legend[in.Name] = "dense: column i of the file is element i-1"
	case data.KindTable:
		p.table(in, t)
	default:
		return nil, fmt.Errorf("export: a transform of kind %q", t.Kind)
	}
	return p, b.Err()
}

// rows declares an input of dense rows.
func (p *prefix) rows(in trivium.InputSpec) graph.Value {
	return p.b.Input(in.Name, graph.F32, append(graph.Shape{graph.Axis("batch")}, graph.Of(in.Shape...)...)...)
}

// table puts the blocks of the columns one beside the other, in the order of their outputs; hashed columns share the last.
func (p *prefix) table(in trivium.InputSpec, t *data.Transform) {
	var blocks []graph.Value
	var hashed graph.Value
	buckets := 0
	columns := slices.SortedStableFunc(slices.Values(t.Columns), func(a, b data.Column) int { return a.From - b.From })
	inputs := make([]graph.Value, len(columns))
	for i, c := range columns { // before any node: a column may have the name of an operation, and a node can take another
		inputs[i] = p.column(c)
	}
	for i, c := range columns {
		switch c.Kind {
		case data.Number:
			blocks = append(blocks, p.number(inputs[i], c, t.Missing))
		case data.OneHot:
			if len(c.Categories) > 0 {
				blocks = append(blocks, p.oneHot(inputs[i], c))
			}
		case data.Hashed:
			x := category(inputs[i], c.Buckets)
			p.legend[c.Name] = fmt.Sprintf("bucket of [0, %[1]d): FNV-1a over the column's name, a zero byte and the value, finished by SplitMix64, modulo the buckets; %[1]d where it is missing", c.Buckets)
			if buckets == 0 {
				hashed, buckets = x, c.Buckets
			} else {
				hashed = graph.Add(hashed, x)
			}
		}
	}
	if buckets > 0 {
		blocks = append(blocks, hashed)
	}
	x := blocks[0]
	if len(blocks) > 1 {
		x = graph.Concat(1, blocks...)
	}
	p.inputs[in.Name] = x
}

// column declares the input of a column, if it has one.
func (p *prefix) column(c data.Column) graph.Value {
	switch {
	case c.Kind == data.Number:
		return p.b.Input(c.Name, graph.F32, graph.Axis("batch"), graph.N(1))
	case c.Kind == data.Hashed || c.Kind == data.OneHot && len(c.Categories) > 0:
		return p.b.Input(c.Name, graph.I64, graph.Axis("batch"))
	}
	return graph.Value{}
}

// number is (x − mean)·scale, with what is missing filled in.
func (p *prefix) number(x graph.Value, c data.Column, missing string) graph.Value {
	scalar := func(v float32) graph.Value { return p.b.Scalar(graph.F32, float64(v)) }
	if missing == "mean" || missing == "zero" {
		x = graph.Where(graph.Equal(x, x), x, scalar(c.Fill)) // NaN is not equal to itself
		p.legend[c.Name] = "NaN where it is missing"
	}
	if c.Mean != 0 || c.Scale != 1 {
		x = graph.Mul(graph.Sub(x, scalar(c.Mean)), scalar(c.Scale))
	}
	return x
}

// oneHot makes the categories of a column positions.
func (p *prefix) oneHot(x graph.Value, c data.Column) graph.Value {
	k := len(c.Categories)
	p.legend[c.Name] = fmt.Sprintf("index in %q, %d for any other value", c.Categories, k)
	return category(x, k)
}

// category makes indices below n, or n for what is none of them, n positions.
func category(indices graph.Value, n int) graph.Value {
	x := graph.OneHot(indices, n+1, graph.F32)
	return graph.Slice(x, graph.Range{Start: 0, Stop: graph.End, Step: 1}, graph.Range{Start: 0, Stop: n, Step: 1})
}
