package graph

import (
	"fmt"
	"slices"
)

// indexOps read and add rows by number.
var indexOps = []Op{
	{Name: "Gather", Min: 2, Max: 2, Doc: "rows of a table by index, along axis 0", infer: inferGather},
	{Name: "ScatterAdd", Min: 3, Max: 3, Doc: "a with rows added at indices, in ascending order of their position", infer: inferScatterAdd},
}

func inferGather(c *inference) ([]Type, error) {
	table, idx := c.in[0], c.in[1]
	if len(table.Shape) == 0 {
		return nil, fmt.Errorf("the table is a scalar")
	}
	return []Type{{table.DType, append(slices.Clip(idx.Shape), table.Shape[1:]...)}}, wantInteger("indices", idx)
}

func inferScatterAdd(c *inference) ([]Type, error) {
	a, idx, rows := c.in[0], c.in[1], c.in[2]
	if len(a.Shape) == 0 {
		return nil, fmt.Errorf("the table is a scalar")
	}
	if err := wantInteger("indices", idx); err != nil {
		return nil, err
	}
	if err := computes(a, rows); err != nil {
		return nil, err
	}
	return []Type{a}, wantShape("rows", rows, append(slices.Clip(idx.Shape), a.Shape[1:]...)...)
}

// Gather takes rows of table [rows,...] by integer indices of any shape: the result is indices' shape followed by a row's. An index
// outside [0, rows) is an error at Run. Gradient: row-sparse, dy at indices.
func Gather(table, indices Value) Value { return apply("Gather", nil, table, indices) }

// ScatterAdd is a [rows,...] with values, shaped like Gather's result, added to the rows at indices; rows that repeat are added in the
// order of their position. Gradient: dy, and Gather of dy.
func ScatterAdd(a, indices, values Value) Value { return apply("ScatterAdd", nil, a, indices, values) }
