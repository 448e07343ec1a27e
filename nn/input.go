package nn

import (
	"fmt"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/graph"
)

// input returns b's input that was described by spec, or says how it differs.
func input(b *trivium.Batch, spec trivium.InputSpec) (*trivium.Input, error) {
	x := b.Input(spec.Name)
	switch {
	case x == nil:
		return nil, fmt.Errorf("nn: the batch has no input %q", spec.Name)
	case x.Form != spec.Form:
		return nil, fmt.Errorf("nn: input %q: want %v rows, found %v", spec.Name, spec.Form, x.Form)
	case x.Rows != nil:
		return nil, errApart(spec.Name)
	case x.Form == trivium.Dense && len(x.Values) != b.Rows*spec.Columns():
		return nil, fmt.Errorf("nn: input %q: want %d rows of %v, found %d values", spec.Name, b.Rows, spec.Shape, len(x.Values))
	case x.Form == trivium.CSR && x.RowLen() > spec.Columns():
		return nil, fmt.Errorf("nn: input %q: want %d columns, found %d", spec.Name, spec.Columns(), x.RowLen())
	}
	return x, nil
}

// errApart refuses rows that only a trivium.RowReader reads.
func errApart(name string) error {
	return fmt.Errorf("nn: input %q: want rows one after the other, found rows apart", name)
}

// rowsOrInput is input for a model that takes dense rows from wherever they lie.
func rowsOrInput(b *trivium.Batch, spec trivium.InputSpec) (*trivium.Input, error) {
	x := b.Input(spec.Name)
	if x == nil || x.Rows == nil || spec.Form != trivium.Dense {
		return input(b, spec)
	}
	if len(x.Rows) != b.Rows {
		return nil, fmt.Errorf("nn: input %q: want %d rows, found %d", spec.Name, b.Rows, len(x.Rows))
	}
	for i, row := range x.Rows {
		if len(row) != spec.Columns() {
			return nil, fmt.Errorf("nn: input %q: row %d: want %d values of %v, found %d", spec.Name, i, spec.Columns(), spec.Shape, len(row))
		}
	}
	return x, nil
}

// flatInput returns the graph's input as rows of spec.Columns() values.
func flatInput(inputs map[string]graph.Value, spec trivium.InputSpec) (graph.Value, error) {
	x, ok := inputs[spec.Name]
	if !ok {
		return x, fmt.Errorf("nn: the graph has no input %q", spec.Name)
	}
	if len(x.Type().Shape) == 2 {
		return x, nil
	}
	return graph.Reshape(x, x.Type().Shape[0], graph.N(spec.Columns())), nil
}
